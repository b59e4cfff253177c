"""The statements of `queries.sql` by name, and rows of the runs table as structs."""

from __future__ import annotations

from typing import Any, Final

import apsw
import msgspec

from perdure.records import Record, Run
from perdure.store.sql import load_queries

Q: Final = load_queries("perdure.store.sqlite")


def fetch(connection: apsw.Connection, name: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every row a named statement answers with."""
    return connection.execute(Q[name], arguments).fetchall()


def run_of(row: tuple[Any, ...]) -> Run:
    """The run in a row that begins with its number."""
    return Run(*row[1:])


def insert_record(connection: apsw.Connection, number: int, record: Record) -> None:
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
    ((count,),) = fetch(connection, "read_counter")
    return int(count)
