"""Inside a script under test that keeps its state by hand: points around the files it writes below its folder.

A file that is opened for writing is a point before, and after: there it is emptied, and nothing is written yet.
"""

from __future__ import annotations

import builtins
import functools
import io
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perdure.testing.crash.trap import trap

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.testing.crash.trap import Orders

_MOVING: Final = ("replace", "rename", "remove", "unlink", "truncate", "link", "symlink")
_OWN: Final = ".perdure"


def watch(orders: Orders) -> None:
    """Put points around whatever changes a file, if they were asked for."""
    if not orders.files:
        return
    folder = Path.cwd()
    opened = _watched_open(io.open, folder)
    io.open = builtins.open = opened
    for name in _MOVING:
        setattr(os, name, _watched_move(getattr(os, name), name, folder))


def _watched_open(original: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    @functools.wraps(original)
    def opened(file: Any, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        place = _place(file, folder) if set(mode) & set("wax+") else ""
        if not place:
            return original(file, mode, *args, **kwargs)
        trap.reach(("open", "before", place))
        stream = original(file, mode, *args, **kwargs)
        trap.reach(("open", "after", place))
        return stream

    return opened


def _watched_move(original: Callable[..., Any], name: str, folder: Path) -> Callable[..., Any]:
    @functools.wraps(original)
    def moved(path: Any, *args: Any, **kwargs: Any) -> Any:
        place = _place(args[0] if args and name in ("replace", "rename") else path, folder)
        if not place:
            return original(path, *args, **kwargs)
        trap.reach((name, "before", place))
        answer = original(path, *args, **kwargs)
        trap.reach((name, "after", place))
        return answer

    return moved


def _place(file: Any, folder: Path) -> str:
    """The file as the script would call it; empty where it is none of the trial's own."""
    if not isinstance(file, (str, os.PathLike)):
        return ""
    path = Path(os.path.abspath(os.fspath(file)))  # noqa: PTH100 - links are not followed
    if not path.is_relative_to(folder) or _OWN in path.parts:
        return ""
    return str(path.relative_to(folder))
