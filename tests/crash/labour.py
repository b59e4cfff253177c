"""An agent that acknowledges each step the moment it has its value, and swallows every error an agent can swallow.

What it acknowledged must be there afterwards, whatever befell the store; no effect may follow a step that was not
saved. Its notes are files of numbers, each line a single append: `bodies` (a step's body runs), `acknowledged` (its
value was handed on), `performed` (an effect's body runs), `confirmed` (its value was handed on).
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Final

import perdure

RUN_ID: Final = "labour"
EFFECT_EVERY: Final = 20
"""After so many steps comes an effect."""


def note(file: str, line: str) -> None:
    path = Path(os.environ["CRASH_NOTES"]) / file
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)


@perdure.step
def work(number: int) -> str:
    note("bodies", str(number))
    return f"{number}:" + "x" * int(os.environ.get("CRASH_BYTES", "100"))


@perdure.effect
def announce(number: int) -> str:
    note("performed", str(number))
    return f"announced {number}"


@perdure.agent
def labour(count: int) -> int:
    for number in range(count):
        with contextlib.suppress(Exception):
            assert work(number).startswith(f"{number}:")
            note("acknowledged", str(number))
        if number % EFFECT_EVERY == EFFECT_EVERY - 1:
            with contextlib.suppress(Exception):
                announce(number)
                note("confirmed", str(number))
    return count


def main() -> None:
    print(perdure.run(labour, int(sys.argv[1]), run_id=RUN_ID))


if __name__ == "__main__":
    main()
