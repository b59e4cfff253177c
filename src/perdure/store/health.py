"""What a look at a store says of its health, and the look at the device it is kept on."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from msgspec import Struct

from perdure import clock
from perdure.errors import StoreFull

if TYPE_CHECKING:
    from collections.abc import Callable

Level = Literal["ok", "warning", "problem"]

SYNCS: Final = 20
BLOCK_BYTES: Final = 4096
_MEGABYTE: Final = 1_000_000
QUICK_SECONDS: Final = 20e-6
"""No device that keeps data without power answers sooner; one that does has not asked it."""

_MOUNTS: Final = Path("/proc/self/mountinfo")
_OCTAL: Final = r"\\([0-7]{3})"

PASSING: Final = {
    "tmpfs": "is memory: everything in it is gone with a restart",
    "ramfs": "is memory: everything in it is gone with a restart",
    "overlay": "belongs to a container: everything in it is gone with that",
}
SHARED: Final = {
    "nfs": "is a network file system: SQLite's locks and syncs cannot be relied on there",
    "nfs4": "is a network file system: SQLite's locks and syncs cannot be relied on there",
    "cifs": "is a network file system: SQLite's locks and syncs cannot be relied on there",
    "smb3": "is a network file system: SQLite's locks and syncs cannot be relied on there",
    "9p": "is shared with a host: SQLite's locks and syncs may not reach its disk",
    "virtiofs": "is shared with a host: SQLite's locks and syncs may not reach its disk",
    "vboxsf": "is shared with a host: SQLite's locks and syncs may not reach its disk",
}


class Sign(Struct, frozen=True):
    """One thing that was looked at, how it is, and the command that mends it."""

    about: str
    level: Level
    what: str
    fix: str = ""


class Device(Struct, frozen=True):
    """What was measured of a device: the median of writes that were synced, and of writes that were not."""

    synced_seconds: float
    unsynced_seconds: float

    @property
    def is_suspicious(self) -> bool:
        """Whether syncing is so quick that nothing can have waited for a device."""
        return self.synced_seconds < QUICK_SECONDS


def room_bytes(megabytes: float) -> int:
    """How many bytes must be free where something is to be started."""
    return int(megabytes * _MEGABYTE)


def refuse_full(path: Path, *, room_bytes: int) -> None:
    """No work is begun where its records may not fit any more; what was begun before goes on as far as it can."""
    if not room_bytes:
        return
    disk = os.statvfs(path.parent)
    left = disk.f_bavail * disk.f_frsize
    if left < room_bytes:
        raise StoreFull(
            f"{path.parent} has room for {left / _MEGABYTE:.1f} MB; {room_bytes / _MEGABYTE:g} MB are needed to begin"
            " anything.",
            safe="nothing was started; everything that is recorded can be read.",
            hint=f"free space under {path.parent} (perdure gc removes old runs), or ask for less with PERDURE_ROOM_MB",
        )


def file_system(folder: Path, mounts: Path = _MOUNTS) -> str:
    """The kind of file system a folder is on; empty where the system does not tell."""
    try:
        text = mounts.read_text(errors="surrogateescape")
    except OSError:
        return ""
    wanted = folder.resolve()
    best, found = -1, ""
    for line in text.splitlines():
        fields, _, rest = line.partition(" - ")
        point = Path(re.sub(_OCTAL, lambda match: chr(int(match[1], 8)), fields.split(" ")[4]))
        if (wanted == point or point in wanted.parents) and len(point.parts) >= best:
            best, found = len(point.parts), rest.split(" ")[0]
    return found


def file_system_words(kind: str) -> str:
    """What is to be known of this kind of file system; empty where nothing is."""
    if kind.startswith("fuse"):
        return "is a program's own file system: its locks and syncs may not be real"
    return PASSING.get(kind, "") or SHARED.get(kind, "")


def measure(folder: Path) -> Device:
    """Write a file into the folder and sync it, a few times; the file is removed. Raises `OSError` where that fails."""
    path = folder / f".perdure-probe-{clock.new_token(8)}"
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(descriptor, bytes(BLOCK_BYTES * SYNCS), 0)
        os.fsync(descriptor)
        unsynced = [_timed(_write, descriptor, at) for at in range(SYNCS)]
        synced = [_timed(_write_through, descriptor, at) for at in range(SYNCS)]
    finally:
        os.close(descriptor)
        path.unlink()
    return Device(sorted(synced)[SYNCS // 2], sorted(unsynced)[SYNCS // 2])


def _write(descriptor: int, at: int) -> None:
    os.pwrite(descriptor, bytes(BLOCK_BYTES), at * BLOCK_BYTES)


def _write_through(descriptor: int, at: int) -> None:
    _write(descriptor, at)
    getattr(os, "fdatasync", os.fsync)(descriptor)


def _timed(action: Callable[[int, int], None], descriptor: int, at: int) -> float:
    begun = clock.elapsed_seconds()
    action(descriptor, at)
    return clock.elapsed_seconds() - begun
