"""`verify` on a SQLite store: reads everything, trusts nothing, changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import apsw

from perdure.errors import PerdureError
from perdure.records import Mail, Run, mail_digest
from perdure.store import blobs
from perdure.store.chain import blobs_of, trusted_prefix, verified_run
from perdure.store.protocol import Finding
from perdure.store.sqlite.presence import Mark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def findings(connection: apsw.Connection, queries: dict[str, str], mark: Path, path: Path) -> Iterator[Finding | Run]:
    """Each run that is whole, and each thing that is not."""
    parts = (
        lambda: _file_findings(connection, path),
        lambda: _mark_findings(connection, queries, mark),
        lambda: _run_findings(connection, queries),
        lambda: _mail_findings(connection, queries),
        lambda: _stray_findings(connection, queries),
    )
    for part in parts:
        try:
            yield from part()
        except (apsw.Error, UnicodeDecodeError, TypeError, ValueError) as error:
            yield Finding(where=str(path), what=f"cannot be read to the end: {error}")


def _file_findings(connection: apsw.Connection, path: Path) -> Iterator[Finding]:
    for (text,) in connection.execute("PRAGMA integrity_check(20)"):
        if text != "ok":
            yield Finding(where=str(path), what=str(text))


def _mark_findings(connection: apsw.Connection, queries: dict[str, str], path: Path) -> Iterator[Finding]:
    if not path.exists():
        yield Finding(where=str(path), what="is missing: lost commits could not be noticed")
        return
    mark = Mark(path)
    try:
        slots = mark.slots()
    finally:
        mark.close()
    ((_, base, newest),) = connection.execute(queries["read_meta"]).fetchall()
    acknowledged = max((slot.acknowledged for slot in slots if slot is not None), default=0)
    if acknowledged > base + newest:
        yield Finding(
            where=str(path),
            what=f"{acknowledged} commits were acknowledged, the database holds {base + newest}: the rest is lost",
        )
    if None in slots:
        yield Finding(where=str(path), what="a slot is damaged: lost commits of one process could not be noticed")


def _run_findings(connection: apsw.Connection, queries: dict[str, str]) -> Iterator[Finding | Run]:
    for row in connection.execute(queries["list_runs"], (-1,)).fetchall():
        run = Run(*row[1:])
        finding = _run_finding(connection, queries, row[0], run)
        yield run if finding is None else finding


def _run_finding(connection: apsw.Connection, queries: dict[str, str], number: int, run: Run) -> Finding | None:
    prefix = trusted_prefix(run, connection.execute(queries["load_journal"], (number,)))
    trusted = len(prefix.records)
    try:
        verified_run(run)
        problem = prefix.problem or _blob_problem(connection, queries, prefix.records)
    except PerdureError as error:
        problem = error.message
    if not problem:
        return None
    return Finding(where=f"run {run.name}", what=problem, run_id=str(run.run_id), trusted=trusted)


def _blob_problem(connection: apsw.Connection, queries: dict[str, str], records: list[Any]) -> str:
    for record in records:
        for digest in blobs_of(record):
            rows = connection.execute(queries["load_blob"], (digest,)).fetchall()
            try:
                blobs.unpack(digest, rows[0][0] if rows else None)
            except PerdureError as error:
                return f"record {record.seq}: {error.message}"
    return ""


def _mail_findings(connection: apsw.Connection, queries: dict[str, str]) -> Iterator[Finding]:
    for (run_id,) in connection.execute(queries["list_mailboxes"]).fetchall():
        for row in connection.execute(queries["read_mail"], (run_id,)):
            mail = Mail(*row)
            if mail.digest != mail_digest(mail):
                yield Finding(
                    where=f"mail {mail.mail_id} of run {run_id}", what="is damaged (its digest does not match)"
                )


def _stray_findings(connection: apsw.Connection, queries: dict[str, str]) -> Iterator[Finding]:
    ((count,),) = connection.execute(queries["count_stray_records"]).fetchall()
    if count:
        yield Finding(where="records", what=f"{count} belong to a run whose row is gone")
