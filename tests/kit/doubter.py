"""Agents that a judge can wrong easily: they wait, restart, vary, forget, fail, or are killed in mid-body."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import perdure
from perdure import clock
from perdure.testing.crash.oracle import OUTSIDE
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


@perdure.effect
def announce(text: str) -> str:
    """Says nothing of what it was given."""
    return "announced"


@perdure.agent
def oblivious() -> str:
    """What it announces is what this process remembers."""
    remember(1)
    remember(2)
    return announce(f"seen {SEEN}")


@perdure.agent
def verbose() -> str:
    """What it announces differs only after more than anybody reads."""
    remember(1)
    remember(2)
    return announce(f"{'so ' * 500}seen {SEEN}")


@perdure.agent
def seasonal() -> str:
    """Announces one thing in both uncrashed runs, and another ever after."""
    look(1)
    return announce("spring" if trial_number() < 3 else "summer")


@perdure.agent
def dated() -> str:
    return f"{look(1)} at {perdure.now().isoformat()}"


@perdure.effect(keyed=True)
def deliver(pages: int) -> str:
    """Its receipt is larger than everything that was recorded before, and cannot be made smaller."""
    return "".join(hashlib.sha256(str(page).encode()).hexdigest() for page in range(pages))


@perdure.agent
def wordy() -> int:
    look(1)
    perdure.ask("Shall I?", options=["yes"])
    return len(deliver(16_000))


def trial_number() -> int:
    """Which trial this process belongs to; the two uncrashed runs are the first."""
    return int(os.environ[OUTSIDE].split("/")[-2])


@perdure.effect
def blurt(number: int) -> int:
    return number


@perdure.agent
def fickle() -> int:
    """Goes another way from one run to the next, whatever is done to it."""
    said = blurt(2)
    if trial_number() % 2:
        look(1)
    return said


@perdure.agent
def moody() -> int:
    """Goes one way in both uncrashed runs, and another ever after."""
    paid = pay(2)
    if trial_number() > 2:
        look(1)
    return paid


@perdure.agent
def refused(number: int) -> int:
    blurt(number)
    raise ValueError(f"no {number}")


@perdure.step
def stumble(number: int) -> int:
    raise OSError(f"broken {number}")


@perdure.agent
def muttering(number: int) -> None:
    """Fails each time with other words."""
    blurt(number)
    raise ValueError(f"no {os.getpid()}")


@perdure.agent
def stumbling(number: int) -> int:
    blurt(number)
    return stumble(number)


@perdure.agent
def sulking(number: int) -> int:
    """Fails otherwise once it was killed."""
    blurt(number)
    raise ValueError("no" if trial_number() < 3 else "never")


@perdure.agent(durability="process")
def hasty() -> int:
    total = look(1) + look(2)
    pay(total)
    return total + look(3) + look(4)


@perdure.step
def note(number: int) -> int:
    with Path("notes.txt").open("a") as notes:
        notes.write(f"note {number}\n")
    return number


@perdure.step
def write(number: int) -> int:
    Path("out").mkdir(exist_ok=True)
    Path(f"out/{number}.txt").write_text(f"page {number}\n")
    return number


@perdure.agent
def noting() -> int:
    return write(note(1)) + note(2)


@perdure.step
def stamp() -> int:
    Path("out").mkdir(exist_ok=True)
    Path("out/stamp.txt").write_text(f"trial {trial_number()}\n")
    return 1


@perdure.agent
def stamping() -> int:
    return write(1) + stamp()


@perdure.step
def leave() -> int:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    return 1


@perdure.agent
def leaving() -> int:
    return leave() + look(1)


@perdure.agent
def offspring(number: int) -> int:
    return look(number)


@perdure.agent
def middle(number: int) -> int:
    handles = [perdure.start(offspring, each) for each in range(number)]
    return sum(handle.result() for handle in handles)


@perdure.step
def linger(number: int) -> int:
    """Lasts until its parent has left its run to whoever answers it; not for ever, for a later parent need not wait."""
    until = clock.elapsed_seconds() + 1.0
    passed = trap._occurrences  # noqa: SLF001 - a moment that this process sees nowhere else
    while not passed["record_ended", "after", ""] and clock.elapsed_seconds() < until:
        clock.sleep(0.01)
    return number


@perdure.agent
def lingering(number: int) -> int:
    return look(linger(number))


@perdure.agent
def sending(number: int) -> int:
    """Waits for a person while its child is under way."""
    child = perdure.start(lingering, number)
    perdure.ask("Shall I?", options=["yes"])
    return child.result() + look(number)


@perdure.agent
def limited(number: int) -> int:
    """Pays if somebody says so within eight hours."""
    look(number)
    answer = perdure.ask("Shall I?", options=["yes", "no"], timeout="8h", default="no")
    return pay(number) if answer.choice == "yes" else 0


@perdure.agent
def expecting(number: int) -> int:
    """Fails if nothing comes within eight hours."""
    look(number)
    perdure.wait_for("parcel", timeout="8h")
    return pay(number)


@perdure.agent(deadline="8h")
def pressed(number: int) -> int:
    look(number)
    return pay(number)
