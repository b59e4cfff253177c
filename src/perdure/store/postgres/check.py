"""`verify` on a PostgreSQL store: reads everything as of one moment, trusts nothing, changes nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from perdure.records import Mail, Run, is_whole_row
from perdure.store import blobs
from perdure.store.cabinet import ALL_ROWS, row_finding
from perdure.store.chain import finding_of, is_whole_mail, schedule_finding, sound_prefix, trusted_prefix
from perdure.store.postgres.connect import Q, fetch
from perdure.store.postgres.schedules import schedules_of
from perdure.store.protocol import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psycopg


@contextlib.contextmanager
def snapshot(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Everything read in this block is of one moment, whatever others commit meanwhile."""
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield


def findings(connection: psycopg.Connection[Any]) -> Iterator[Finding | Run]:
    """Each run that is whole, and each thing that is not."""
    with snapshot(connection):
        for (number,) in fetch(connection, "list_numbers"):
            yield _run_finding(connection, number)
        for (run_id,) in fetch(connection, "list_mailboxes"):
            yield from _mail_findings(connection, run_id)
        ((strays,),) = fetch(connection, "count_stray_records")
        if strays:
            yield Finding(where="records", what=f"{strays} belong to a run whose row is gone")
        yield from (schedule_finding(row) for row in schedules_of(connection) if not is_whole_row(row))
        with connection.cursor(name="cabinet", binary=True) as rows:
            yield from filter(None, map(row_finding, rows.execute(Q["scan_cabinet"], ALL_ROWS)))


def stored_blob(connection: psycopg.Connection[Any], digest: bytes) -> bytes:
    """A large value, verified against its address."""
    rows = fetch(connection, "load_blob", (digest,))
    return blobs.unpack(digest, rows[0][0] if rows else None)


def _run_finding(connection: psycopg.Connection[Any], number: int) -> Finding | Run:
    run = Run(*fetch(connection, "read_run_at", (number,))[0][1:])
    prefix = trusted_prefix(run, fetch(connection, "load_journal", (number,)))
    return finding_of(run, sound_prefix(prefix, lambda digest: stored_blob(connection, digest)))


def _mail_findings(connection: psycopg.Connection[Any], run_id: str) -> Iterator[Finding]:
    for row in fetch(connection, "read_mail", (run_id,)):
        mail = Mail(*row)
        if not is_whole_mail(mail):
            yield Finding(where=f"mail {mail.mail_id} of run {run_id}", what="is damaged (its digest does not match)")
