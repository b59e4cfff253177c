"""Agents that are executed twice: the first execution fails at its very end, the second replays what is on record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import perdure

RUN_ID = "again"


class Halfway(RuntimeError):
    """The first execution has come to its end."""


class Replayed:
    """Counts executions of an agent: it calls `end` last, and comes beyond that only when it is executed again."""

    def __init__(self) -> None:
        self.executions = 0

    def end(self) -> None:
        self.executions += 1
        if self.executions == 1:
            raise Halfway


def run_twice(agent: Callable[..., Any], *arguments: Any) -> Any:
    """What the second execution comes to."""
    try:
        perdure.run(agent, *arguments, run_id=RUN_ID)
    except Halfway:
        return perdure.run(agent, *arguments, run_id=RUN_ID)
    raise AssertionError("the agent did not call end()")
