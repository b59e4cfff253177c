"""The few acts on files that the tools share: arguments told from mistakes, writes that are whole, syncs, locks."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure import clock
from perdure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_POLL_SECONDS: Final = 0.02
_NAME_BYTES: Final = 200
"""Leaves room for what is put around the name of a file to name what stands beside it."""


class Unsynced(OSError):
    """It was done, but the device did not confirm it: whether it outlives a power loss is not known."""


def checked_path(path: object, *, tool: str) -> str:
    """A path as it is recorded: text. `UsageError` for what cannot name a file."""
    if not isinstance(path, (str, os.PathLike)):
        raise UsageError(f"{tool}: path={path!r} is not a path.", safe="nothing was written.", hint="a text or a Path")
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise UsageError(
            f"{tool}: path={text!r} cannot name a file.", safe="nothing was written.", hint="a path such as 'out.txt'"
        )
    return text


def resolved(path: str, *, tool: str) -> Path:
    """The regular file, present or to come, behind every link; `UsageError` for anything else."""
    target = Path(path).expanduser().resolve()
    if len(os.fsencode(target.name)) > _NAME_BYTES:
        raise UsageError(
            f"{tool}: the name of {target} is too long.", safe="nothing was written.", hint="at most 200 bytes"
        )
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISREG(target.stat().st_mode):
            raise UsageError(
                f"{tool}: {target} is no regular file.", safe="nothing was written.", hint="name a file, not a folder"
            )
    return target


def write_all(descriptor: int, content: bytes) -> None:
    """Write every byte, however many the system takes at once."""
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]


def sync(path: Path) -> None:
    """Put what a file or a folder holds on the device."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened(path: Path, flags: int, mode: int = 0o666) -> Iterator[int]:
    """A descriptor for as long as it is needed."""
    descriptor = os.open(path, flags, mode)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Take the lock on an open file, unless somebody has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_within(descriptor: int, seconds: float) -> bool:
    """Wait for the lock on an open file; False where it was not had in time."""
    deadline = clock.elapsed_seconds() + seconds
    while not try_lock(descriptor):
        if clock.elapsed_seconds() >= deadline:
            return False
        clock.sleep(_POLL_SECONDS)
    return True
