"""Who is alive: workers beat by the database's clock, and hold a lock that ends with their session.

A session that ended is seen at once. It is no proof that the process is dead, so only writes, which are fenced, follow
from it; what a person or a check concludes waits for the lease.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from perdure import clock
from perdure.records import Worker
from perdure.store.lease import Presence
from perdure.store.postgres.connect import Line, fetch

if TYPE_CHECKING:
    import psycopg

    from perdure.store.postgres.location import Location

_FORGET_WORKER_SECONDS: Final = 24 * 3600.0


class Life:
    """The worker that this process is: a row, a beat, and a lock on a connection of its own."""

    def __init__(self, location: Location, *, seconds: float) -> None:
        self.worker_id = clock.new_token(12)
        self._portable = location.portable
        self.line = Line(location, seconds=seconds, greeting=None if self._portable else self._hold)

    def begin(self) -> Worker:
        """Become known."""
        boot = (os.getpid(), clock.host_name(), clock.boot_id(), _namespace(), clock.boot_seconds())
        self.line.fetch("forget_workers", (_FORGET_WORKER_SECONDS,))
        ((beat_at,),) = self.line.fetch("insert_worker", (self.worker_id, *boot))
        return Worker(self.worker_id, *boot[:4], beat_at, boot[4])

    def end(self) -> None:
        """Be gone at once."""
        try:
            self.line.fetch("delete_worker", (self.worker_id,))
        finally:
            self.line.close()

    def _hold(self, connection: psycopg.Connection[Any]) -> None:
        fetch(connection, "hold_life", (life_key(self.worker_id),))


def life_key(worker_id: str) -> int:
    """The number of a worker's lock."""
    return int.from_bytes(hashlib.sha256(worker_id.encode()).digest()[:8], "big", signed=True)


def worker_of(row: tuple[Any, ...]) -> tuple[Worker, float]:
    """A worker, and for how long it has been silent by the database's clock, whatever this machine's says."""
    known, silence = Worker(*row[:-1]), row[-1]
    return msgspec.structs.replace(known, beat_at=clock.wall_seconds() - silence), silence


class Seen(Struct, frozen=True):
    """What is known of the worker that holds a run."""

    worker: Worker | None
    presence: Presence
    unproven_seconds: float = 0.0
    """How long its lease still lasts where only its session ended: it may live, and have something under way."""


def look(
    connection: psycopg.Connection[Any], holder: str, *, stall_seconds: float, lease_seconds: float, portable: bool
) -> Seen:
    """Look at the holder of a run."""
    if not holder:
        return Seen(None, Presence.NONE)
    rows = fetch(connection, "read_worker", (holder,))
    if not rows:
        return Seen(None, Presence.DEAD)
    worker, silence = worker_of(rows[0])
    if portable:
        return Seen(worker, Presence.STALLED if silence > lease_seconds else Presence.ALIVE)
    ((held,),) = fetch(connection, "is_life_held", (life_key(holder),))
    if not held and _is_dead(worker):
        return Seen(worker, Presence.DEAD)
    if not held:
        return Seen(worker, Presence.LOST, max(0.0, lease_seconds - silence))
    return Seen(worker, Presence.STALLED if silence > stall_seconds else Presence.ALIVE)


def _is_dead(worker: Worker) -> bool:
    """Whether a worker ran on this very machine, and no process here has its number any more."""
    if worker.boot_id != clock.boot_id() or not worker.lock_inode or worker.lock_inode != _namespace():
        return False
    try:
        os.kill(worker.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False


def _namespace() -> int:
    """What tells the process numbers of one container from those of another; 0 where the system does not say."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - a link that leads nowhere
    except OSError:
        return 0
