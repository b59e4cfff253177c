"""DBOS on SQLite with its defaults: rollback journal, synchronous=FULL, one pickled output per step."""

from __future__ import annotations

import asyncio
import itertools
import time
from pathlib import Path
from typing import Any

from dbos import DBOS, SetWorkflowID

from benchmarks.interruption import Interruption
from benchmarks.payload import RESULT, messages
from benchmarks.resident import resident_bytes
from benchmarks.spans import tenths
from benchmarks.stopwatch import Stopwatch

WARM_UP_STEPS = 20
RESUMED_RUN = "resumed"
POLL_SECONDS = 600.0
Message = dict[str, str]
interruption = Interruption()


def sequential(*, directory: Path, steps: int, warm_up: int) -> dict[str, float]:
    """Time one workflow of sync steps."""
    search_flights = DBOS.step(name="search_flights")(lambda _index: RESULT)

    def sequence(count: int) -> None:
        for index in range(count):
            search_flights(index)

    workflow = DBOS.workflow(name="sequence")(sequence)
    launch(directory)
    workflow(1 + warm_up)
    stopwatch = Stopwatch()
    workflow(steps)
    rates = stopwatch.rates(steps)
    DBOS.destroy()
    return rates


def concurrent(*, directory: Path, runs: int, steps: int, warm_up: int) -> dict[str, float]:
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

    launch(directory)
    rates = asyncio.run(measured())
    DBOS.destroy()
    return rates


def conversation_whole(*, directory: Path, steps: int, warm_up: int) -> dict[str, float]:
    """Hand every step the whole conversation so far; DBOS does not record a step's arguments."""
    texts = messages(steps)
    marks: list[float] = []

    def answer(conversation: list[Message]) -> Message:
        return {"role": "assistant", "content": texts[len(conversation)]}

    step = DBOS.step(name="answer")(answer)

    def converse(count: int) -> None:
        conversation: list[Message] = []
        marks.append(time.perf_counter())
        for _ in range(count):
            conversation.append(step(conversation))
            marks.append(time.perf_counter())

    workflow = DBOS.workflow(name="converse")(converse)
    launch(directory)
    if warm_up:
        workflow(min(warm_up, steps))
        marks.clear()
    workflow(steps)
    DBOS.destroy()
    return tenths(marks)


def interrupt(*, directory: Path, steps: int) -> None:
    """Leave a workflow of that many completed steps behind, killed inside the next one."""
    workflow = journey()
    interruption.kill_after(steps)
    launch(directory)
    with SetWorkflowID(RESUMED_RUN):
        workflow()


def resume(*, directory: Path, steps: int) -> None:
    """Time a new process from the launch, which recovers pending workflows, to the first fresh step."""
    journey()
    interruption.measure_resume(rows=steps)
    launch(directory)
    time.sleep(POLL_SECONDS)


def memory(*, directory: Path, first_step: int, last_step: int) -> dict[str, float]:
    """Report what a live workflow holds per completed step, and the process before it."""
    held: list[int] = []
    search_flights = DBOS.step(name="search_flights")(lambda _index: RESULT)

    def wander(count: int) -> None:
        for index in range(count):
            search_flights(index)
            if index + 1 in {first_step, last_step}:
                held.append(resident_bytes())

    workflow = DBOS.workflow(name="wander")(wander)
    launch(directory)
    workflow(WARM_UP_STEPS)
    at_rest = resident_bytes()
    workflow(last_step)
    DBOS.destroy()
    return {"at_rest": at_rest, "per_1000": (held[1] - held[0]) / (last_step - first_step) * 1000}


def journey() -> Any:
    """Return a workflow that travels until interrupted."""

    def travel(_index: int) -> str:
        interruption.pass_through()
        return RESULT

    step = DBOS.step(name="travel")(travel)

    def wander() -> None:
        for index in itertools.count():
            step(index)

    return DBOS.workflow(name="wander")(wander)


def launch(directory: Path) -> None:
    """Start DBOS without console, telemetry or conductor; it keeps everything in one SQLite file."""
    DBOS(
        config={
            "name": "benchmarks",
            "system_database_url": f"sqlite:///{directory / 'dbos.sqlite'}",
            "application_version": "1",
            "executor_id": "local",
            "log_level": "CRITICAL",
            "enable_otlp": False,
        }
    )
    DBOS.launch()
