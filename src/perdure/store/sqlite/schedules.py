"""Schedules and debounced starts in a SQLite store, inside the transaction that is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure.records import Debounce, Run, Schedule
from perdure.store.chain import verified_run
from perdure.store.debounce import FORGET_AT_ONCE, FORGET_SECONDS, Decided, Start, decide, is_untaken, landed
from perdure.store.sqlite.statements import Q, fetch, insert_record, replace_run, run_of

if TYPE_CHECKING:
    import apsw


def schedules_of(connection: apsw.Connection) -> list[Schedule]:
    """Every schedule, by name, whole or not."""
    return [Schedule(*row) for row in fetch(connection, "list_schedules")]


def change_schedule(connection: apsw.Connection, before: Schedule | None, after: Schedule | None) -> bool:
    """Put one in place of the other, if that is what is kept."""
    if before is None and after is not None:
        connection.execute(Q["insert_schedule"], msgspec.structs.astuple(after))
    elif before is not None and after is not None:
        connection.execute(Q["update_schedule"], (*msgspec.structs.astuple(after), before.name, before.digest))
    elif before is not None:
        connection.execute(Q["delete_schedule"], (before.name, before.digest))
    return connection.changes() == 1


def debounce(connection: apsw.Connection, start: Start, *, now: float) -> Run:
    """Put the start into the run of its key, or make it one; each counts as a commit that must not be lost."""
    known = next((Debounce(*row) for row in fetch(connection, "read_debounce", (start.run.agent, start.key))), None)
    for row in fetch(connection, "read_run", (landed(known, start),)):
        return verified_run(run_of(row))
    number, before = _untaken(connection, known.run_id) if known else (0, None)
    decided = decide(known, before, start, now=now)
    connection.execute(Q["meet_queue"], (decided.run.queue,))
    connection.execute(Q["write_debounce"], msgspec.structs.astuple(decided.debounce))
    if decided.replaces:
        _replace(connection, number, decided)
    else:
        connection.execute(Q["insert_run"], msgspec.structs.astuple(decided.run))
        insert_record(connection, connection.last_insert_rowid(), decided.first)
        connection.execute(Q["forget_debounces"], (now - FORGET_SECONDS, FORGET_AT_ONCE))
    return decided.run


def debounces_of(connection: apsw.Connection, *, after: tuple[str, str], limit: int) -> list[Debounce]:
    """So many keys, those after this one."""
    return [Debounce(*row) for row in fetch(connection, "list_debounces", (*after, limit))]


def keep_debounce(connection: apsw.Connection, debounce: Debounce) -> bool:
    """Keep a key, unless a newer start of it is known."""
    connection.execute(Q["keep_debounce"], msgspec.structs.astuple(debounce))
    return connection.changes() == 1


def _untaken(connection: apsw.Connection, run_id: str) -> tuple[int, Run | None]:
    """The run and its number, if nobody has taken it nor written to it."""
    for row in fetch(connection, "read_run", (run_id,)):
        run = run_of(row)
        ((mail,),) = fetch(connection, "count_mail", (run_id,))
        if is_untaken(run) and not mail:
            return row[0], run
    return 0, None


def _replace(connection: apsw.Connection, number: int, decided: Decided) -> None:
    first = decided.first
    replace_run(connection, decided.run, number)
    fields = (first.kind, first.key, first.name, first.arguments, first.at, first.epoch, first.body, first.digest)
    connection.execute(Q["replace_record"], (*fields, number, first.seq))
    connection.execute(Q["raise_base"], (1,))
