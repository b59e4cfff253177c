"""A store with very many runs, whole and verifiable, written past the engine: what a worker has to find its way in."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec
import psycopg

from perdure.bodies import Ended, Started, write_body
from perdure.records import Kind, Record, Run, RunState, extended
from perdure.store import open_store
from perdure.store.postgres.location import read_location

AGENT = "multitude.nothing"
RUN_COLUMNS = ("run", *Run.__struct_fields__)
RECORD_COLUMNS = ("run", *Record.__struct_fields__)
BEGUN_AT = 1_700_000_000.0
Number = int
Row = tuple[object, ...]


def fill(store: str, *, queued: int, finished: int) -> None:
    """Put so many queued and so many finished runs into a new store."""
    open_store(store).close()
    write = copied if store.startswith("postgresql:") else inserted
    write(store, "runs", RUN_COLUMNS, run_rows(queued=queued, finished=finished))
    write(store, "records", RECORD_COLUMNS, record_rows(queued=queued, finished=finished))


def run_rows(*, queued: int, finished: int) -> Iterator[Row]:
    """The rows of the table of runs."""
    for number, run, _ in multitude(queued=queued, finished=finished):
        yield (number, *msgspec.structs.astuple(run))


def record_rows(*, queued: int, finished: int) -> Iterator[Row]:
    """The rows of the table of records."""
    for number, _, records in multitude(queued=queued, finished=finished):
        for record in records:
            yield (number, *msgspec.structs.astuple(record))


def multitude(*, queued: int, finished: int) -> Iterator[tuple[Number, Run, tuple[Record, ...]]]:
    """Finished runs, then queued ones in the order of their turns, each with its journal."""
    started = write_body(Started(agent=AGENT, arguments=msgspec.Raw(b"{}"), code="1"))
    ended = write_body(Ended(state=RunState.COMPLETED))
    for number in range(1, finished + queued + 1):
        at = BEGUN_AT + number / 1000
        run = Run(f"run-{number:08d}", f"run-{number:08d}", AGENT, number.to_bytes(16), "power", at, at)
        records: tuple[Record, ...] = (Record(0, Kind.STARTED, "", AGENT, run.arguments, at, 0, started),)
        if number <= finished:
            records += (Record(1, Kind.ENDED, "", AGENT, b"", at, 0, ended),)
            yield number, *extended(run, at=at, records=records, state=RunState.COMPLETED)
        else:
            yield number, *extended(run, at=at, records=records, turn=number)


def copied(store: str, table: str, columns: tuple[str, ...], rows: Iterator[Row]) -> None:
    """Load rows into a table on a server; what autovacuum would do in its time is done at once."""
    location = read_location(store)
    with psycopg.connect(location.url, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {location.schema}")
        with connection.cursor().copy(f"COPY {table} ({', '.join(columns)}) FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
        if table == "runs":
            connection.execute("SELECT setval(pg_get_serial_sequence('runs', 'run'), max(run)) FROM runs")
        connection.execute(f"VACUUM ANALYZE {table}")


def inserted(store: str, table: str, columns: tuple[str, ...], rows: Iterator[Row]) -> None:
    """Load rows into a table of a file."""
    connection = apsw.Connection(str(Path(store)))
    places = ", ".join("?" * len(columns))
    statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({places})"  # noqa: S608 - names of our own schema
    with connection:
        connection.executemany(statement, rows)
    connection.close()
