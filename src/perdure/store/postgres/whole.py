"""A run as one piece: reading everything that is kept of it at one moment, and writing it where it was not known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.records import Mail, Run
from perdure.store.chain import heard_of, unknown_run, verified, verified_mail, verified_run
from perdure.store.postgres.check import snapshot
from perdure.store.postgres.connect import fetch
from perdure.store.protocol import Whole

if TYPE_CHECKING:
    from collections.abc import Iterable

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


def write_whole(connection: psycopg.Connection[Any], whole: Whole, blobs: Iterable[tuple[bytes, bytes]]) -> Run:
    """Write all of it in the open transaction; a known id returns the row that is there."""
    inserted = fetch(connection, "insert_run", msgspec.structs.astuple(whole.run))
    if not inserted:
        return verified_run(Run(*fetch(connection, "read_run", (whole.run.run_id,))[0][1:]))
    run, number = whole.run, inserted[0][0]
    for mail in whole.mail:
        ((mail_id,),) = fetch(connection, "import_mail", msgspec.structs.astuple(mail)[1:])
        run = heard_of(run, mail_id)
    fetch(connection, "replace_run", (*msgspec.structs.astuple(run), number))
    for blob in blobs:
        fetch(connection, "insert_blob", blob)
    for record in whole.records:
        fetch(connection, "insert_record", (number, *msgspec.structs.astuple(record)))
    return run
