"""`perdure ls`: the runs there are, newest first, narrowed by what is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import click
from msgspec import Meta, Struct

from perdure.cli.census import Census
from perdure.cli.contract import RunObject, run_object
from perdure.cli.damage import Damage, damage_lines
from perdure.cli.filters import Filters, filter_options
from perdure.cli.options import command, json_option, looking, store_option
from perdure.cli.paging import page_of, page_options, refuse_beyond
from perdure.cli.rows import (
    COLOURS,
    called,
    cost_words,
    first_cause,
    place_words,
    progress_words,
    short_age,
    short_agent,
)
from perdure.cli.screen import bold, dim, print_json, room, say
from perdure.cli.status import status_of
from perdure.cli.table import Column, Row, command_lines, laid_out
from perdure.records import FINISHED
from perdure.status import tags_of
from perdure.store.protocol import Which
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.records import Run
    from perdure.status import Status

_COLUMNS: Final = (
    Column("RUN", least=14),
    Column("AGENT", least=8, short=short_agent),
    Column("STATE", least=17),
    Column("STEPS", right=True),
    Column("AGE", right=True),
    Column("COST", right=True),
)
_STATE: Final = 2
_COST: Final = 5
_LINE_CHARACTERS: Final = 240


class Runs(Struct, frozen=True):
    """Runs, newest first."""

    store: Annotated[str, Meta(description="where the runs are kept")]
    runs: Annotated[list[RunObject], Meta(description="this page of them, newest first")]
    damaged: Annotated[list[Damage], Meta(description="what is not whole; only looked for once damage is met")]
    total: Annotated[int, Meta(description="how many there are on all pages")]
    page: Annotated[int, Meta(description="the number of this page")]
    pages: Annotated[int, Meta(description="how many pages there are")]


@click.command()
@filter_options
@click.option("--all", "everything", is_flag=True, help="Every run on one page.")
@page_options
@json_option(Runs)
@store_option
def ls(*, everything: bool, page: int, limit: int, as_json: bool, **typed: Any) -> None:  # noqa: ANN401 - click's
    """List runs, newest first; every option narrows the list further.

    A state or a reason may be given more than once: then any of them counts.
    """
    filters, asked = Filters(**typed), page_of(page, limit=limit, everything=everything)
    with looking() as store:
        census = Census(store)
        found = census.find(filters.which, limit=asked.size, skip=asked.skip)
        total = census.count(filters.which)
        refuse_beyond(asked, total=total, first=command("ls", *filters.words, *asked.words(1)))
        listed = [(run, status_of(store, run)) for run in found]
        is_empty = not total and not census.count(Which())
    if as_json:
        objects = [run_object(run, status) for run, status in listed]
        print_json(Runs(store.location, objects, census.damaged, total, asked.number, asked.count(total)))
        return
    if not found and not census.damaged:
        say(_nothing(store.location, filters, is_empty=is_empty))
        return
    for line in _lines(listed, census.damaged):
        say(line)
    if left := asked.left(total):
        following = command("ls", *filters.words, *asked.words(asked.number + 1))
        say(dim(f"… and {left:,} older: {following}"))


def _nothing(location: str, filters: Filters, *, is_empty: bool) -> str:
    if is_empty:
        return f"No runs in {location} yet. {command('demo')} shows how it works."
    wanted = " ".join(filters.words).replace("--", "")
    return f"No run in {location} has {legible(wanted)}. {command('ls')} lists them all."


def _lines(listed: list[tuple[Run, Status]], damaged: list[Damage]) -> Iterator[str]:
    has_cost = any(run.dollars or run.tokens for run, _ in listed)
    shown = _COLUMNS if has_cost else _COLUMNS[:_COST]
    rows = [_row(run, status, len(shown)) for run, status in listed]
    heading, *lines = laid_out(shown, rows, width=room())
    yield heading
    for line, (run, status) in zip(lines, listed, strict=True):
        yield line
        yield from _below(run, status)
    yield from damage_lines(damaged)


def _row(run: Run, status: Status, count: int) -> Row:
    cells = (
        legible(called(run)),
        legible(run.agent),
        status.words,
        f"{run.steps}",
        short_age(run.created_at),
        cost_words(dollars=run.dollars, tokens=run.tokens),
    )
    return Row(cells[:count], {0: bold, _STATE: COLOURS.get(status.state, str)})


def _below(run: Run, status: Status) -> Iterator[str]:
    """How far it says it is and its tags, why it is where it is, and the next command."""
    if facts := facts_words(run, status):
        yield f"  {facts}"
    if status.cause:
        yield f"  {dim(legible(first_cause(run, status), _LINE_CHARACTERS))}"
    if status.next:
        yield from command_lines(status.next, width=room())


def facts_words(run: Run, status: Status) -> str:
    """How far the agent says it is, where the run stands among others, and its tags."""
    progress = f"progress {progress_words(status.progress)}" if status.progress else ""
    tags = " ".join(f"{name}={value}" for name, value in tags_of(run).items())
    pinned = f"pinned to version {run.version}" if run.version and run.state not in FINISHED else ""
    return legible("   ".join(filter(None, (progress, *place_words(run), pinned, tags))), _LINE_CHARACTERS)
