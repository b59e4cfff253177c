"""A run whose effects can be taken back, and the commands that fork it and undo it, in a process that may be killed."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Final

import perdure
from perdure import cli
from tests.crash import killer

RUN_ID: Final = "trip"
LEDGER: Final = Path("ledger")
PLACES: Final = ("flight", "hotel", "car", "meal")


def note(line: str) -> None:
    """Write one line, whole, whatever happens to this process next."""
    ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, f"{line}\n".encode())
    os.close(ledger)


def noted(line: str) -> bool:
    return LEDGER.exists() and line in LEDGER.read_text().splitlines()


def cancel(result: str, what: str) -> str:
    """Take a booking back; nobody can tell from here whether that was done."""
    killer.moment("unsent", f"cancel:{what}")
    note(f"cancel {what} {result}")
    killer.moment("sent", f"cancel:{what}")
    return f"cancelled {what}"


@perdure.effect(in_flight_seconds=0)
def release(result: str, what: str) -> str:
    """Take a reservation back; there is a way to look."""
    killer.moment("unsent", f"release:{what}")
    note(f"release {what} {perdure.current().key}")
    killer.moment("sent", f"release:{what}")
    return f"released {what}"


@release.check
def was_released(intent: perdure.Intent) -> perdure.Verdict:
    what = intent.arguments["what"]
    return perdure.happened(f"released {what}") if noted(f"release {what} {intent.key}") else perdure.did_not_happen()


@perdure.effect(undo=cancel)
def book(what: str) -> str:
    note(f"book {what}")
    return f"id of {what}"


@perdure.effect(undo=release)
def reserve(what: str) -> str:
    note(f"reserve {what}")
    return f"id of {what}"


@perdure.step
def think(about: str) -> str:
    note(f"think {about}")
    return about


@perdure.agent(name="trip")
def trip() -> str:
    state = perdure.current().state
    for number, place in enumerate(PLACES):
        think(place)
        (reserve if number % 2 else book)(place)
    return str(state.get("mood", "calm"))


def main() -> None:
    """Do what CRASH_WORDS says: the words of a command, or `go on` for the run of CRASH_RUN_ID."""
    killer.arm()
    words = os.environ["CRASH_WORDS"].split()
    if words == ["go", "on"]:
        print(perdure.run(trip, run_id=os.environ.get("CRASH_RUN_ID", RUN_ID)))
        return
    sys.exit(cli.main(words))


if __name__ == "__main__":
    main()
