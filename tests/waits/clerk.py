"""A clerk who waits for everything a run can wait for, and those who write to it; each a process that may be killed.

CLERK_ACT says who this process is: `run`, `week`, `answer CHOICE`, `signal PAYLOAD`, or `race` for one who answers and
runs at once.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import perdure
from perdure.errors import AnswerRefused
from tests.crash import killer

RUN_ID: Final = "clerk"
ACT: Final = "CLERK_ACT"
RESULT: Final = ["opened", "send", "first", "paid fare 500", "second", "closed"]


def note(file: str, line: str) -> None:
    """Something happened, and stays so whoever dies."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


@perdure.step
def plan(label: str) -> str:
    note("bodies", label)
    return label


@perdure.effect(approve=True)
def pay(what: str, cents: int) -> str:
    killer.moment("unpaid", what)
    note("ledger", f"paid {what} {cents}")
    killer.moment("paid", what)
    return f"paid {what} {cents}"


@perdure.agent
def clerk() -> list[str]:
    done = [plan("opened")]
    perdure.sleep(0.001)
    done.append(perdure.ask("Send this?", options=["send", "discard"], show=done).choice)
    done.append(str(perdure.wait_for("go")))
    done.append(pay("fare", 500))
    done.append(str(perdure.wait_for("go")))
    return [*done, plan("closed")]


@perdure.agent
def week() -> str:
    plan("opened")
    perdure.sleep("6d")
    return perdure.ask("A week later?", options=["yes", "no"]).choice + plan("closed")


def main() -> None:
    killer.arm()
    act, _, word = os.environ[ACT].partition(" ")
    if act == "answer":
        perdure.answer(RUN_ID, word, by="the test")
    elif act == "signal":
        perdure.signal(RUN_ID, "go", word)
    elif act == "race":
        _race()
    elif act == "week":
        print(perdure.run(week, run_id=RUN_ID))
    else:
        print(perdure.run(clerk, run_id=RUN_ID))


def _race() -> None:
    """Answer, then run, at the same moment as all the others; say how the answer went, even if the run is another's."""
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        perdure.answer(RUN_ID, "approve", by=str(os.getpid()))
    except AnswerRefused:
        Path(f"refused-{os.getpid()}").touch()
    else:
        Path(f"accepted-{os.getpid()}").touch()
    print(perdure.run(payer, run_id=RUN_ID))


@perdure.agent
def payer() -> str:
    plan("opened")
    return pay("fare", 500) + plan("closed")


def ask_for_approval() -> None:
    """Bring the payer to its question."""
    perdure.run(payer, run_id=RUN_ID)


if __name__ == "__main__":
    main()
