"""A run as one piece: reading everything that is kept of it at one moment, and writing it where it was not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw
import msgspec

from perdure.records import Mail, Run
from perdure.store.chain import heard_of, unknown_run, verified, verified_mail, verified_run
from perdure.store.protocol import Whole
from perdure.store.sqlite.statements import Q, fetch, insert_record, journal_rows, run_of

if TYPE_CHECKING:
    from collections.abc import Iterable


def read_whole(connection: apsw.Connection, run_id: str, *, location: str) -> Whole:
    """The run, its journal and its mail, verified, as the open transaction sees them."""
    rows = fetch(connection, "read_run", (run_id,))
    if not rows:
        raise unknown_run(run_id, location)
    run = verified_run(run_of(rows[0]))
    records = verified(run, journal_rows(connection, rows[0][0]))
    mail = [verified_mail(Mail(*row)) for row in fetch(connection, "read_mail", (run_id,))]
    return Whole(run, tuple(records), tuple(mail))


def write_whole(connection: apsw.Connection, whole: Whole, blobs: Iterable[tuple[bytes, bytes]]) -> Run:
    """Write all of it in the open transaction; a known id returns the row that is there.

    Each mail counts as a commit of its own, as when it is posted.
    """
    run = whole.run
    rows = fetch(connection, "read_run", (run.run_id,))
    if rows:
        return verified_run(run_of(rows[0]))
    for mail in whole.mail:
        connection.execute(Q["import_mail"], msgspec.structs.astuple(mail)[1:])
        run = heard_of(run, connection.last_insert_rowid())
    connection.execute(Q["raise_base"], (len(whole.mail),))
    connection.execute(Q["meet_queue"], (run.queue,))
    connection.execute(Q["insert_run"], msgspec.structs.astuple(run))
    number = connection.last_insert_rowid()
    for blob in blobs:
        connection.execute(Q["insert_blob"], blob)
    for record in whole.records:
        insert_record(connection, number, record)
    return run
