"""Agents that a judge can wrong easily: they wait, restart, vary, forget, or are killed in the middle of a body."""

from __future__ import annotations

from pathlib import Path

import perdure
from perdure.testing.crash.trap import trap

SEEN: list[int] = []
"""What this process remembers, and the next one does not."""


@perdure.step
def look(number: int) -> int:
    return number


@perdure.effect(keyed=True)
def pay(number: int) -> int:
    return number


@perdure.agent
def asking(number: int) -> int:
    look(number)
    perdure.ask("Shall I?", options=["yes"])
    return pay(number)


@perdure.agent
def restarting(number: int) -> int:
    look(number)
    if number < 3:
        perdure.restart_with(number + 1)
    return pay(number)


@perdure.effect(in_flight_seconds=0)
def mail(to: str) -> str:
    with Path("ledger.txt").open("a") as ledger:
        ledger.write(f"{perdure.current().key}\n")
    trap.reach(("halfway", "inside", ""))
    return f"mailed {to}"


@mail.check
def was_mailed(intent: perdure.Intent) -> perdure.Verdict:
    ledger = Path("ledger.txt")
    is_there = ledger.exists() and intent.key in ledger.read_text().split()
    return perdure.happened("mailed ada") if is_there else perdure.did_not_happen()


@perdure.agent
def mailing() -> str:
    return mail("ada")


@perdure.effect(in_flight_seconds=0)
def boast(to: str) -> str:
    return f"mailed {to}"


@boast.check
def was_boasted(intent: perdure.Intent) -> perdure.Verdict:
    return perdure.happened(f"mailed {intent.arguments['to']}")


@perdure.agent
def boasting() -> str:
    return boast("ada")


@perdure.step
def flip() -> str:
    """The first body of a trial gives one value, every other one another."""
    thrown = Path("thrown")
    if thrown.exists():
        return "tails"
    thrown.touch()
    return "heads"


@perdure.agent
def game() -> str:
    return f"{flip()} {pay(1)}"


@perdure.step
def remember(number: int) -> int:
    SEEN.append(number)
    return number


@perdure.agent
def forgetful() -> dict[str, str]:
    remember(1)
    remember(2)
    return {"total": str(sum(SEEN)), "at": perdure.now().isoformat()}


@perdure.agent
def misled() -> int:
    remember(1)
    remember(2)
    return look(sum(SEEN))


@perdure.agent
def dated() -> str:
    return f"{look(1)} at {perdure.now().isoformat()}"
