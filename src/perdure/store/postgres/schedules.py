"""Schedules and debounced starts in a PostgreSQL store; a key is locked while a start of it is seen to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.records import Debounce, Run, Schedule
from perdure.store.chain import verified_run
from perdure.store.debounce import FORGET_AT_ONCE, FORGET_SECONDS, Decided, Start, decide, is_untaken, landed
from perdure.store.postgres.connect import Q, fetch

if TYPE_CHECKING:
    import psycopg


def schedules_of(connection: psycopg.Connection[Any]) -> list[Schedule]:
    """Every schedule, by name, whole or not."""
    return [Schedule(*row) for row in fetch(connection, "list_schedules")]


def change_schedule(connection: psycopg.Connection[Any], before: Schedule | None, after: Schedule | None) -> bool:
    """Put one in place of the other, if that is what is kept; sent again, it is refused, and whoever asks looks."""
    written = () if after is None else msgspec.structs.astuple(after)
    fence = () if before is None else (before.name, before.digest)
    statement = "delete_schedule" if after is None else ("update_schedule" if before else "insert_schedule")
    return connection.execute(Q[statement], (*written, *fence)).rowcount == 1


def debounce(connection: psycopg.Connection[Any], start: Start) -> Run:
    """Put the start into the run of its key, or make it one; the server's clock says how long it waits."""
    key = (start.run.agent, start.key)
    with connection.transaction():
        fetch(connection, "make_debounce", key)
        found = Debounce(*fetch(connection, "read_debounce", key)[0])
        known = found if found.run_id else None
        for row in fetch(connection, "read_run", (landed(known, start),)):
            return verified_run(Run(*row[1:]))
        number, before = _untaken(connection, known.run_id) if known else (0, None)
        ((now,),) = fetch(connection, "read_clock")
        decided = decide(known, before, start, now=now)
        fetch(connection, "meet_queue", (decided.run.queue,))
        fetch(connection, "write_debounce", (*msgspec.structs.astuple(decided.debounce)[2:], *key))
        _write(connection, number, decided)
    if not decided.replaces:
        fetch(connection, "forget_debounces", (now - FORGET_SECONDS, now - FORGET_SECONDS, FORGET_AT_ONCE))
    return decided.run


def debounces_of(connection: psycopg.Connection[Any], *, after: tuple[str, str], limit: int) -> list[Debounce]:
    """So many keys, those after this one."""
    return [Debounce(*row) for row in fetch(connection, "list_debounces", (*after, limit))]


def keep_debounce(connection: psycopg.Connection[Any], debounce: Debounce) -> bool:
    """Keep a key, unless a newer start of it is known."""
    return connection.execute(Q["keep_debounce"], msgspec.structs.astuple(debounce)).rowcount == 1


def _untaken(connection: psycopg.Connection[Any], run_id: str) -> tuple[int, Run | None]:
    """The run and its number, locked, if nobody has taken it nor written to it."""
    for row in fetch(connection, "lock_run", (run_id,)):
        run = Run(*row[1:])
        ((mail, _),) = fetch(connection, "measure_mail", ([run_id],))
        if is_untaken(run) and not mail:
            return row[0], run
    return 0, None


def _write(connection: psycopg.Connection[Any], number: int, decided: Decided) -> None:
    first, row = decided.first, msgspec.structs.astuple(decided.run)
    if not decided.replaces:
        ((number,),) = fetch(connection, "insert_run", row)
        fetch(connection, "insert_record", (number, *msgspec.structs.astuple(first)))
        return
    fetch(connection, "replace_run", (*row, number))
    fields = (first.kind, first.key, first.name, first.arguments, first.at, first.epoch, first.body, first.digest)
    fetch(connection, "replace_record", (*fields, number, first.seq))
