"""What a process leaves beside the database: a lock it holds for life, and its slot in the mark file.

The lock tells others at once that a process died. The mark remembers, unsynced, how many commits were acknowledged, so
that a database which lost some is noticed. Layout of `<database>-mark`: slots of 64 bytes, little-endian: worker id (16
bytes), commits acknowledged after a sync (u64), commits acknowledged at all (u64), CRC-32 of these 32 bytes, zeros.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import struct
import weakref
import zlib
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure import clock
from perdure.errors import StoreUnavailable
from perdure.records import Worker
from perdure.settings import current_settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SLOT_BYTES: Final = 64
_REMEMBERED: Final = struct.Struct("<16sQQ")
_SLOT: Final = struct.Struct("<32sI28x")
_POLL_SECONDS: Final = 0.005


class Slot(Struct, frozen=True):
    """One writer's memory of what was acknowledged to it."""

    worker_id: str
    synced: int
    acknowledged: int


@contextlib.contextmanager
def exclusive(path: Path, *, seconds: float) -> Iterator[None]:
    """Hold the open lock: one process at a time opens, migrates and checks a store."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        deadline = clock.elapsed_seconds() + seconds
        while not _try_lock(descriptor, fcntl.LOCK_EX):
            if clock.elapsed_seconds() > deadline:
                raise StoreUnavailable(
                    f"{path} has been locked by another process for {seconds:g} s.",
                    safe="nothing was changed.",
                    hint="see whether a process that opens this store hangs, and start again",
                )
            clock.sleep(_POLL_SECONDS)
        yield
    finally:
        _unlock(descriptor)


class Life:
    """The lock file of this process: held until it dies, closed in forked children."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, exist_ok=True)
        self.worker_id = clock.new_token(12)
        self.path = folder / self.worker_id
        self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        _let_go_in_forked_children()
        _lives.add(self)
        fcntl.flock(self._descriptor, fcntl.LOCK_EX)
        self.inode = os.fstat(self._descriptor).st_ino

    def describe(self) -> Worker:
        """Our process as others will see it."""
        return Worker(
            worker_id=self.worker_id,
            pid=os.getpid(),
            host=clock.host_name(),
            boot_id=clock.boot_id(),
            lock_inode=self.inode,
            beat_at=clock.wall_seconds(),
            beat_boot=clock.boot_seconds(),
            version=current_settings().version,
        )

    def end(self, *, forgotten: bool) -> None:
        """Give the lock up. The file stays as the proof of our end, unless nobody remembers us."""
        if self._descriptor < 0:
            return
        if forgotten:
            with contextlib.suppress(OSError):
                self.path.unlink()
        _unlock(self._descriptor)
        self._descriptor = -1

    def let_go(self) -> None:
        """Close the file in a forked child, without unlocking it: the lock is the parent's."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


_lives: Final[weakref.WeakSet[Life]] = weakref.WeakSet()


@functools.cache
def _let_go_in_forked_children() -> None:
    def after_fork() -> None:
        for life in list(_lives):
            life.let_go()

    os.register_at_fork(after_in_child=after_fork)


def is_locked(folder: Path, worker: Worker) -> bool | None:
    """Whether the worker's process still holds its lock; None where that cannot be known here.

    A held lock proves life. A free one proves death only if it is the very file, and the boot, that the worker named.
    """
    held, inode = _look_at_lock(folder / worker.worker_id)
    if held:
        return True
    if worker.boot_id != clock.boot_id():
        return False if worker.host == clock.host_name() else None
    return False if held is False and inode == worker.lock_inode else None


def is_named_lock_held(folder: Path, worker_id: str) -> bool:
    """Whether a process holds the life lock of this name, known to the store or not."""
    return bool(_look_at_lock(folder / worker_id)[0])


class Mark:
    """The mark file: every slot readable, one of them ours to write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._offset = -1
        self._slot = Slot("", 0, 0)

    def slots(self) -> list[Slot | None]:
        """Every slot in order; None where one is not readable."""
        return _read_slots(self._descriptor)

    def take_slot(self, worker_id: str, *, folder: Path) -> None:
        """Make a slot ours: that of a dead writer, or a new one; what it remembered is carried over."""
        slots = self.slots()
        known = [slot for slot in slots if slot is not None]
        synced = max((slot.synced for slot in known), default=0)
        acknowledged = max((slot.acknowledged for slot in known), default=0)
        free = next(
            (
                number
                for number, slot in enumerate(slots)
                if slot is None or not is_named_lock_held(folder, slot.worker_id)
            ),
            len(slots),
        )
        self._offset = free * SLOT_BYTES
        self._write(Slot(worker_id, synced, acknowledged))

    def advance(self, commits: int, *, synced: bool) -> None:
        """Remember that this many commits are about to be acknowledged; what is remembered never shrinks."""
        before = self._slot
        is_news, is_synced = commits > before.acknowledged, synced and commits > before.synced
        if self._offset >= 0 and (is_news or is_synced):
            acknowledged = commits if is_news else before.acknowledged
            self._write(Slot(before.worker_id, commits if is_synced else before.synced, acknowledged))

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._descriptor)

    def _write(self, slot: Slot) -> None:
        os.pwrite(self._descriptor, _slot_bytes(slot), self._offset)
        self._slot = slot


def read_mark(path: Path) -> list[Slot | None] | None:
    """Every slot of a mark that is only looked at; None where there is no mark."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return _read_slots(descriptor)
    finally:
        os.close(descriptor)


def _read_slots(descriptor: int) -> list[Slot | None]:
    size = os.fstat(descriptor).st_size
    return [_read_slot(os.pread(descriptor, SLOT_BYTES, at)) for at in range(0, size, SLOT_BYTES)]


def _slot_bytes(slot: Slot) -> bytes:
    plain = _REMEMBERED.pack(slot.worker_id.encode(), slot.synced, slot.acknowledged)
    return _SLOT.pack(plain, zlib.crc32(plain))


def _read_slot(raw: bytes) -> Slot | None:
    if len(raw) < _SLOT.size:
        return None
    plain, checksum = _SLOT.unpack(raw)
    if zlib.crc32(plain) != checksum:
        return None
    name, synced, acknowledged = _REMEMBERED.unpack(plain)
    return Slot(name.rstrip(b"\0").decode("ascii", "replace"), synced, acknowledged)


def _look_at_lock(path: Path) -> tuple[bool | None, int]:
    """Whether some process holds this life lock (None: there is no such file), and the file's inode.

    A shared lock asks, so that two who ask do not mistake each other for the holder.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None, 0
    try:
        return not _try_lock(descriptor, fcntl.LOCK_SH), os.fstat(descriptor).st_ino
    finally:
        _unlock(descriptor)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _unlock(descriptor: int) -> None:
    """Unlock and close: a child forked in between holds the same file open, and must not keep it locked."""
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)
