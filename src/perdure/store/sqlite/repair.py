"""Letting a damaged run go on: everything after its trusted prefix is set aside, inside one transaction."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import apsw

from perdure.records import Run
from perdure.store import blobs
from perdure.store.chain import (
    Prefix,
    irreparable,
    is_whole,
    needs_repair,
    rebuilt,
    repaired,
    sound_prefix,
    trusted_prefix,
    walked,
)
from perdure.store.sqlite.statements import Q, count_commits, fetch, insert_record, journal_rows, replace_run, run_at

if TYPE_CHECKING:
    from collections.abc import Callable


def repair(connection: apsw.Connection, run_id: str, number: int, refuse_held: Callable[[Run], None]) -> int:
    """Cut the run at its first damage; how many records were set aside."""
    run = _whole_row(connection, run_id, number)
    prefix = _prefix(connection, run, run_id, number)
    if run is not None:
        if not needs_repair(run, prefix):
            return 0
        refuse_held(run)
    if not prefix.records:
        raise irreparable(run.name if run else run_id, prefix)
    before = count_commits(connection)
    aside = _set_aside(connection, number, kept=len(prefix.records))
    bare = run or rebuilt(run_id, _legible_name(connection, number) or run_id, prefix)
    after, record = repaired(bare, prefix, total=len(prefix.records) + aside)
    replace_run(connection, after, number)
    connection.execute(Q["raise_base"], (before - count_commits(connection),))
    insert_record(connection, number, record)
    return aside


def find_run(connection: apsw.Connection, run_id: str) -> int | None:
    """The number of a run, if an index leads to it."""
    with contextlib.suppress(apsw.Error):
        for (number,) in fetch(connection, "find_run", (run_id,)):
            return int(number)
    return None


def stored_blob(connection: apsw.Connection, digest: bytes) -> bytes:
    """A large value, verified against its address."""
    rows = fetch(connection, "load_blob", (digest,))
    return blobs.unpack(digest, rows[0][0] if rows else None)


def _whole_row(connection: apsw.Connection, run_id: str, number: int) -> Run | None:
    with contextlib.suppress(UnicodeDecodeError):
        run = run_at(connection, number)
        if is_whole(run) and run.run_id == run_id:
            return run
    return None


def _prefix(connection: apsw.Connection, run: Run | None, run_id: str, number: int) -> Prefix:
    rows = journal_rows(connection, number)
    prefix = walked(run_id, rows) if run is None else trusted_prefix(run, rows)
    return sound_prefix(prefix, lambda digest: stored_blob(connection, digest))


def _legible_name(connection: apsw.Connection, number: int) -> str:
    with contextlib.suppress(UnicodeDecodeError):
        ((name,),) = fetch(connection, "read_name_at", (number,))
        return str(name)
    return ""


def _set_aside(connection: apsw.Connection, number: int, *, kept: int) -> int:
    """Keep what can still be read of the rest, out of the way."""
    with contextlib.suppress(apsw.Error):
        connection.execute(Q["set_records_aside"], (number, kept))
    connection.execute(Q["delete_records"], (number, kept))
    return connection.changes()
