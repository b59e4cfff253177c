"""`--debounce`, `--debounce-key`, `--at-most`: starts that come close together become one run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import click

from perdure.engine.debounce import Debouncing, debouncing
from perdure.errors import UsageError
from perdure.policy import seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")


def debounce_options(command: F) -> F:
    """The options of a command whose starts may become one run."""
    for option in (
        click.option("--at-most", metavar="TIME", help="Begin no later than this after the first. [10 x --debounce]"),
        click.option("--debounce-key", metavar="KEY", help="Which starts of the agent become one run. [all of them]"),
        click.option(
            "--debounce", metavar="TIME", help="Make one run of starts, begun when none came for this: 30s, 5m."
        ),
    ):
        command = option(command)
    return command


def debouncing_of(*, debounce: str | None, debounce_key: str | None, at_most: str | None) -> Debouncing | None:
    """What was typed; None where nothing was."""
    if debounce is None and (debounce_key is not None or at_most is not None):
        raise UsageError(
            "--debounce-key and --at-most say something of --debounce, which is not given.",
            safe="nothing was started.",
            hint="--debounce 30s",
        )
    quiet = None if debounce is None else seconds_of(debounce, what="--debounce")
    most = None if at_most is None else seconds_of(at_most, what="--at-most")
    return debouncing(quiet, debounce_key, most)
