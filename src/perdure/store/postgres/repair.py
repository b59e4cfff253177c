"""Letting a damaged run go on: everything after its trusted prefix is set aside, inside one transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.records import Run
from perdure.store.chain import (
    irreparable,
    is_whole,
    needs_repair,
    rebuilt,
    repaired,
    sound_prefix,
    trusted_prefix,
    unknown_run,
    walked,
)
from perdure.store.postgres.check import stored_blob
from perdure.store.postgres.connect import fetch

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg


def repair(
    connection: psycopg.Connection[Any],
    run_id: str,
    refuse_held: Callable[[psycopg.Connection[Any], Run], None],
    location: str,
) -> int:
    """Cut the run at its first damage; how many records were set aside."""
    with connection.transaction():
        rows = fetch(connection, "lock_run", (run_id,))
        if not rows:
            raise unknown_run(run_id, location)
        number, run = rows[0][0], Run(*rows[0][1:])
        journal = fetch(connection, "load_journal", (number,))
        found = trusted_prefix(run, journal) if is_whole(run) else walked(run_id, journal)
        prefix = sound_prefix(found, lambda digest: stored_blob(connection, digest))
        if is_whole(run):
            if not needs_repair(run, prefix):
                return 0
            refuse_held(connection, run)
        if not prefix.records:
            raise irreparable(run.name if is_whole(run) else run_id, prefix)
        kept = len(prefix.records)
        after, record = repaired(
            run if is_whole(run) else rebuilt(run_id, run.name, prefix), prefix, total=len(journal)
        )
        fetch(connection, "set_records_aside", (number, kept))
        fetch(connection, "delete_records", (number, kept))
        fetch(connection, "replace_run", (*msgspec.structs.astuple(after), number))
        fetch(connection, "insert_record", (number, *msgspec.structs.astuple(record)))
        return len(journal) - kept
