"""Which modules are the user's own: those below the script's folder or the working directory that nobody installed.

Never the standard library, an installed package, another virtual environment's files, or perdure itself.
"""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_MARKS_OF_ENVIRONMENTS: Final = ("pyvenv.cfg", "conda-meta")
_PERDURE: Final = str(Path(__file__).resolve().parents[2])


def roots_of(script: Path) -> list[Path]:
    """Where the modules of this script are looked for: its own folder, and the working directory."""
    folder = Path(os.path.abspath(script)).parent  # noqa: PTH100 - a link is not followed, as Python does for imports
    return list(dict.fromkeys((folder, Path.cwd())))


class Userland:
    """The files that are the user's; asked for the frames of calls, so every answer is remembered."""

    def __init__(self, roots: Sequence[Path], *, script: Path | None = None) -> None:
        self._roots = [form for root in roots for form in _forms(str(root))]
        self._owned = dict.fromkeys(_forms(str(script)) if script else (), True)

    def owns(self, file: str) -> bool:
        """Whether the code in this file is the user's, by the name that its code objects or its spec have."""
        known = self._owned.get(file)
        if known is None:
            known = self._owned[file] = self._is_users(file)
        return known

    def holds(self, path: str) -> bool:
        """Whether this is a file of the project, of whatever kind, and no hidden one."""
        return any(
            _is_below(path, root) and not any(part.startswith(".") for part in Path(path[len(root) :]).parts)
            for root in self._roots
        )

    def _is_users(self, file: str) -> bool:
        if not file.endswith((".py", ".pyw")):
            return False  # code made from text, frozen modules, extensions
        forms = _forms(file)
        if any(self._owned.get(form) for form in forms):
            return True
        return not any(_is_library(form) for form in forms) and any(
            _is_below(form, root) and not _is_in_environment(form, root) for form in forms for root in self._roots
        )


def is_perdure(file: str) -> bool:
    """Whether this is a file of perdure itself."""
    return _is_below(file, _PERDURE)


def _is_library(path: str) -> bool:
    return (
        not _INSTALLED.isdisjoint(Path(path).parts)
        or is_perdure(path)
        or any(_is_below(path, folder) for folder in _STANDARD)
    )


def _is_in_environment(path: str, root: str) -> bool:
    """Whether a folder between the root and this file is an environment that packages are installed into."""
    folder = os.path.dirname(path)  # noqa: PTH120 - thousands of files are asked about
    while len(folder) > len(root):
        if any(os.path.exists(os.path.join(folder, mark)) for mark in _MARKS_OF_ENVIRONMENTS):  # noqa: PTH110, PTH118
            return True
        folder = os.path.dirname(folder)  # noqa: PTH120
    return False


def _is_below(path: str, folder: str) -> bool:
    return path.startswith(folder if folder.endswith(os.sep) else folder + os.sep)


def _forms(path: str) -> tuple[str, ...]:
    """The path as it is written and as it is without links: imports go by the one, installers by the other."""
    written = os.path.abspath(path)  # noqa: PTH100 - a link is one of the two forms
    return tuple(dict.fromkeys((written, os.path.realpath(written))))


_STANDARD: Final = tuple(
    form for name in ("stdlib", "platstdlib") if (folder := sysconfig.get_path(name)) for form in _forms(folder)
)
