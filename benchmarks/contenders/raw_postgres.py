"""The limit of the server: bare psycopg, one prepared statement, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.contenders import group_commit
from benchmarks.contenders.raw import row
from benchmarks.stopwatch import Stopwatch

SCHEMA = (
    "CREATE TABLE records (run BIGINT, seq BIGINT, kind TEXT, key TEXT, name TEXT, digest BYTEA, value TEXT,"
    " PRIMARY KEY (run, seq))"
)
INSERT = "INSERT INTO records (run, seq, kind, key, name, digest, value) VALUES (%s, %s, %s, %s, %s, %b, %s)"
INSERT_MANY = (
    "INSERT INTO records (run, seq, kind, key, name, digest, value) SELECT * FROM"
    " unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[], %b::bytea[], %s::text[])"
)


def sequential(*, directory: Path, url: str, steps: int, warm_up: int) -> dict[str, float]:
    """Commit one row of about 200 bytes at a time."""
    connection = opened(directory, url, warm_up=warm_up)
    stopwatch = Stopwatch()
    for seq in range(steps):
        connection.execute(INSERT, row(run=1, seq=seq))
    rates = stopwatch.rates(steps)
    connection.close()
    return rates


def concurrent_group(*, directory: Path, url: str, runs: int, steps: int, warm_up: int) -> dict[str, float]:
    """Commit rows of as many tasks through one writer thread, which commits all that has queued up at once.

    The same construction as on SQLite; a batch is one statement over arrays, in one round trip.
    """
    connection = opened(directory, url, warm_up=warm_up)

    def commit(rows: Sequence[group_commit.Row]) -> None:
        connection.execute(INSERT_MANY, [list(column) for column in zip(*rows, strict=True)])

    rates = group_commit.measure(commit, lambda run, seq: row(run=run, seq=seq), runs=runs, steps=steps)
    connection.close()
    return rates


def opened(directory: Path, url: str, *, warm_up: int = 0) -> psycopg.Connection[Any]:
    """Make the table, and commit so many rows before measuring begins."""
    assert directory.is_dir()
    connection: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
    connection.prepare_threshold = 0
    connection.execute(SCHEMA)
    for seq in range(1 + warm_up):
        connection.execute(INSERT, row(run=0, seq=seq))
    return connection
