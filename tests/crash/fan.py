"""A fan-out in a process of its own: every child performs one effect, which leaves a line in a ledger that outlives it.

CRASH_AFTER: once the ledger has so many lines, the process kills itself CRASH_MOMENTS_LATER moments of its work on the
store later, whichever of its threads comes by.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

import perdure
from tests.crash import killer

RUN_ID = "fan"
LEDGER = Path("ledger")
_lock = threading.Lock()
_lines = 0
_moments = 0


@perdure.effect(in_flight_seconds=0)
def pay(number: int) -> int:
    global _lines  # noqa: PLW0603 - one process, one count
    ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, f"{number} {perdure.current().key}\n".encode())
    os.close(ledger)
    with _lock:
        _lines += 1
    return number * 3


@pay.check
def was_paid(intent: perdure.Intent) -> perdure.Verdict:
    number = intent.arguments["number"]
    found = LEDGER.read_text().splitlines() if LEDGER.exists() else []
    return perdure.happened(number * 3) if f"{number} {intent.key}" in found else perdure.did_not_happen()


@perdure.agent
def child(number: int) -> int:
    return pay(number)


@perdure.agent
async def child_async(number: int) -> int:
    await asyncio.sleep(0)
    return pay(number)


async def _result(number: int) -> int:
    return await perdure.start(child if number % 2 else child_async, number)


@perdure.agent
async def fan_out(count: int) -> list[int]:
    return list(await asyncio.gather(*map(_result, range(count))))


def _die_in_time(side: str, *whats: str) -> None:
    """One more moment of the work on the store."""
    global _moments  # noqa: PLW0603 - one process, one count
    with _lock:
        if _lines < int(os.environ["CRASH_AFTER"]):
            return
        _moments += 1
        if _moments > int(os.environ["CRASH_MOMENTS_LATER"]):
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()


def main() -> None:
    """Run the fan-out to its end, unless this process is to die before."""
    global _lines  # noqa: PLW0603 - one process, one count
    _lines = len(LEDGER.read_text().splitlines()) if LEDGER.exists() else 0
    if "CRASH_AFTER" in os.environ:
        killer.moment = _die_in_time
        killer.arm()
    print(perdure.run(fan_out, int(os.environ["CRASH_COUNT"]), run_id=RUN_ID))
