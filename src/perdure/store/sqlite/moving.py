"""Moving runs between stores, the part of SQLite: taking them in, closing them and letting them go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import msgspec

from perdure.errors import PerdureError, UnknownRun
from perdure.records import Mail, Record, Run
from perdure.store import blobs
from perdure.store.chain import verified_mail, verified_run
from perdure.store.moving import Joined, Reception, arriving, departed, joined, reception, refuse_departure, released
from perdure.store.sqlite.statements import Q, count_commits, fetch, insert_record, replace_run, run_of
from perdure.store.sqlite.whole import read_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.records import Worker
    from perdure.store.lease import Presence
    from perdure.store.protocol import Arrival, Departure, Outcome, Whole

    Look = Callable[[Run], tuple[Worker | None, Presence]]


def read_wholes(
    connection: apsw.Connection, run_ids: Sequence[str], *, location: str
) -> dict[str, Whole | PerdureError]:
    """These runs, each verified, as the open transaction sees them; in place of a damaged one what is wrong with it."""
    found: dict[str, Whole | PerdureError] = {}
    for run_id in run_ids:
        try:
            found[run_id] = read_whole(connection, run_id, location=location)
        except UnknownRun:
            continue
        except PerdureError as error:
            found[run_id] = error
    return found


def receive(connection: apsw.Connection, arrival: Arrival, load_blob: Callable[[bytes], bytes]) -> Outcome:
    """Write all of a run in the open transaction; or nothing, and why."""
    run_id = arrival.whole.run.run_id
    rows = fetch(connection, "read_run", (run_id,))
    try:
        known = verified_run(run_of(rows[0])) if rows else None
        kind = reception(known, arrival)
        if kind is Reception.SAME:
            return None
        mail = _mail(connection, run_id)
        here = _records(connection, rows[0][0]) if rows else []
        same = joined(known, here, mail, arrival) if known is not None else Joined()
    except PerdureError as error:
        return error
    numbers = _write_mail(connection, arrival, mail)
    run = arriving(arrival, numbers, known=known)
    if rows:
        number = rows[0][0]
        _cut(connection, number, same.records)
        replace_run(connection, run, number)
    else:
        connection.execute(Q["meet_queue"], (run.queue,))
        connection.execute(Q["insert_run"], msgspec.structs.astuple(run))
        number = connection.last_insert_rowid()
    for address in arrival.blobs:
        connection.execute(Q["insert_blob"], blobs.pack(load_blob(address)))
    for record in arrival.whole.records[same.records :]:
        insert_record(connection, number, record)
    return None


def close(connection: apsw.Connection, family: Sequence[Departure], look: Look) -> Outcome:
    """Close all runs of a family in the open transaction; or none, and why."""
    open_runs: list[tuple[int, Departure, int]] = []
    try:
        for departure in family:
            rows = fetch(connection, "read_run", (departure.run.run_id,))
            now = verified_run(run_of(rows[0])) if rows else None
            mail = _mail(connection, departure.run.run_id)
            if not refuse_departure(now, mail, departure, *look(departure.run)):
                open_runs.append((rows[0][0], departure, max((each.mail_id for each in mail), default=0)))
    except PerdureError as error:
        return error
    for number, departure, heard in open_runs:
        run, records = departed(departure, heard=heard)
        replace_run(connection, run, number)
        for record in records:
            insert_record(connection, number, record)
    return None


def release(connection: apsw.Connection, run_id: str, token: str) -> Outcome:
    """Let a run go in the open transaction."""
    rows = fetch(connection, "read_run", (run_id,))
    try:
        run = released(verified_run(run_of(rows[0])) if rows else None, token)
    except PerdureError as error:
        return error
    if run is not None:
        replace_run(connection, run, rows[0][0])
    return None


def _records(connection: apsw.Connection, number: int) -> list[Record]:
    return [Record(*row) for row in fetch(connection, "load_journal", (number,))]


def _mail(connection: apsw.Connection, run_id: str) -> list[Mail]:
    return [verified_mail(Mail(*row)) for row in fetch(connection, "read_mail", (run_id,))]


def _write_mail(connection: apsw.Connection, arrival: Arrival, here: list[Mail]) -> list[int]:
    """Bring the mail that is here up to date and add the rest, each a commit of its own; the numbers of all of it."""
    whole = arrival.whole
    for known, mail in zip(here, whole.mail, strict=False):
        connection.execute(Q["take_mail"], (mail.taken, mail.digest, known.mail_id))
    numbers = [mail.mail_id for mail in here]
    for mail in whole.mail[len(here) :]:
        connection.execute(Q["import_mail"], msgspec.structs.astuple(mail)[1:])
        numbers.append(connection.last_insert_rowid())
    connection.execute(Q["raise_base"], (len(whole.mail) - len(here),))
    return numbers


def _cut(connection: apsw.Connection, number: int, kept: int) -> None:
    """Remove what a move wrote after the records that are the same; the commit counter keeps what it counted."""
    before = count_commits(connection)
    connection.execute(Q["delete_records"], (number, kept))
    connection.execute(Q["raise_base"], (before - count_commits(connection),))
