"""perdure with its defaults: every step fsynced before its value reaches the agent."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path

import apsw

import perdure
from benchmarks.contenders.raw import read_journal
from benchmarks.interruption import Interruption
from benchmarks.payload import RESULT, messages
from benchmarks.resident import resident_bytes
from benchmarks.spans import tenths
from benchmarks.stopwatch import Stopwatch

WARM_UP_STEPS = 20
RESUMED_RUN = "resumed"
Message = dict[str, str]
interruption = Interruption()


@perdure.step
def search_flights(_index: int) -> str:
    """Return a short result."""
    return RESULT


@perdure.step
async def search_flights_async(_index: int) -> str:
    """Return a short result."""
    return RESULT


@perdure.agent
def sequence(steps: int) -> None:
    """Take that many steps, one after another."""
    for index in range(steps):
        search_flights(index)


@perdure.agent
async def sequence_async(steps: int, _traveller: int = 0) -> None:
    """Take that many async steps, one after another."""
    for index in range(steps):
        await search_flights_async(index)


@perdure.step
def travel(_index: int) -> str:
    """Return a short result, unless this is where the process dies."""
    interruption.pass_through()
    return RESULT


@perdure.agent
def journey() -> None:
    """Travel until interrupted."""
    for index in itertools.count():
        travel(index)


def sequential(*, directory: Path, steps: int, warm_up: int) -> dict[str, float]:
    """Time one run of sync steps, from the call to its recorded end."""
    use_store(directory)
    perdure.run(sequence, 1 + warm_up)
    stopwatch = Stopwatch()
    perdure.run(sequence, steps)
    return stopwatch.rates(steps)


def sequential_async(*, directory: Path, steps: int, warm_up: int) -> dict[str, float]:
    """Time one run of async steps, from the call to its recorded end."""

    async def measured() -> dict[str, float]:
        await sequence_async(1 + warm_up)
        stopwatch = Stopwatch()
        await sequence_async(steps)
        return stopwatch.rates(steps)

    use_store(directory)
    return asyncio.run(measured())


def concurrent(*, directory: Path, runs: int, steps: int, warm_up: int) -> dict[str, float]:
    """Time many async runs at once, from the first call to the last recorded end."""

    async def measured() -> dict[str, float]:
        await sequence_async(1 + warm_up)
        stopwatch = Stopwatch()
        await asyncio.gather(*(sequence_async(steps, traveller) for traveller in range(runs)))
        return stopwatch.rates(runs * steps)

    use_store(directory)
    return asyncio.run(measured())


def conversation_whole(*, directory: Path, steps: int, warm_up: int) -> dict[str, float]:
    """Hand every step the whole conversation so far."""
    texts = messages(steps)
    marks: list[float] = []

    @perdure.step
    def answer(conversation: list[Message]) -> Message:
        return {"role": "assistant", "content": texts[len(conversation)]}

    @perdure.agent
    def converse() -> None:
        conversation: list[Message] = []
        marks.append(time.perf_counter())
        for _ in texts:
            conversation.append(answer(conversation))
            marks.append(time.perf_counter())

    use_store(directory)
    if warm_up:
        perdure.run(sequence, warm_up)
    perdure.run(converse)
    return tenths(marks)


def conversation_new(*, directory: Path, steps: int, warm_up: int) -> dict[str, float]:
    """Hand every step only the newest message; the agent keeps the conversation."""
    texts = messages(steps)
    marks: list[float] = []

    @perdure.step
    def answer(index: int, _newest: Message) -> Message:
        return {"role": "assistant", "content": texts[index]}

    @perdure.agent
    def converse() -> None:
        conversation: list[Message] = [{"role": "user", "content": texts[0]}]
        marks.append(time.perf_counter())
        for index in range(steps):
            conversation.append(answer(index, conversation[-1]))
            marks.append(time.perf_counter())

    use_store(directory)
    if warm_up:
        perdure.run(sequence, warm_up)
    perdure.run(converse)
    return tenths(marks)


def interrupt(*, directory: Path, steps: int) -> None:
    """Leave a run of that many completed steps behind, killed inside the next one."""
    interruption.kill_after(steps)
    use_store(directory)
    perdure.run(journey, run_id=RESUMED_RUN)


def resume(*, directory: Path, steps: int) -> None:
    """Time a new process from `perdure.run` to the first fresh step, and the raw read of the same rows before it.

    A first connection, kept open, has recovered the WAL of the killed process for both of them.
    """
    database = database_in(directory)
    recovered = apsw.Connection(str(database))
    recovered.pragma("user_version")
    raw_seconds, rows = read_journal(database, run_id=RESUMED_RUN)
    assert rows >= steps, f"{rows} rows are fewer than {steps} steps"
    use_store(directory)
    interruption.measure_resume(raw_ms=raw_seconds * 1000, rows=rows)
    perdure.run(journey, run_id=RESUMED_RUN)


def memory(*, directory: Path, first_step: int, last_step: int) -> dict[str, float]:
    """Report what a live run holds per completed step, and the process before it."""
    held: list[int] = []

    @perdure.agent
    def wander() -> None:
        for index in range(last_step):
            search_flights(index)
            if index + 1 == first_step:
                held.append(resident_bytes())
        held.append(resident_bytes())

    use_store(directory)
    perdure.run(sequence, WARM_UP_STEPS)
    at_rest = resident_bytes()
    perdure.run(wander)
    return {"at_rest": at_rest, "per_1000": (held[1] - held[0]) / (last_step - first_step) * 1000}


@perdure.agent
def mapping(items: int, batch: int) -> int:
    """Map the same step over that many items."""
    return len(perdure.map(search_flights, range(items), batch=batch))


@perdure.agent
async def mapping_async(items: int, batch: int) -> int:
    """Map the same async step over that many items."""
    return len(await perdure.map(search_flights_async, range(items), batch=batch))


def mapped(*, directory: Path, steps: int, warm_up: int, batch: int, is_async: bool = False) -> dict[str, float]:
    """Time one map, from the call to the recorded end of its run."""
    agent = mapping_async if is_async else mapping
    use_store(directory)
    perdure.run(sequence, 1 + warm_up)
    stopwatch = Stopwatch()
    assert perdure.run(agent, steps, batch) == steps
    return stopwatch.rates(steps)


def mapped_memory(*, directory: Path, first_item: int, last_item: int, batch: int) -> dict[str, float]:
    """Report what a map holds more at a late item than at an early one."""
    held: list[int] = []

    @perdure.step
    def search(index: int) -> str:
        if index + 1 in {first_item, last_item}:
            held.append(resident_bytes())
        return RESULT

    @perdure.agent
    def wander() -> int:
        return sum(1 for _ in perdure.map(search, iter(range(last_item)), batch=batch))

    use_store(directory)
    assert perdure.run(wander) == last_item
    return {"growth": held[1] - held[0], "after_reading": resident_bytes() - held[0]}


def use_store(directory: Path) -> None:
    """Keep the journal in this trial's directory."""
    perdure.configure(store=str(database_in(directory)))


def database_in(directory: Path) -> Path:
    """Return the path of the SQLite file."""
    return directory / "perdure.db"
