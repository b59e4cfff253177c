"""Whoever accepts the campaign's runs: each by its own id, again and again until the store has acknowledged it."""

from __future__ import annotations

import sys
import time
from typing import Final

from perdure.engine.agent import accept
from perdure.engine.lifecycle import Request
from perdure.errors import StoreError
from tests.chaos import errands
from tests.chaos.shape import run_id_of

_PAUSE_SECONDS: Final = 0.2


def main(runs: int, seconds: float) -> None:
    """Accept them, spread over so many seconds; a line for each that was acknowledged."""
    for number in range(runs):
        agent = errands.soft_errand if number % 3 == 0 else errands.errand
        while True:
            try:
                accept(agent, Request((number,), {}, run_id=run_id_of(number)))
                break
            except StoreError:
                time.sleep(_PAUSE_SECONDS)
        print(run_id_of(number), flush=True)
        time.sleep(seconds / runs)


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
