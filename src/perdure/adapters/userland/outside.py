"""What the user's code does to the world outside of tools: files written, programs started, connections made.

Nothing of it is recorded, so a resume does it again. It is told of once for each place in the user's code, by what was
done, to what, and where. Reads, what happens inside a tool's body, what Python, perdure and libraries do for
themselves, and what the project declares are passed over.
"""

from __future__ import annotations

import fnmatch
import functools
import os
import sys
import tempfile
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure.adapters.userland.modules import Userland, is_perdure
from perdure.engine import scope

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from types import FrameType, ModuleType

_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_DEVICES: Final = ("/dev/", "/proc/", "/sys/")
_FILES_AMONG_DEVICES: Final = "/dev/shm/"  # noqa: S108 - nothing is written there
_IMPORTING: Final = "<frozen importlib"
_PROCESS: Final = "multiprocessing.Process"
_BETWEEN: Final = frozenset({__file__, scope.__file__})
"""Modules of perdure that stand between the user's code and what it calls, and do nothing of their own."""


class Seen(Struct, frozen=True):
    """Something that the user's code did, unprotected."""

    verb: str
    target: str
    file: str
    line: int

    @property
    def what(self) -> str:
        """What was done to what, as patterns in `[tool.perdure.tools]` name it."""
        return f"{self.verb} {self.target}".rstrip()

    @property
    def place(self) -> str:
        """Where in the user's code."""
        return f"{self.file}:{self.line}"


def watch(
    userland: Userland,
    tell: Callable[[Seen], None],
    *,
    declared: Sequence[str] = (),
    ignored: Sequence[Path] = (),
) -> Callable[[], None]:
    """Tell of everything that the user's code does outside; gives back what ends that.

    What `tell` raises is raised where the thing was about to be done, which is then not done. `ignored` are files
    and folders of perdure's own.
    """
    watching = Watch(userland, tell, declared=declared, ignored=ignored)
    sys.addaudithook(watching.hear)
    return watching.stop


def audit_processes(multiprocessing: ModuleType) -> None:
    """Have Python say when a process is begun to work for this one, however it comes into being."""
    start = multiprocessing.BaseProcess.start

    @functools.wraps(start)
    def audited(self: Any) -> None:
        sys.audit(_PROCESS)
        start(self)

    multiprocessing.BaseProcess.start = audited


class Watch:
    """One watch; Python never forgets a hook, so one that has ended only returns."""

    def __init__(
        self, userland: Userland, tell: Callable[[Seen], None], *, declared: Sequence[str], ignored: Sequence[Path]
    ) -> None:
        self._userland = userland
        self._tell = tell
        self._declared = tuple(declared)
        self._ignored = tuple(os.path.realpath(path) for path in ignored)
        self._temporary = os.path.realpath(tempfile.gettempdir()) + os.sep
        self._told: set[tuple[str, int]] = set()
        self._pid = os.getpid()
        self._events = _EVENTS

    def stop(self) -> None:
        """Tell nothing more."""
        self._events = {}

    def hear(self, event: str, args: tuple[Any, ...]) -> None:
        """Called by Python for each of hundreds of kinds of events: most are not looked at."""
        target_of = self._events.get(event)
        if target_of is None:
            return
        try:
            seen = self._seen(event, target_of(args), args)
        except Exception:  # noqa: BLE001 - whatever is wrong with our looking, the script goes on
            return
        if seen is not None:
            self._tell(seen)

    def _seen(self, event: str, target: str | None, args: tuple[Any, ...]) -> Seen | None:
        if target is None or self._pid != os.getpid():
            return None
        frame = scope.current_frame()
        if frame is not None and frame.body:
            return None
        caller, is_library = self._caller(sys._getframe(2))  # noqa: SLF001
        if caller is None or (is_library and event not in _OF_FILES):
            return None  # connections and processes of a library are its own business, or recorded as model calls
        place = (caller.f_code.co_filename, caller.f_lineno)
        if place in self._told or (event in _OF_FILES and self._is_passed_over(args, is_library=is_library)):
            return None
        seen = Seen(event, target, *place)
        if any(fnmatch.fnmatchcase(seen.what, pattern) for pattern in self._declared):
            return None
        self._told.add(place)
        return seen

    def _caller(self, frame: FrameType | None) -> tuple[FrameType | None, bool]:
        """The user's code on whose behalf this is done, and whether an installed library stands between.

        None where it is done for perdure, or for Python and libraries while they are imported.
        """
        is_library = False
        while frame is not None:
            file = frame.f_code.co_filename
            if self._userland.owns(file):
                return frame, is_library
            if file.startswith(_IMPORTING) or (is_perdure(file) and file not in _BETWEEN):
                return None, is_library
            is_library = is_library or "-packages" in file or file == tempfile.__file__
            frame = frame.f_back
        return None, is_library

    def _is_passed_over(self, args: tuple[Any, ...], *, is_library: bool) -> bool:
        """Whether a file is one of perdure's own, or one that a library keeps for itself: outside of the project."""
        paths = [_real(path) for path in args[:2] if isinstance(path, (str, bytes, os.PathLike)) and path]
        if not paths:
            return False
        path = paths[0]
        if any(_is_at(path, own) for own in self._ignored):
            return True
        return is_library and (f"{path}{os.sep}".startswith(self._temporary) or not self._userland.holds(path))


def _real(path: Any) -> str:
    return os.path.realpath(os.fsdecode(path))


def _is_at(path: str, own: str) -> bool:
    """Whether a path is this file, one beside it that belongs to it (`-wal`, `-shm`), or below this folder."""
    return path.startswith(own) and path[len(own) : len(own) + 1] in ("", "-", os.sep)


def _opened(args: tuple[Any, ...]) -> str | None:
    """A file that is opened for writing; descriptors are streams that the script was given."""
    path, mode, flags = args
    if not isinstance(path, (str, bytes)):
        return None
    is_writing = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool((flags or 0) & _WRITING)
    return _file(args) if is_writing else None


def _file(args: tuple[Any, ...]) -> str | None:
    if not isinstance(args[0], (str, bytes, os.PathLike)):
        return None
    path = os.fsdecode(args[0])
    if path.startswith(_DEVICES) and not path.startswith(_FILES_AMONG_DEVICES):
        return None
    shown = os.path.relpath(path)
    return path if shown.startswith("..") else shown


def _moved(args: tuple[Any, ...]) -> str | None:
    """What a file is made to be called."""
    return _file(args[1:])


def _program(args: tuple[Any, ...]) -> str | None:
    """The program alone: its arguments may hold secrets."""
    executable, given = args[:2]
    named = executable or (given[0] if isinstance(given, (list, tuple)) and given else given)
    return os.fsdecode(named).split()[0] if named else ""


def _command(args: tuple[Any, ...]) -> str | None:
    words = os.fsdecode(args[0]).split()
    return words[0] if words else ""


def _first(args: tuple[Any, ...]) -> str | None:
    return os.fsdecode(args[0])


def _nothing(_args: tuple[Any, ...]) -> str | None:
    return ""


def _address(args: tuple[Any, ...]) -> str | None:
    address = args[1]
    if isinstance(address, tuple):
        return f"{address[0]}:{address[1]}"
    return os.fsdecode(address) if isinstance(address, (str, bytes)) else ""


def _database(args: tuple[Any, ...]) -> str | None:
    name = args[0]
    if not isinstance(name, (str, bytes, os.PathLike)) or os.fsdecode(name) in ("", ":memory:"):
        return None
    return _file(args)


_EVENTS: Final[dict[str, Callable[[tuple[Any, ...]], str | None]]] = {
    "open": _opened,
    "os.rename": _moved,
    "os.link": _moved,
    "os.symlink": _moved,
    "os.remove": _file,
    "os.rmdir": _file,
    "os.mkdir": _file,
    "os.truncate": _file,
    "shutil.copyfile": _moved,
    "shutil.copytree": _moved,
    "shutil.move": _moved,
    "shutil.rmtree": _file,
    "shutil.make_archive": _file,
    "sqlite3.connect": _database,
    "subprocess.Popen": _program,
    "os.system": _command,
    "os.exec": _first,
    "os.posix_spawn": _first,
    "os.fork": _nothing,
    _PROCESS: _nothing,
    "socket.connect": _address,
    "socket.sendto": _address,
}
_OF_FILES: Final = frozenset(
    event for event, target_of in _EVENTS.items() if target_of in (_opened, _moved, _file, _database)
)
