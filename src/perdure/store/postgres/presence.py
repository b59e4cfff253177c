"""Who is alive: workers beat by the database's clock, and hold a lock that ends with their session.

A session that ended is seen at once. It is no proof that the process is dead, so only writes, which are fenced, follow
from it; what a person or a check concludes waits for the lease.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any, Final

import msgspec
import psycopg
from msgspec import Struct

from perdure import clock
from perdure.records import Worker
from perdure.settings import current_settings
from perdure.store.lease import Presence
from perdure.store.postgres.connect import Line, fetch
from perdure.store.protocol import MOST_DEATHS

if TYPE_CHECKING:
    from perdure.store.postgres.location import Location

_FORGET_WORKER_SECONDS: Final = 24 * 3600.0
RETURN_SECONDS: Final = 0.5
"""For so long a worker whose session has ended may open a new one before others go on with its runs."""

RESTART_SECONDS: Final = 2.0
"""For so long where our own session ended too: whoever waits for a server to come back asks it now and then only."""

_SAME_ABSENCE_SECONDS: Final = 10.0
_BEAT_SECONDS: Final = 5.0
_BEAT_PART: Final = 1 / 6
"""How long, and for which part of a lease, a sign of life may take before its line is given up."""


class Life:
    """The worker that this process is: a row, a beat, and a lock on a connection of its own."""

    def __init__(self, location: Location, *, seconds: float, lease_seconds: float) -> None:
        self.worker_id = clock.new_token(12)
        self._portable = location.portable
        self.line = Line(
            location,
            seconds=seconds,
            answer_seconds=min(_BEAT_SECONDS, lease_seconds * _BEAT_PART),
            greeting=None if self._portable else self._hold,
        )

    def begin(self) -> Worker:
        """Become known."""
        boot = (os.getpid(), clock.host_name(), clock.boot_id(), _namespace(), clock.boot_seconds())
        self.line.fetch("forget_workers", (_FORGET_WORKER_SECONDS,))
        self.line.fetch("forget_deaths", (MOST_DEATHS,))
        version = current_settings().version
        ((beat_at,),) = self.line.fetch("insert_worker", (self.worker_id, *boot, version))
        return Worker(self.worker_id, *boot[:4], beat_at, boot[4], version=version)

    def beat(self) -> None:
        """Give a sign of life, once: whoever keeps the lease tries again soon, on a new line where this one is mute."""
        self.line.again(lambda connection: heed_time(connection, "beat", (self.worker_id,)), seconds=0.0)

    def end(self) -> None:
        """Be gone at once."""
        try:
            forget = (self.worker_id,)
            self.line.again(lambda connection: fetch(connection, "delete_worker", forget), seconds=0.0)
        finally:
            self.line.close()

    def _hold(self, connection: psycopg.Connection[Any]) -> None:
        """Take the lock of this worker; a session of ours that hangs behind a dead connection may have it still."""
        key = (life_key(self.worker_id),)
        ((held,),) = fetch(connection, "hold_life", key)
        if not held:
            fetch(connection, "end_life", key)
            raise psycopg.OperationalError("the session before this one still holds the lock of this worker")


def heed_time(connection: psycopg.Connection[Any], name: str = "read_clock", arguments: tuple[Any, ...] = ()) -> None:
    """Keep the time of the database, which a statement answers with: for all who share it, one clock decides."""
    asked = clock.boot_seconds()
    rows = fetch(connection, name, arguments)
    took = clock.boot_seconds() - asked
    if rows:
        clock.heed_time(rows[0][0], boot=asked + took / 2, doubt=took)


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


class Absences:
    """Whose session was found to have ended, and since when: one that lives opens a new one within moments.

    After a restart of the server, or of whatever lies between, every session has ended and nobody has died.
    """

    def __init__(self) -> None:
        self._since: dict[str, tuple[float, float]] = {}

    def are_over(self, holder: str, seen: Seen, *, returned_at: float) -> bool:
        """Whether to take the runs of this holder, given what was seen of it now; and when our own session returned."""
        if seen.presence is not Presence.LOST or not seen.unproven_seconds:
            self._since.pop(holder, None)
            return seen.presence is not Presence.ALIVE
        now = clock.boot_seconds()
        since, looked_at = self._since.get(holder, (now, now))
        since = now if now - looked_at > _SAME_ABSENCE_SECONDS else since
        self._since[holder] = (since, now)
        is_after_restart = bool(returned_at) and since - returned_at < _SAME_ABSENCE_SECONDS
        return now - since >= (RESTART_SECONDS if is_after_restart else RETURN_SECONDS)


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
    if worker.died_at:
        return Seen(worker, Presence.DEAD)
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
    return _is_zombie(worker.pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended, and only waits for its parent to ask how."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 - as small as it is
            return file.read().rpartition(")")[2].split()[0] in ("Z", "X")
    except (OSError, IndexError):
        return False


def _namespace() -> int:
    """What tells the process numbers of one container from those of another; 0 where the system does not say."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - a link that leads nowhere
    except OSError:
        return 0
