"""Pruning a SQLite store: a survey of what is referred to, kept up to date while others write, and the removing."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import apsw
from msgspec import Struct

from perdure.records import FINISHED, Run
from perdure.store.chain import verified_run
from perdure.store.protocol import Compacted, Old, Prunable, Pruned
from perdure.store.prune import (
    BLOBS_AT_ONCE,
    REFERRING,
    addresses,
    chunks,
    in_order,
    is_old,
    is_old_failure,
    is_old_named,
    mentions,
    needed,
)
from perdure.store.sqlite.presence import is_locked
from perdure.store.sqlite.repair import stored_blob
from perdure.store.sqlite.statements import Q, count_commits, fetch, run_of, worker_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

_WORTHWHILE = 10
"""Room is given back where at least one page in so many is free: giving it back writes the whole file anew."""


class Pin(Struct, frozen=True):
    """The newest record at some moment. As long as it is there, whatever was appended since has a higher number."""

    number: int = 0
    digest: bytes = b""


class Survey:
    """What may go, and what is referred to by everything that stays."""

    def __init__(self, connection: apsw.Connection, old: Old) -> None:
        self._old = old
        self._look(connection)

    def _look(self, connection: apsw.Connection) -> None:
        rows = fetch(connection, "list_every_run")
        runs = [verified_run(run_of(row)) for row in rows]
        self._pin = _newest(connection)
        self.mentioned: set[str] = set()
        self.addresses: set[bytes] = set()
        going = {run.run_id for run in runs if is_old(run, self._old)}
        for row, run in zip(rows, runs, strict=True):
            if run.run_id not in going and run.state not in FINISHED:
                self._hear(connection, row[0])
        staying = needed(runs, going, self.mentioned)
        self.going = in_order(run for run in runs if run.run_id in going - staying)
        self._going_ids = going - staying
        self.failed = sum(is_old_failure(run, self._old) for run in runs)
        self.named = sum(is_old_named(run, self._old) for run in runs)
        self.needed = len(staying)
        self._numbers = {run.run_id: row[0] for row, run in zip(rows, runs, strict=True)}
        self._find_addresses(connection)

    def _hear(self, connection: apsw.Connection, number: int) -> None:
        for (body,) in connection.execute(Q["read_referring"], (number, *REFERRING)):
            self.mentioned |= mentions(body)

    def _find_addresses(self, connection: apsw.Connection) -> None:
        """A store without large values need not be read for them."""
        stored = fetch(connection, "list_blobs")
        going = {self._numbers[run_id] for run_id in self._going_ids}
        for number, body in connection.execute(Q["read_bodies"]) if stored else ():
            if number not in going:
                self._add_addresses(connection, body)
        self.unneeded_blobs: list[tuple[bytes, int]] = [row for row in stored if row[0] not in self.addresses]

    def _add_addresses(self, connection: apsw.Connection, body: object) -> None:
        if isinstance(body, str):
            self.addresses |= addresses(body, lambda digest: stored_blob(connection, digest))

    def catch_up(self, connection: apsw.Connection) -> None:
        """Learn what others appended since the last look; called inside the transaction that removes."""
        if self._pin.number and fetch(connection, "read_digest", (self._pin.number,)) != [(self._pin.digest,)]:
            self._look(connection)
            return
        heard: set[str] = set()
        for kind, body in connection.execute(Q["read_appended"], (self._pin.number,)):
            heard |= mentions(body) if kind in REFERRING else set()
            self._add_addresses(connection, body)
        self._pin = _newest(connection)
        if heard & self._going_ids:
            self._look(connection)

    def may_go(self, connection: apsw.Connection, run: Run) -> bool:
        """Whether a run that could go when it was surveyed still may; if not, what it refers to stays as well."""
        rows = fetch(connection, "read_run", (run.run_id,))
        if rows and run_of(rows[0]) == run and run.run_id in self._going_ids:
            return True
        for number, *_ in rows:
            for _, body in connection.execute(Q["read_bodies_of"], (number, number)):
                self._add_addresses(connection, body)
        return False

    def remove(self, connection: apsw.Connection, run: Run) -> Pruned:
        """Remove a run and everything that is its own."""
        number = fetch(connection, "find_run", (run.run_id,))[0][0]
        size = fetch(connection, "measure_run", (number, run.run_id))[0][0]
        connection.execute(Q["delete_records"], (number, 0))
        records = connection.changes()
        connection.execute(Q["delete_set_aside"], (number,))
        connection.execute(Q["delete_mail"], (run.run_id,))
        mail = connection.changes()
        connection.execute(Q["delete_run"], (number,))
        return Pruned(runs=1, records=records, mail=mail, size=size)

    def settle(self, connection: apsw.Connection) -> None:
        """What was removed may have been the newest record: from here on another one tells what is new."""
        self._pin = _newest(connection)


def prunable(connection: apsw.Connection, old: Old) -> Prunable:
    """What pruning would remove."""
    survey = Survey(connection, old)
    records = mail = size = 0
    for run in survey.going:
        ((number,),) = fetch(connection, "find_run", (run.run_id,))
        size += fetch(connection, "measure_run", (number, run.run_id))[0][0]
        mail += fetch(connection, "count_mail", (run.run_id,))[0][0]
        records += run.length
    blobs = survey.unneeded_blobs
    return Prunable(
        runs=tuple(survey.going),
        failed=survey.failed,
        named=survey.named,
        needed=survey.needed,
        records=records,
        mail=mail,
        blobs=len(blobs),
        size=size + sum(octets for _, octets in blobs),
    )


def prune(
    survey: Survey, transaction: Callable[[], AbstractContextManager[apsw.Connection]], forget: Callable[[str], object]
) -> Iterator[Pruned]:
    """Remove what the survey found, each time in a transaction of its own."""
    for chunk in chunks(survey.going):
        with transaction() as connection:
            survey.catch_up(connection)
            removed = _remove_runs(connection, survey, chunk)
        for run in chunk:
            forget(run.run_id)
        yield removed
    unneeded = survey.unneeded_blobs
    for first in range(0, len(unneeded), BLOBS_AT_ONCE):
        with transaction() as connection:
            survey.catch_up(connection)
            removed = _remove_blobs(connection, survey, unneeded[first : first + BLOBS_AT_ONCE])
        yield removed


def _remove_runs(connection: apsw.Connection, survey: Survey, chunk: list[Run]) -> Pruned:
    """The highest numbers may go with them: the commit counter keeps what they counted, in the same transaction."""
    before = count_commits(connection)
    gone = [survey.remove(connection, run) for run in chunk if survey.may_go(connection, run)]
    connection.execute(Q["raise_base"], (before - count_commits(connection),))
    survey.settle(connection)
    return Pruned(
        runs=len(gone),
        records=sum(one.records for one in gone),
        mail=sum(one.mail for one in gone),
        size=sum(one.size for one in gone),
    )


def _remove_blobs(connection: apsw.Connection, survey: Survey, unneeded: list[tuple[bytes, int]]) -> Pruned:
    chosen = [blob for blob in unneeded if blob[0] not in survey.addresses]
    for digest, _ in chosen:
        connection.execute(Q["delete_blob"], (digest,))
    return Pruned(blobs=len(chosen), size=sum(octets for _, octets in chosen))


def _newest(connection: apsw.Connection) -> Pin:
    for number, digest in fetch(connection, "read_newest"):
        return Pin(number, digest)
    return Pin()


def compact(connection: apsw.Connection, path: Path, life: Path, *, own_id: str) -> Compacted:
    """Write the file anew without its free pages, where nobody waits for it and there is room for both."""
    page = int(connection.pragma("page_size"))
    free = int(connection.pragma("freelist_count"))
    before = _size(path)
    why = _why_not(connection, path, life, own_id=own_id)
    if why or free * _WORTHWHILE < int(connection.pragma("page_count")):
        return Compacted(free=free * page, why=why if free else "")
    connection.execute(Q["vacuum"])
    connection.execute(Q["checkpoint"]).fetchall()
    return Compacted(given_back=max(0, before - _size(path)), free=int(connection.pragma("freelist_count")) * page)


def _why_not(connection: apsw.Connection, path: Path, life: Path, *, own_id: str) -> str:
    workers = [worker_of(row) for row in fetch(connection, "list_workers")]
    for worker in workers:
        if worker.worker_id != own_id and is_locked(life, worker) is not False:
            return f"process {worker.pid} on {worker.host} uses the store"
    disk = os.statvfs(path.parent)
    return "" if disk.f_bavail * disk.f_frsize > 2 * _size(path) else "there is no room to write the file anew"


def _size(path: Path) -> int:
    log = path.with_name(f"{path.name}-wal")
    return sum(file.stat().st_size for file in (path, log) if file.exists())
