"""The process of a demo: it runs a scenario's agent, tells standard output what happens, and dies where it should."""

from __future__ import annotations

import contextlib
import importlib
import sys

import perdure
from perdure import events
from perdure.demo import stage


def main(scenario: str, death: str, pace: float, *arguments: str) -> None:
    """Run this scenario's part in this process, until it kills itself or ends."""
    stage.death, stage.pace = death, pace
    perdure.configure(quiet=True)
    events.subscribe(stage.tell)
    with contextlib.suppress(KeyboardInterrupt):
        importlib.import_module(f"perdure.demo.{scenario}").play(*arguments)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]), *sys.argv[4:])
