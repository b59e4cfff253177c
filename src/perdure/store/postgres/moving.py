"""Moving runs between stores, the part of PostgreSQL: taking them in, closing them and letting them go.

Each is a transaction that the caller has open, and asks and writes for all runs at once, however far the server is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import PerdureError, UsageError
from perdure.records import Mail, Record, Run
from perdure.store import blobs
from perdure.store.chain import verified_mail, verified_run
from perdure.store.moving import Joined, Reception, arriving, departed, joined, reception, refuse_departure, released
from perdure.store.postgres.connect import Q, fetch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    import psycopg

    from perdure.store.postgres.presence import Seen
    from perdure.store.protocol import Arrival, Departure, Outcome

    Connection = psycopg.Connection[Any]
    Row = tuple[Any, ...]


class Known:
    """What is here of some runs, their rows locked."""

    def __init__(self, connection: Connection, run_ids: Iterable[str]) -> None:
        ids = list(run_ids)
        rows = fetch(connection, "lock_runs", (ids,))
        self.numbers: dict[str, int] = {row[1]: row[0] for row in rows}
        self._rows = {row[1]: Run(*row[1:]) for row in rows}
        self._mail: dict[str, list[Mail]] = {}
        for row in fetch(connection, "read_mails", (ids,)) if rows else []:
            self._mail.setdefault(row[1], []).append(Mail(*row))

    def run(self, run_id: str) -> Run | None:
        """The run's row, verified."""
        return verified_run(self._rows[run_id]) if run_id in self._rows else None

    def mail(self, run_id: str) -> list[Mail]:
        """Its mail, verified."""
        return list(map(verified_mail, self._mail.get(run_id, [])))


def receive(connection: Connection, arrivals: Sequence[Arrival], load_blob: Callable[[bytes], bytes]) -> list[Outcome]:
    """Write these runs, each whole; or nothing of it, and why."""
    known = Known(connection, (arrival.whole.run.run_id for arrival in arrivals))
    outcomes: list[Outcome] = []
    added: list[tuple[Arrival, Run]] = []
    records: list[Row] = []
    for queue in {arrival.whole.run.queue for arrival in arrivals}:
        fetch(connection, "meet_queue", (queue,))
    for arrival in arrivals:
        try:
            run = _received(connection, arrival, known, records, load_blob)
            outcomes.append(None)
        except PerdureError as error:
            outcomes.append(error)
            continue
        if run is not None:
            added.append((arrival, run))
    numbers = _insert_runs(connection, [run for _, run in added])
    for arrival, run in added:
        if run.run_id not in numbers:  # whoever brought it in this very moment would have to be undone
            raise _came_meanwhile(run)
        records += _rows_of(numbers[run.run_id], arrival.whole.records)
    insert_records(connection, records)
    return outcomes


def _received(
    connection: Connection, arrival: Arrival, known: Known, records: list[Row], load_blob: Callable[[bytes], bytes]
) -> Run | None:
    """The row of a run that is not here yet; where some of it is, the rest is written or added to `records`."""
    run_id = arrival.whole.run.run_id
    before, mail = known.run(run_id), known.mail(run_id)
    if reception(before, arrival) is Reception.SAME:
        return None
    same = Joined()
    if before is not None:
        journal = [Record(*row) for row in fetch(connection, "load_journal", (known.numbers[run_id],))]
        same = joined(before, journal, mail, arrival)
    run = arriving(arrival, _write_mail(connection, arrival, mail), known=before)
    for address in arrival.blobs:
        fetch(connection, "insert_blob", blobs.pack(load_blob(address)))
    if before is None:
        return run
    number = known.numbers[run_id]
    fetch(connection, "delete_records", (number, same.records))
    fetch(connection, "replace_run", (*msgspec.structs.astuple(run), number))
    records += _rows_of(number, arrival.whole.records[same.records :])
    return None


def close(
    connection: Connection, families: Sequence[Sequence[Departure]], look: Callable[[Run], Seen]
) -> list[Outcome]:
    """Close all runs of each family; or none of it, and why."""
    known = Known(connection, (each.run.run_id for family in families for each in family))
    outcomes: list[Outcome] = []
    rows: list[Row] = []
    records: list[Row] = []
    for family in families:
        try:
            closed = [each for each in family if not _is_closed(each, known, look)]
            outcomes.append(None)
        except PerdureError as error:
            outcomes.append(error)
            continue
        for departure in closed:
            number = known.numbers[departure.run.run_id]
            heard = max((mail.mail_id for mail in known.mail(departure.run.run_id)), default=0)
            run, last = departed(departure, heard=heard)
            rows.append((*msgspec.structs.astuple(run), number))
            records += _rows_of(number, last)
    _write_all(connection, "replace_run", rows)
    insert_records(connection, records)
    return outcomes


def _is_closed(departure: Departure, known: Known, look: Callable[[Run], Seen]) -> bool:
    run_id = departure.run.run_id
    seen = look(departure.run)
    return refuse_departure(
        known.run(run_id),
        known.mail(run_id),
        departure,
        seen.worker,
        seen.presence,
        unproven_seconds=seen.unproven_seconds,
    )


def release(connection: Connection, moves: Sequence[tuple[str, str]]) -> list[Outcome]:
    """Let these runs go."""
    known = Known(connection, (run_id for run_id, _ in moves))
    outcomes: list[Outcome] = []
    rows: list[Row] = []
    for run_id, token in moves:
        try:
            run = released(known.run(run_id), token)
            outcomes.append(None)
        except PerdureError as error:
            outcomes.append(error)
            continue
        if run is not None:
            rows.append((*msgspec.structs.astuple(run), known.numbers[run_id]))
    _write_all(connection, "replace_run", rows)
    return outcomes


def insert_records(connection: Connection, rows: list[Row]) -> None:
    """Write records of many runs, without waiting for the answer to each."""
    _write_all(connection, "insert_record", rows)


def _rows_of(number: int, records: Iterable[Record]) -> list[Row]:
    return [(number, *msgspec.structs.astuple(record)) for record in records]


def _write_all(connection: Connection, name: str, rows: list[Row]) -> None:
    if rows:
        with connection.cursor() as cursor:
            cursor.executemany(Q[name], rows)


def _insert_runs(connection: Connection, runs: list[Run]) -> dict[str, int]:
    """Write rows of runs that are not here; the number of each."""
    if not runs:
        return {}
    with connection.cursor() as cursor:
        cursor.executemany(Q["insert_run"], list(map(msgspec.structs.astuple, runs)), returning=True)
    written = {run.run_id: run.digest for run in runs}
    rows = fetch(connection, "read_runs", (list(written),))
    return {row[1]: row[0] for row in rows if Run(*row[1:]).digest == written[row[1]]}


def _write_mail(connection: Connection, arrival: Arrival, here: list[Mail]) -> list[int]:
    """Bring the mail that is here up to date and add the rest; the numbers of all of it."""
    whole = arrival.whole
    for known, mail in zip(here, whole.mail, strict=False):
        fetch(connection, "take_mail", (mail.taken, mail.digest, known.mail_id))
    numbers = [mail.mail_id for mail in here]
    for mail in whole.mail[len(here) :]:
        ((mail_id,),) = fetch(connection, "import_mail", msgspec.structs.astuple(mail)[1:])
        numbers.append(mail_id)
    return numbers


def _came_meanwhile(run: Run) -> UsageError:
    return UsageError(
        f"Run {run.name} came to the target in this very moment.", safe="nothing was written.", hint="move it again"
    )
