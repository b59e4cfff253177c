"""`verify` on a SQLite store: reads everything, trusts nothing, changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import apsw

from perdure.errors import PerdureError
from perdure.records import Mail, Run, is_whole_row
from perdure.store.cabinet import ALL_ROWS, row_finding
from perdure.store.chain import finding_of, is_whole_mail, schedule_finding, sound_prefix, trusted_prefix
from perdure.store.protocol import Finding
from perdure.store.sqlite.loss import missing, verified_losses
from perdure.store.sqlite.repair import stored_blob
from perdure.store.sqlite.schedules import schedules_of
from perdure.store.sqlite.statements import Q, count_commits, fetch, journal_rows, run_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from perdure.store.sqlite.presence import Slot


def findings(
    connection: apsw.Connection, slots: list[Slot | None] | None, *, path: Path, mark: Path
) -> Iterator[Finding | Run]:
    """Each run that is whole, and each thing that is not. The slots were read before the snapshot that is read here."""
    parts: tuple[Callable[[], Iterator[Finding | Run]], ...] = (
        lambda: _file_findings(connection, path),
        lambda: _mark_findings(connection, slots, mark),
        lambda: _run_findings(connection),
        lambda: _mail_findings(connection),
        lambda: _loss_findings(connection),
        lambda: _stray_findings(connection),
        lambda: (schedule_finding(row) for row in schedules_of(connection) if not is_whole_row(row)),
        lambda: filter(None, map(row_finding, connection.execute(Q["scan_cabinet"], ALL_ROWS))),
    )
    for part in parts:
        try:
            yield from part()
        except (PerdureError, apsw.Error, UnicodeDecodeError, TypeError, ValueError) as error:
            yield Finding(where=str(path), what=f"cannot be read to the end: {error}")


def _file_findings(connection: apsw.Connection, path: Path) -> Iterator[Finding]:
    for (text,) in connection.execute(Q["check_all"]):
        if text != "ok":
            yield Finding(where=str(path), what=str(text))


def _mark_findings(connection: apsw.Connection, slots: list[Slot | None] | None, mark: Path) -> Iterator[Finding]:
    if slots is None:
        yield Finding(where=str(mark), what="is missing: lost commits could not be noticed")
        return
    found = count_commits(connection)
    if not slots and found:
        yield Finding(where=str(mark), what="is empty: lost commits could not be noticed")
    gone = missing(slots, found=found)
    if gone is not None:
        yield Finding(
            where=str(mark),
            what=f"{gone.acknowledged} commits were acknowledged, the database holds {gone.found}: the rest is lost",
        )
    if None in slots:
        yield Finding(where=str(mark), what="a slot is damaged: lost commits of one process could not be noticed")


def _run_findings(connection: apsw.Connection) -> Iterator[Finding | Run]:
    for (number,) in fetch(connection, "list_numbers"):
        try:
            yield _run_finding(connection, number)
        except (apsw.Error, UnicodeDecodeError) as error:
            yield Finding(where=f"run number {number}", what=f"its row cannot be read: {error}")


def _run_finding(connection: apsw.Connection, number: int) -> Finding | Run:
    run = run_at(connection, number)
    prefix = sound_prefix(
        trusted_prefix(run, journal_rows(connection, number)),
        lambda digest: stored_blob(connection, digest),
    )
    return finding_of(run, prefix)


def _mail_findings(connection: apsw.Connection) -> Iterator[Finding]:
    for (run_id,) in fetch(connection, "list_mailboxes"):
        for row in connection.execute(Q["read_mail"], (run_id,)):
            mail = Mail(*row)
            if not is_whole_mail(mail):
                yield Finding(
                    where=f"mail {mail.mail_id} of run {run_id}", what="is damaged (its digest does not match)"
                )


def _loss_findings(connection: apsw.Connection) -> Iterator[Finding]:
    verified_losses(connection)
    yield from ()


def _stray_findings(connection: apsw.Connection) -> Iterator[Finding]:
    ((count,),) = fetch(connection, "count_stray_records")
    if count:
        yield Finding(where="records", what=f"{count} belong to a run whose row is gone")
