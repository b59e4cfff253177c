"""The statements of `queries.sql` by name, and rows of the runs table as structs."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import apsw
import msgspec

from perdure import typed
from perdure.records import Record, Run, Worker
from perdure.store.sql import load_queries

if TYPE_CHECKING:
    from collections.abc import Iterator

Q: Final = load_queries("sqlite")

_LOT: Final = 64


def fetch(connection: apsw.Connection, name: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every row a named statement answers with."""
    return connection.execute(Q[name], arguments).fetchall()


def journal_rows(connection: apsw.Connection, number: int) -> Iterator[tuple[Any, ...]]:
    """The records of the run with this number, in order, as far as they can be read."""
    return _in_lots(connection.execute(Q["load_journal"], (number,)))


def _in_lots(rows: apsw.Cursor) -> Iterator[tuple[Any, ...]]:
    """The same rows, many read at once: a statement that takes turns with whoever digests its rows slows both down."""
    lot: list[tuple[Any, ...]] = []
    while True:
        try:
            lot.extend(islice(rows, _LOT))
        finally:  # what comes before a row that cannot be read is given out all the same
            yield from lot
        if len(lot) < _LOT:
            return
        lot.clear()


def run_of(row: tuple[Any, ...]) -> Run:
    """The run in a row that begins with its number."""
    return Run(*row[1:])


def worker_of(row: tuple[Any, ...]) -> Worker:
    """The worker in a row; it carries no digest, so at least its types must be right."""
    try:
        return typed.convert(dict(zip(Worker.__struct_fields__, row, strict=True)), Worker)
    except msgspec.ValidationError as error:
        raise apsw.CorruptError(f"a worker's row is damaged: {error}") from error


def run_at(connection: apsw.Connection, number: int) -> Run:
    """The run with this number, which a list of all numbers named."""
    for row in fetch(connection, "read_run_at", (number,)):
        return run_of(row)
    raise apsw.CorruptError(f"row {number} of the runs is listed and cannot be found")


def insert_record(connection: apsw.Connection | apsw.Cursor, number: int, record: Record) -> None:
    """Append a record to the journal of the run with this number."""
    connection.execute(
        Q["insert_record"],
        (
            number,
            record.seq,
            record.kind,
            record.key,
            record.name,
            record.arguments,
            record.at,
            record.epoch,
            record.body,
            record.digest,
        ),
    )


def replace_run(connection: apsw.Connection, run: Run, number: int) -> None:
    """Write the whole row anew."""
    connection.execute(Q["replace_run"], (*msgspec.structs.astuple(run), number))


def count_commits(connection: apsw.Connection) -> int:
    """How many commits this database remembers: one for each record and each mail, and those that were lost."""
    return _integer(connection, "read_counter")


def read_base(connection: apsw.Connection) -> int:
    """How many of them are no longer, or never were, in the numbers of records."""
    return _integer(connection, "read_base")


def read_generation(connection: apsw.Connection) -> int:
    """How often this database was found to have lost commits, and one."""
    return _integer(connection, "read_generation")


def _integer(connection: apsw.Connection, name: str) -> int:
    for (value,) in fetch(connection, name):
        if isinstance(value, int):
            return value
    raise apsw.CorruptError("what the database remembers of itself cannot be read")
