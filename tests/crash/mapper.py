"""A map in a process of its own: every call leaves a line in a ledger that outlives it, and may be its last."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import perdure

RUN_ID = "map"
LEDGER = Path("ledger")
COUNT = int(os.environ.get("CRASH_COUNT", "1000"))
BATCH = int(os.environ.get("CRASH_BATCH", "100"))
LANES = int(os.environ.get("CRASH_LANES", "1"))
DIES_AT = int(os.environ.get("CRASH_AT", "-1"))


def note(line: str) -> None:
    """Write one line, whole, whatever happens to this process next."""
    ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, f"{line}\n".encode())
    os.close(ledger)


def work(number: int) -> int:
    note(str(number))
    if number == DIES_AT:
        os.kill(os.getpid(), signal.SIGKILL)
    return number * 3


@perdure.step
def pure(number: int) -> int:
    return work(number)


@perdure.step
async def pure_later(number: int) -> int:
    await asyncio.sleep(0)
    return work(number)


@perdure.effect(in_flight_seconds=0)
def pay(number: int) -> int:
    note(f"{number} {perdure.current().key}")
    return number * 3


@pay.check
def was_paid(intent: perdure.Intent) -> perdure.Verdict:
    number = intent.arguments["number"]
    wanted = f"{number} {intent.key}"
    return perdure.happened(number * 3) if wanted in LEDGER.read_text().splitlines() else perdure.did_not_happen()


@perdure.agent
def walk() -> int:
    return _sum(perdure.map(pure, range(COUNT), batch=BATCH, seconds=600, concurrency=LANES))


@perdure.agent
async def walk_later() -> int:
    return _sum(await perdure.map(pure_later, range(COUNT), batch=BATCH, seconds=600, concurrency=LANES))


@perdure.agent
def payments() -> int:
    return _sum(perdure.map(pay, range(COUNT), batch=BATCH, seconds=600, concurrency=LANES))


def _sum(mapped: perdure.Mapped[int]) -> int:
    """The sum of the results, once each was seen to stand at its place."""
    for number, result in enumerate(mapped):
        assert result == number * 3, f"the result of item {number} is {result}"
    assert len(mapped) == COUNT
    return sum(mapped)


if __name__ == "__main__":
    print(perdure.run(globals()[os.environ["CRASH_AGENT"]], run_id=RUN_ID))
