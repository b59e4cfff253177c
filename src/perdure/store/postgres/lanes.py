"""The lines on which journals are extended: several commits may be under way at once, each of other runs.

A batch whose answer was lost is sent again. If it had landed it is refused, and the heads of the journals tell why.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from psycopg import errors as server

from perdure.errors import InternalError, PerdureError
from perdure.store.postgres.append import Extension, complete, is_lone, refused, rounds_of, write, write_lone
from perdure.store.postgres.connect import Line, Patience, fetch
from perdure.store.postgres.refusal import AGAIN, BROKEN

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.records import Append
    from perdure.store.postgres.connect import Connection
    from perdure.store.postgres.location import Location
    from perdure.store.protocol import Outcome

LANES: Final = 2
"""So many commits at once: while one is on its way, the next steps of other runs are made. More only split batches."""


class Lanes:
    """Extends journals, for as long as the server is worth waiting for."""

    def __init__(self, location: Location, *, first: Line, unsynced: Line, seconds: float) -> None:
        self._location = location
        self._seconds = seconds
        self._synced = (first, *(Line(location, seconds=seconds) for _ in range(LANES - 1)))
        self._unsynced = (unsynced,)

    def append_all(self, batch: Sequence[Append], *, power: bool) -> list[Outcome]:
        """Extend journals in one transaction; each append is fenced by epoch and length."""
        if not batch:
            return []
        line = _free_line(self._synced if power else self._unsynced)
        try:
            return self._append(line, batch)
        except PerdureError as error:
            if not isinstance(error.__cause__, server.IntegrityError | server.DataError):
                return [error] * len(batch)
            if len(batch) > 1:
                return [self.append_all([append], power=power)[0] for append in batch]
            fault = f"Run {batch[0].run.name}: {error.__cause__}."
            return [InternalError(fault, safe="nothing was written.", hint="perdure verify")]
        finally:
            line.lock.release()

    def close(self) -> None:
        """Hang up."""
        for line in (*self._synced, *self._unsynced):
            line.close()

    def _append(self, line: Line, batch: Sequence[Append]) -> list[Outcome]:
        try:
            if is_lone(batch):
                return [None if line.once(write_lone, batch[0]) else refused(batch[0].run)]
            rounds = rounds_of(batch)
            landed = line.once(_written, rounds)
        except (*BROKEN, *AGAIN) as error:
            rounds = rounds_of(batch)
            landed = self._append_again(line, rounds, error)
        if all(landed):
            return [None] * len(batch)
        outcomes: list[Outcome] = [None] * len(batch)
        for is_in, extension in zip(landed, (each for one in rounds for each in one), strict=True):
            if not is_in:
                for place in extension.places:
                    outcomes[place] = refused(batch[place].run)
        return outcomes

    def _append_again(self, line: Line, rounds: list[list[Extension]], error: Exception) -> list[bool]:
        """Send it until the server answers; what is refused then may have been written by the first attempt."""
        patience = Patience(self._seconds)
        while True:
            patience.pause(error, self._location)
            try:
                landed = line.once(_written_or_newest, rounds)
            except (*BROKEN, *AGAIN) as again:
                error = again
            else:
                patience.end(self._location)
                return landed


def _free_line(lines: Sequence[Line]) -> Line:
    """The first line that nobody uses, for this thread alone: a lone caller always gets the same one."""
    for line in lines:
        if line.lock.acquire(blocking=False):
            return line
    lines[0].refuse_fork()
    lines[0].lock.acquire()
    return lines[0]


def _written(connection: Connection, rounds: list[list[Extension]]) -> list[bool]:
    """Send a batch; one round without large values and mail is one statement, which commits itself."""
    extensions = [extension for one in rounds for extension in one]
    if len(rounds) == 1 and not any(extension.blobs or extension.taken for extension in extensions):
        landed = write(connection, extensions)
        return [extension.run.run_id in landed for extension in extensions]
    outcomes = []
    with connection.transaction():
        for one in rounds:
            landed = write(connection, one)
            for extension in one:
                outcomes.append(extension.run.run_id in landed)
                if outcomes[-1]:
                    complete(connection, extension)
    return outcomes


def _written_or_newest(connection: Connection, rounds: list[list[Extension]]) -> list[bool]:
    landed = _written(connection, rounds)
    if all(landed):
        return landed
    return [a or b for a, b in zip(landed, _newest(connection, rounds), strict=True)]


def _newest(connection: Connection, rounds: list[list[Extension]]) -> list[bool]:
    """Which extensions are the newest of their run: they landed before the answer was lost."""
    extensions = [extension for one in rounds for extension in one]
    rows = fetch(connection, "read_heads", ([extension.run.run_id for extension in extensions],))
    heads = {run_id: (epoch, length, head) for run_id, epoch, length, head in rows}
    return [heads.get(each.run.run_id) == (each.run.epoch, each.run.length, each.run.head) for each in extensions]
