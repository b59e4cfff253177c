"""Which files a worker's code came from, and whether one of them has changed since."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

POLL_SECONDS: Final = 0.5
"""How often the files are looked at."""

GRACE_SECONDS: Final = 5.0
"""How long a step may go on after the code has changed."""


class Watch:
    """Files, each as it was when it was first named."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, int]] = {}

    def add(self, path: str, *, since: float = 0.0) -> None:
        """Watch this file too; one that was written after this moment may have been read before: it has changed."""
        if path not in self._known:
            seen = _look_of(path)
            self._known[path] = _UNSEEN if since and seen[0] > since * 1e9 else seen

    def changed(self) -> list[str]:
        """The files that differ from what they were when last asked; one that is gone may yet come back."""
        found = []
        for path, before in self._known.items():
            now = _look_of(path)
            if now not in (before, _GONE):
                self._known[path] = now
                found.append(path)
        return found


def forget_bytecode(path: str) -> None:
    """Remove what Python keeps of a file: it cannot tell two versions of one second and one size apart."""
    with contextlib.suppress(OSError, NotImplementedError):
        os.unlink(importlib.util.cache_from_source(path))  # noqa: PTH108 - as Python names it


def own_files() -> list[str]:
    """The files of the user's modules that are loaded: not Python's, not installed ones, not ours."""
    named = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return sorted({path for path in map(_absolute, filter(None, named)) if is_own(path)})


def files_of(error: BaseException | None) -> list[str]:
    """The user's files that an error came through: those that failed to load are in no list of modules."""
    found: list[str] = []
    while error is not None:
        found += [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
        if isinstance(error, SyntaxError) and error.filename:
            found.append(error.filename)
        error = error.__cause__ or error.__context__
    return sorted({path for path in map(_absolute, found) if is_own(path)})


def is_own(path: str) -> bool:
    """Whether a file is the user's own."""
    is_installed = path.startswith(_FOREIGN) or any(name in path for name in _INSTALLED)
    return path.endswith(".py") and not is_installed and os.path.exists(path)  # noqa: PTH110 - asked often


def _absolute(path: str) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - a path that is not resolved, as Python names it


def _look_of(path: str) -> tuple[int, int]:
    try:
        seen = os.stat(path)  # noqa: PTH116 - asked often
    except OSError:
        return _GONE
    return seen.st_mtime_ns, seen.st_size


def _folders(names: Iterable[str]) -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    own = str(Path(__file__).parents[1])
    return tuple(sorted({f"{folder.rstrip(os.sep)}{os.sep}" for folder in (*(paths[name] for name in names), own)}))


_GONE: Final = (-1, -1)
_UNSEEN: Final = (-2, -2)
_INSTALLED: Final = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
_FOREIGN: Final = _folders(("stdlib", "platstdlib", "purelib", "platlib"))
