"""A store with very many runs, for those who look: `python -m benchmarks.crowd RUNS [--waiting]` in its folder."""

from __future__ import annotations

import contextlib
import sys

import perdure

LONG_STEPS = 10_000
LONG_RUN = "long"
SOME = 100
"""One of so many runs waits for a person, and one is in doubt, where not all of them wait."""


@perdure.step
def count(index: int) -> int:
    """Return at once."""
    return index


@perdure.effect
def mail(_index: int) -> str:
    """End in doubt."""
    raise TimeoutError("the server was slow to answer")


@perdure.agent
def counts(steps: int) -> int:
    """Take that many steps."""
    return sum(count(index) for index in range(steps))


@perdure.agent
def asks(steps: int) -> str:
    """Take that many steps, then wait for a person."""
    counts(steps)
    return perdure.ask("Go on?", options=["yes", "no"]).choice


@perdure.agent
def doubts(steps: int) -> str:
    """Take that many steps, then leave an effect in doubt."""
    counts(steps)
    return mail(steps)


def main() -> None:
    """Fill the store of this folder."""
    perdure.configure(quiet=True, durability="process")
    runs, everyone_waits = int(sys.argv[1]), "--waiting" in sys.argv
    perdure.run(counts, LONG_STEPS, run_id=LONG_RUN)
    for number in range(runs):
        agent = asks if everyone_waits or number % SOME == 0 else doubts if number % SOME == 1 else counts
        with contextlib.suppress(perdure.errors.PerdureError):
            perdure.run(agent, number % 5 + 1, run_id=f"run-{number}")


if __name__ == "__main__":
    main()
