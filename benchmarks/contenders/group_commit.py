"""The usual construction of group commit: a queue, a writer thread, and a future for every row."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread

from benchmarks.stopwatch import Stopwatch

Row = tuple[object, ...]


def measure(
    commit: Callable[[Sequence[Row]], None], row: Callable[[int, int], Row], *, runs: int, steps: int
) -> dict[str, float]:
    """Commit rows of as many tasks through one thread, which commits all that has queued up at once."""
    waiting: SimpleQueue[tuple[Row, Future[None]] | None] = SimpleQueue()

    def write() -> None:
        while (first := waiting.get()) is not None:
            batch = [first]
            while not waiting.empty() and (another := waiting.get()) is not None:
                batch.append(another)
            commit([values for values, _ in batch])
            for _, future in batch:
                future.set_result(None)

    async def task(run: int) -> None:
        for seq in range(steps):
            future: Future[None] = Future()
            waiting.put((row(run + 1, seq), future))
            await asyncio.wrap_future(future)

    async def measured() -> dict[str, float]:
        stopwatch = Stopwatch()
        await asyncio.gather(*(task(run) for run in range(runs)))
        return stopwatch.rates(runs * steps)

    writer = Thread(target=write)
    writer.start()
    rates = asyncio.run(measured())
    waiting.put(None)
    writer.join()
    return rates
