"""Absurd with its defaults: one JSON checkpoint per step, kept by functions inside the database.

The client is `absurd-sdk`. The schema is not in it: it is bundled in `absurdctl`, the project's command.
"""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
from absurd_sdk import Absurd, AsyncAbsurd
from absurdctl import BUNDLED_SCHEMA_SQL

from benchmarks.payload import RESULT
from benchmarks.stopwatch import Stopwatch

QUEUE = "default"
TASK = "sequence"


def sequential(*, directory: Path, url: str, steps: int, warm_up: int) -> dict[str, float]:
    """Time one task of sync steps, executed as a worker does that finds it in its queue."""
    install(directory, url)
    app = Absurd(url, queue_name=QUEUE)
    register(app)
    app.spawn(TASK, {"steps": 1 + warm_up})
    app.work_batch()
    app.spawn(TASK, {"steps": steps})
    stopwatch = Stopwatch()
    app.work_batch()
    rates = stopwatch.rates(steps)
    assert unfinished(url) == 0
    app.close()
    return rates


def concurrent(*, directory: Path, url: str, runs: int, steps: int, warm_up: int) -> dict[str, float]:
    """Time one async worker that executes many tasks at once; it has one connection."""

    async def measured() -> dict[str, float]:
        app = AsyncAbsurd(url, queue_name=QUEUE)
        register_async(app)
        await app.spawn(TASK, {"steps": 1 + warm_up})
        await app.work_batch()
        for _ in range(runs):
            await app.spawn(TASK, {"steps": steps})
        stopwatch = Stopwatch()
        worker = asyncio.create_task(app.start_worker(concurrency=runs, poll_interval=0.01))
        await asyncio.to_thread(wait_for_all, url)
        rates = stopwatch.rates(runs * steps)
        app.stop_worker()
        await worker
        await app.close()
        return rates

    install(directory, url)
    return asyncio.run(measured())


def concurrent_connections(
    *, directory: Path, url: str, runs: int, steps: int, warm_up: int, connections: int
) -> dict[str, float]:
    """Time many workers of one process, one connection and one task at a time each."""
    install(directory, url)
    apps = [Absurd(url, queue_name=QUEUE) for _ in range(connections)]
    for app in apps:
        register(app)
    apps[0].spawn(TASK, {"steps": 1 + warm_up})
    apps[0].work_batch()
    for _ in range(runs):
        apps[0].spawn(TASK, {"steps": steps})
    threads = [threading.Thread(target=app.start_worker, kwargs={"poll_interval": 0.01}) for app in apps]
    stopwatch = Stopwatch()
    for thread in threads:
        thread.start()
    wait_for_all(url)
    rates = stopwatch.rates(runs * steps)
    for app in apps:
        app.stop_worker()
    for thread in threads:
        thread.join()
    return rates


def register(app: Absurd) -> None:
    """Tell a client of the task: so many sync steps."""

    def sequence(given: Any, context: Any) -> None:
        for _ in range(given["steps"]):
            context.step("search_flights", lambda: RESULT)

    app.register_task(TASK)(sequence)


def register_async(app: AsyncAbsurd) -> None:
    """Tell a client of the task: so many async steps."""

    async def search_flights() -> str:
        return RESULT

    async def sequence(given: Any, context: Any) -> None:
        for _ in range(given["steps"]):
            await context.step("search_flights", search_flights)

    app.register_task(TASK)(sequence)


def wait_for_all(url: str) -> None:
    """Wait until every task has completed."""
    while unfinished(url):
        time.sleep(0.02)


def unfinished(url: str) -> int:
    """Return how many tasks have not completed."""
    with psycopg.connect(url, autocommit=True) as connection:
        found = connection.execute("SELECT count(*) FROM absurd.t_default WHERE state <> 'completed'").fetchone()
    return int(found[0]) if found else 0


def install(directory: Path, url: str) -> None:
    """Make Absurd's schema and one queue, as its own command does."""
    assert directory.is_dir()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(BUNDLED_SCHEMA_SQL)
        connection.execute("SELECT absurd.create_queue(%s)", (QUEUE,))
