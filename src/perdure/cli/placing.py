"""`--queue`, `--priority`, `--tenant`, `--delay`: where a run waits for a worker, and before whom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from perdure.policy import seconds_of
from perdure.queues import Placement, placed

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")


def placement_options(command: F) -> F:
    """The options of a command that leaves a run to workers."""
    for option in (
        click.option("--delay", metavar="TIME", help="Begin no sooner than after this: 90s, 30m, 2h, 3d."),
        click.option("--tenant", metavar="NAME", help="For whom it is; tenants of a queue take turns."),
        click.option("--priority", metavar="N", type=int, help="Runs of a higher number go first. [0]"),
        click.option("--queue", metavar="NAME", help="Where it waits for a worker: its agent's queue, or default."),
    ):
        command = option(command)
    return command


def placement_of(*, queue: str | None, priority: int | None, tenant: str | None, delay: str | None) -> Placement | None:
    """What was typed; None where nothing was."""
    seconds = None if delay is None else seconds_of(delay, what="--delay")
    return placed(queue, priority, tenant, seconds)
