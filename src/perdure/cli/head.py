"""The head of a run's page: which run it is, where it stands, what it was asked for, what it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.bodies import read_body
from perdure.cli.ls import facts_words
from perdure.cli.rows import COLOURS
from perdure.cli.screen import bold, columns, dim, say, spread
from perdure.records import FINISHED
from perdure.status import origin_words
from perdure.telemetry.saving import money
from perdure.telemetry.text import counted, duration, legible, utc

if TYPE_CHECKING:
    from perdure.records import Record, Run
    from perdure.status import Status


def tell_head(run: Run, status: Status, first: Record, parent: Run | None) -> None:
    """The lines above a timeline."""
    state = COLOURS.get(status.state, str)(status.words)
    say(spread(f"{bold(legible(run.name))}  {legible(run.agent)}", f"{state}, {counted(run.steps, 'step')}"))
    began = utc(run.created_at)
    say(dim(f"  id {legible(run.run_id)}   started {began}"))
    if parent is not None:
        say(dim(f"  child of {legible(parent.name)} ({legible(parent.agent)})"))
    if (origin := read_body(first).forked_from) is not None:
        say(dim(f"  {legible(origin_words(origin))}"))
    if took := _took(run):
        say(dim(f"  {took}"))
    if facts := facts_words(run, status):
        say(dim(f"  {facts}"))
    arguments = bytes(read_body(first).arguments).decode()
    if arguments != "{}":
        say(dim(f"  arguments {legible(arguments, max(40, columns() - 12))}"))


def _took(run: Run) -> str:
    """How long a run took that is over, and what it spent."""
    parts = [f"took {duration(run.updated_at - run.created_at)}"] if run.state in FINISHED else []
    if run.dollars:
        parts.append(f"cost {money(run.dollars)}")
    if run.tokens:
        parts.append(counted(run.tokens, "token"))
    return "   ".join(parts)
