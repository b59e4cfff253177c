"""A run as one piece: reading everything that is kept of it at one moment, and writing it where it was not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.errors import PerdureError
from perdure.records import Mail, Run
from perdure.store.chain import heard_of, unknown_run, verified, verified_mail, verified_run
from perdure.store.postgres.check import snapshot
from perdure.store.postgres.connect import fetch
from perdure.store.protocol import Whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import psycopg


def read_whole(connection: psycopg.Connection[Any], run_id: str, *, location: str) -> Whole:
    """The run, its journal and its mail, verified, all of one moment."""
    with snapshot(connection):
        rows = fetch(connection, "read_run", (run_id,))
        if not rows:
            raise unknown_run(run_id, location)
        run = verified_run(Run(*rows[0][1:]))
        records = verified(run, fetch(connection, "load_journal", (rows[0][0],)))
        mail = [verified_mail(Mail(*row)) for row in fetch(connection, "read_mail", (run_id,))]
    return Whole(run, tuple(records), tuple(mail))


def read_wholes(connection: psycopg.Connection[Any], run_ids: Sequence[str]) -> dict[str, Whole | PerdureError]:
    """The same for several runs, in the time of one; in place of a damaged one stands what is wrong with it."""
    with snapshot(connection):
        rows = fetch(connection, "read_runs", (list(run_ids),))
        journals: dict[int, list[tuple[Any, ...]]] = {row[0]: [] for row in rows}
        for number, *fields in fetch(connection, "load_journals", (list(journals),)):
            journals[number].append(tuple(fields))
        mails: dict[str, list[Mail]] = {}
        for row in fetch(connection, "read_mails", (list(run_ids),)):
            mails.setdefault(row[1], []).append(Mail(*row))
    return {row[1]: _verified(Run(*row[1:]), journals[row[0]], mails.get(row[1], [])) for row in rows}


def _verified(run: Run, journal: list[tuple[Any, ...]], mail: list[Mail]) -> Whole | PerdureError:
    try:
        records = verified(verified_run(run), journal)
        return Whole(run, tuple(records), tuple(map(verified_mail, mail)))
    except PerdureError as error:
        return error


def write_whole(connection: psycopg.Connection[Any], whole: Whole, blobs: Iterable[tuple[bytes, bytes]]) -> Run:
    """Write all of it in the open transaction; a known id returns the row that is there."""
    inserted = fetch(connection, "insert_run", msgspec.structs.astuple(whole.run))
    if not inserted:
        return verified_run(Run(*fetch(connection, "read_run", (whole.run.run_id,))[0][1:]))
    run, number = whole.run, inserted[0][0]
    fetch(connection, "meet_queue", (run.queue,))
    for mail in whole.mail:
        ((mail_id,),) = fetch(connection, "import_mail", msgspec.structs.astuple(mail)[1:])
        run = heard_of(run, mail_id)
    fetch(connection, "replace_run", (*msgspec.structs.astuple(run), number))
    for blob in blobs:
        fetch(connection, "insert_blob", blob)
    for record in whole.records:
        fetch(connection, "insert_record", (number, *msgspec.structs.astuple(record)))
    return run
