"""perdure on a server, with its defaults: every step synced there before its value reaches the agent."""

from __future__ import annotations

import asyncio
from pathlib import Path

import perdure
from benchmarks.contenders.perdure import sequence, sequence_async
from benchmarks.stopwatch import Stopwatch


def sequential(*, directory: Path, url: str, steps: int, warm_up: int) -> dict[str, float]:
    """Time one run of sync steps, from the call to its recorded end."""
    use_store(directory, url)
    perdure.run(sequence, 1 + warm_up)
    stopwatch = Stopwatch()
    perdure.run(sequence, steps)
    return stopwatch.rates(steps)


def sequential_async(*, directory: Path, url: str, steps: int, warm_up: int) -> dict[str, float]:
    """Time one run of async steps, from the call to its recorded end."""

    async def measured() -> dict[str, float]:
        await sequence_async(1 + warm_up)
        stopwatch = Stopwatch()
        await sequence_async(steps)
        return stopwatch.rates(steps)

    use_store(directory, url)
    return asyncio.run(measured())


def concurrent(*, directory: Path, url: str, runs: int, steps: int, warm_up: int) -> dict[str, float]:
    """Time many async runs at once, from the first call to the last recorded end."""

    async def measured() -> dict[str, float]:
        await sequence_async(1 + warm_up)
        stopwatch = Stopwatch()
        await asyncio.gather(*(sequence_async(steps, traveller) for traveller in range(runs)))
        return stopwatch.rates(runs * steps)

    use_store(directory, url)
    return asyncio.run(measured())


def use_store(directory: Path, url: str) -> None:
    """Keep the journal in this trial's database."""
    assert directory.is_dir()
    perdure.configure(store=url, quiet=True)
