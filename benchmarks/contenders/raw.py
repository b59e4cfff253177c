"""The limit of the disk: bare SQLite through apsw, WAL and synchronous=FULL, and nothing else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

import apsw

from benchmarks.contenders import group_commit
from benchmarks.payload import RESULT, messages
from benchmarks.resident import resident_bytes
from benchmarks.spans import tenths
from benchmarks.stopwatch import Stopwatch

SCHEMA = (
    "CREATE TABLE records ("
    "id INTEGER PRIMARY KEY, run INTEGER, seq INTEGER, kind TEXT, key TEXT, name TEXT, digest BLOB, value BLOB)"
)
INSERT = "INSERT INTO records (run, seq, kind, key, name, digest, value) VALUES (?, ?, ?, ?, ?, ?, ?)"
JOURNAL = "SELECT * FROM records WHERE run = (SELECT run FROM runs WHERE run_id = ?) ORDER BY seq"
DIGEST = bytes(range(32))


def sequential(*, directory: Path, steps: int, warm_up: int) -> dict[str, float]:
    """Commit one row of about 200 bytes at a time."""
    connection = opened(directory, warm_up=warm_up)
    stopwatch = Stopwatch()
    for seq in range(steps):
        connection.execute(INSERT, row(run=1, seq=seq))
    rates = stopwatch.rates(steps)
    connection.close()
    return rates


def concurrent(*, directory: Path, runs: int, steps: int, warm_up: int) -> dict[str, float]:
    """Commit one row of every run in one transaction: the best that group commit can do."""
    connection = opened(directory, warm_up=warm_up)
    stopwatch = Stopwatch()
    for seq in range(steps):
        connection.execute("BEGIN IMMEDIATE")
        for run in range(runs):
            connection.execute(INSERT, row(run=run + 1, seq=seq))
        connection.execute("COMMIT")
    rates = stopwatch.rates(runs * steps)
    connection.close()
    return rates


def concurrent_group(*, directory: Path, runs: int, steps: int, warm_up: int) -> dict[str, float]:
    """Commit rows of as many tasks through one writer thread, which commits all that has queued up at once.

    The usual construction of group commit, on the same connection as above.
    """
    connection = opened(directory, warm_up=warm_up)

    def commit(rows: Sequence[group_commit.Row]) -> None:
        connection.execute("BEGIN IMMEDIATE")
        for values in rows:
            connection.execute(INSERT, values)
        connection.execute("COMMIT")

    rates = group_commit.measure(commit, lambda run, seq: row(run=run, seq=seq), runs=runs, steps=steps)
    connection.close()
    return rates


def concurrent_awaited(*, directory: Path, runs: int, steps: int, warm_up: int) -> dict[str, float]:
    """Commit the same transactions for as many tasks, each of which awaits its row before it hands in the next."""
    connection = opened(directory, warm_up=warm_up)
    waiting: list[tuple[tuple[object, ...], asyncio.Future[None]]] = []

    def commit() -> None:
        batch = waiting.copy()
        waiting.clear()
        connection.execute("BEGIN IMMEDIATE")
        for values, _ in batch:
            connection.execute(INSERT, values)
        connection.execute("COMMIT")
        for _, future in batch:
            future.set_result(None)

    async def task(run: int, loop: asyncio.AbstractEventLoop) -> None:
        for seq in range(steps):
            future = loop.create_future()
            if not waiting:
                loop.call_soon(commit)
            waiting.append((row(run=run + 1, seq=seq), future))
            await future

    async def measured() -> dict[str, float]:
        loop = asyncio.get_running_loop()
        stopwatch = Stopwatch()
        await asyncio.gather(*(task(run, loop) for run in range(runs)))
        return stopwatch.rates(runs * steps)

    rates = asyncio.run(measured())
    connection.close()
    return rates


def conversation(*, directory: Path, steps: int, warm_up: int) -> dict[str, float]:
    """Commit one message of 2 KB at a time."""
    connection = opened(directory, warm_up=warm_up)
    marks = [time.perf_counter()]
    for seq, text in enumerate(messages(steps)):
        connection.execute(INSERT, row(run=1, seq=seq, text=text))
        marks.append(time.perf_counter())
    connection.close()
    return tenths(marks)


def memory(*, directory: Path, first_step: int, last_step: int) -> dict[str, float]:
    """Report what a process holds that only inserts rows."""
    connection = opened(directory)
    at_rest = resident_bytes()
    early = at_rest
    for seq in range(last_step):
        connection.execute(INSERT, row(run=1, seq=seq))
        if seq + 1 == first_step:
            early = resident_bytes()
    late = resident_bytes()
    connection.close()
    return {"at_rest": at_rest, "per_1000": (late - early) / (last_step - first_step) * 1000}


def read_journal(database: Path, *, run_id: str) -> tuple[float, int]:
    """Open a new connection and read every column of one run's records in order; return the seconds and the rows."""
    started = time.perf_counter()
    connection = apsw.Connection(str(database))
    rows = connection.execute(JOURNAL, (run_id,)).fetchall()
    seconds = time.perf_counter() - started
    connection.close()
    return seconds, len(rows)


def opened(directory: Path, *, warm_up: int = 0) -> apsw.Connection:
    """Open a new database the way perdure opens its own, and commit so many rows before measuring begins."""
    connection = apsw.Connection(str(directory / "raw.db"))
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute(SCHEMA)
    for seq in range(1 + warm_up):
        connection.execute(INSERT, row(run=0, seq=seq))
    return connection


def row(*, run: int, seq: int, text: str = RESULT) -> tuple[int, int, str, str, str, bytes, str]:
    """Return one row as a step's record would be."""
    return (run, seq, "step", f"/{seq}", "search_flights", DIGEST, text)
