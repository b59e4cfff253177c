"""`python -m tests.chaos --minutes 10 --seed 7`: the campaign from a terminal."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.chaos.campaign import run
from tests.chaos.plan import KINDS, Terms


def main() -> int:
    asked = argparse.ArgumentParser(prog="python -m tests.chaos")
    asked.add_argument("--minutes", type=float, default=10.0)
    asked.add_argument("--seed", type=int, default=7)
    asked.add_argument("--runs", type=int, default=0, help="default: 50 for each minute")
    asked.add_argument("--workers", type=int, default=4)
    asked.add_argument("--concurrency", type=int, default=8)
    asked.add_argument("--drain", type=float, default=Terms.drain_seconds, help="seconds after the last fault")
    asked.add_argument("--kinds", default=",".join(KINDS))
    asked.add_argument("--haste", type=float, default=1.0, help="2: twice as many faults in the same time")
    asked.add_argument("--portable", action="store_true", help="without session locks and notifications")
    asked.add_argument("--source", type=Path, default=None, help="where perdure is imported from")
    given = asked.parse_args()
    terms = Terms(
        seed=given.seed,
        seconds=60 * given.minutes,
        runs=given.runs or max(1, round(50 * given.minutes)),
        workers=given.workers,
        concurrency=given.concurrency,
        drain_seconds=given.drain,
        kinds=tuple(given.kinds.split(",")),
        haste=given.haste,
        portable=given.portable,
        source=given.source or Terms.source,
    )
    outcome = run(terms, say=lambda line: print(line, flush=True))
    print("\n".join(outcome.wrong[:40]))
    return bool(outcome.wrong)


if __name__ == "__main__":
    sys.exit(main())
