"""DBOS on PostgreSQL with its defaults: one pickled output per step, a pool of connections."""

from __future__ import annotations

import asyncio
from pathlib import Path

from dbos import DBOS

from benchmarks.payload import RESULT
from benchmarks.stopwatch import Stopwatch


def sequential(*, directory: Path, url: str, steps: int, warm_up: int) -> dict[str, float]:
    """Time one workflow of sync steps."""
    search_flights = DBOS.step(name="search_flights")(lambda _index: RESULT)

    def sequence(count: int) -> None:
        for index in range(count):
            search_flights(index)

    workflow = DBOS.workflow(name="sequence")(sequence)
    launch(directory, url)
    workflow(1 + warm_up)
    stopwatch = Stopwatch()
    workflow(steps)
    rates = stopwatch.rates(steps)
    DBOS.destroy()
    return rates


def concurrent(*, directory: Path, url: str, runs: int, steps: int, warm_up: int) -> dict[str, float]:
    """Time many async workflows at once."""

    async def search_flights(_index: int) -> str:
        return RESULT

    step = DBOS.step(name="search_flights")(search_flights)

    async def sequence(count: int) -> None:
        for index in range(count):
            await step(index)

    workflow = DBOS.workflow(name="sequence")(sequence)

    async def measured() -> dict[str, float]:
        await workflow(1 + warm_up)
        stopwatch = Stopwatch()
        await asyncio.gather(*(workflow(steps) for _ in range(runs)))
        return stopwatch.rates(runs * steps)

    launch(directory, url)
    rates = asyncio.run(measured())
    DBOS.destroy()
    return rates


def launch(directory: Path, url: str) -> None:
    """Start DBOS without console, telemetry or conductor; it makes its own tables."""
    assert directory.is_dir()
    DBOS(
        config={
            "name": "benchmarks",
            "system_database_url": url,
            "application_version": "1",
            "executor_id": "local",
            "log_level": "CRITICAL",
            "enable_otlp": False,
        }
    )
    DBOS.launch()
