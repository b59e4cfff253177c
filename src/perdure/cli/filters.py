"""Which runs `perdure ls` is asked for: options of the command line as a condition, and back as words of a command."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec import Struct

from perdure import clock
from perdure.cli.typed import tags_of
from perdure.errors import UsageError
from perdure.policy import seconds_of
from perdure.records import RunState, WaitReason
from perdure.store.protocol import Which
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

F = TypeVar("F", bound="Callable[..., Any]")


class Filters(Struct, frozen=True):
    """The options as they were typed."""

    state: tuple[str, ...] = ()
    reason: tuple[str, ...] = ()
    agent: str = ""
    tag: tuple[str, ...] = ()
    queue: str = ""
    tenant: str = ""
    since: str = ""
    until: str = ""

    @property
    def which(self) -> Which:
        """The runs that are meant."""
        return Which(
            states=self.state,
            reasons=self.reason,
            agent=self.agent,
            since_at=_instant(self.since, of="--since"),
            until_at=_instant(self.until, of="--until"),
            tags=tags_of(self.tag, safe="nothing was changed."),
            queue=self.queue,
            tenant=self.tenant,
        )

    @property
    def words(self) -> list[str]:
        """The options, to be typed again."""
        return list(self._words())

    def _words(self) -> Iterator[str]:
        for name in self.__struct_fields__:
            given = getattr(self, name)
            for value in (given,) if isinstance(given, str) else given:
                if value:
                    yield from (f"--{name}", value)


def filter_options(command: F) -> F:
    """`--state`, `--reason`, `--agent`, `--tag`, `--queue`, `--tenant`, `--since`, `--until`."""
    for option in (
        click.option(
            "--until", metavar="WHEN", default="", callback=_not_empty, help="Only runs that began before then."
        ),
        click.option(
            "--since",
            metavar="WHEN",
            default="",
            callback=_not_empty,
            help="Only runs that began then or later: 2h, 3d, a date.",
        ),
        click.option("--tenant", metavar="NAME", default="", callback=_not_empty, help="Only runs of this tenant."),
        click.option("--queue", metavar="NAME", default="", callback=_not_empty, help="Only runs of this queue."),
        click.option("--tag", metavar="NAME=VALUE", multiple=True, help="Only runs with this tag."),
        click.option(
            "--agent",
            metavar="NAME",
            default="",
            callback=_not_empty,
            help="Only runs of this agent; with or without module.",
        ),
        click.option("--reason", type=_words_of(WaitReason), multiple=True, help="Only runs waiting for this reason."),
        click.option("--state", type=_words_of(RunState), multiple=True, help="Only runs in this state."),
    ):
        command = option(command)
    return command


def _not_empty(context: click.Context, parameter: click.Parameter, value: str) -> str:
    """A filter that was typed and says nothing is a mistake: a variable that is not set, most likely."""
    was_typed = context.get_parameter_source(parameter.name or "") == click.core.ParameterSource.COMMANDLINE
    if was_typed and not value.strip():
        raise UsageError(f"{parameter.opts[0]} is empty.", safe="nothing was changed.", hint="perdure ls --help")
    return value


def _words_of(words: type[RunState | WaitReason]) -> click.Choice[str]:
    return click.Choice([word.value for word in words])


def _instant(text: str, *, of: str) -> float:
    """The time that is meant by a date, or by how long ago it was; 0 where nothing was given."""
    if not text:
        return 0.0
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        return (given if given.tzinfo else given.replace(tzinfo=UTC)).timestamp()
    try:
        return clock.wall_seconds() - seconds_of(text, what=of)
    except UsageError as error:
        raise UsageError(
            f"{of} {legible(text, 60)!r} is neither a time ago nor a date.",
            safe="nothing was changed.",
            hint=f"{of} 2h, {of} 3d, {of} 2026-11-16, or {of} 2026-11-16T08:00:00Z",
        ) from error
