"""`perdure ps`: what moves and what needs somebody, each with the next command."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Annotated, Final

import click
import msgspec
from msgspec import Meta, Struct

from perdure.cli.census import Census, Tally
from perdure.cli.contract import RunObject, run_object
from perdure.cli.damage import Damage, damage_lines
from perdure.cli.options import command, json_option, looking, store_option
from perdure.cli.paging import Page, page_of, page_options, refuse_beyond
from perdure.cli.rows import COLOURS, called, cost_words, last_progress, short_age, short_agent, state_words, step_words
from perdure.cli.screen import bold, columns, dim, print_json, room, say
from perdure.cli.status import status_of
from perdure.cli.table import Column, Row, laid_out
from perdure.cli.watch import Sight, watch
from perdure.records import RunState
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.records import Run
    from perdure.status import Status
    from perdure.store.protocol import Store

_COLUMNS: Final = (
    Column("RUN", least=14),
    Column("AGENT", least=8, short=short_agent),
    Column("STATE", least=17),
    Column("STEP", right=True),
    Column("AGE", right=True),
    Column("PROGRESS", right=True),
    Column("COST", right=True),
)
_STATE: Final = 2
_COST: Final = 6
_TOLD: Final = (
    RunState.RUNNING,
    RunState.QUEUED,
    RunState.WAITING,
    RunState.FAILED,
    RunState.COMPLETED,
    RunState.CANCELLED,
)


class Processes(Struct, frozen=True):
    """What moves and what needs somebody."""

    store: Annotated[str, Meta(description="where the runs are kept")]
    runs: Annotated[list[RunObject], Meta(description="this page of them, what needs a person first")]
    total: Annotated[int, Meta(description="how many there are on all pages")]
    page: Annotated[int, Meta(description="the number of this page")]
    pages: Annotated[int, Meta(description="how many pages there are")]
    states: Annotated[dict[str, int], Meta(description="how many runs of the store are in each state")]
    reasons: Annotated[dict[str, int], Meta(description="how many of the waiting ones wait for each reason")]
    moved: Annotated[int, Meta(description="how many went to another store unfinished; they are in no other count")]
    damaged: Annotated[list[Damage], Meta(description="what is not whole; only looked for once damage is met")]


@click.command()
@click.option("--all", "-a", "finished", is_flag=True, help="Also runs that are over.")
@click.option("--watch", "-w", "watching", is_flag=True, help="Look again every second, until Ctrl-C.")
@page_options
@json_option(Processes)
@store_option
def ps(*, finished: bool, watching: bool, page: int, limit: int, as_json: bool) -> None:
    """Show what is unfinished: where each run stands, who holds it, and the next command.

    What needs a person comes first. With --watch on a pipe, and with --json, a new table (or a line of JSON) follows
    each change.
    """
    asked = page_of(page, limit=limit, everything=False)
    with looking() as store:
        if watching:
            watch(lambda: _sight(store, asked, finished=finished))
            return
        seen = _sight(store, asked, finished=finished)
    if as_json:
        print_json(seen.object)
        return
    for line in seen.lines:
        say(line)


def _sight(store: Store, page: Page, *, finished: bool) -> Sight:
    """What there is to see now."""
    census = Census(store)
    listed = census.in_order_of_need(finished=finished, limit=page.size, skip=page.skip)
    runs = [(run, status_of(store, run)) for run in listed]
    tally = census.tally()
    total = tally.everything if finished else tally.unfinished
    refuse_beyond(page, total=total, first=_page_command(page, 1, finished=finished))
    seen = Processes(
        store=store.location,
        runs=[run_object(run, status) for run, status in runs],
        total=total,
        page=page.number,
        pages=page.count(total),
        states=tally.states,
        reasons=tally.reasons,
        moved=tally.moved,
        damaged=census.damaged,
    )
    lines = list(_lines(seen, runs, page, finished=finished))
    return Sight(lines, seen, sign=msgspec.json.encode(seen).decode())


def _lines(seen: Processes, runs: list[tuple[Run, Status]], page: Page, *, finished: bool) -> Iterator[str]:
    if runs:
        yield from _table(runs)
    yield from damage_lines(seen.damaged)
    if left := page.left(seen.total):
        yield dim(f"… and {left:,} more: {_page_command(page, page.number + 1, finished=finished)}")
    summary = _summary(seen, Tally(seen.states, seen.reasons, seen.moved), finished=finished)
    yield from (map(dim, textwrap.wrap(summary, columns(), subsequent_indent="  ")) if runs else [summary])


def _table(runs: list[tuple[Run, Status]]) -> Iterator[str]:
    has_cost = any(run.dollars or run.tokens for run, _ in runs)
    shown = _COLUMNS if has_cost else _COLUMNS[:_COST]
    rows = [_row(run, status, len(shown)) for run, status in runs]
    return laid_out(shown, rows, width=room())


def _row(run: Run, status: Status, count: int) -> Row:
    cells = (
        legible(called(run)),
        legible(run.agent),
        legible(state_words(status)),
        step_words(run, status.progress),
        short_age(run.created_at),
        last_progress(run),
        cost_words(dollars=run.dollars, tokens=run.tokens),
    )
    paint = {0: bold, _STATE: COLOURS.get(status.state, str)}
    return Row(cells[:count], paint, status.next)


def _summary(seen: Processes, tally: Tally, *, finished: bool) -> str:
    """How many runs there are in each state, and what to do where nothing is unfinished."""
    everything = tally.everything
    if not everything and not seen.damaged:
        return f"No runs in {seen.store} yet. {command('demo')} shows how it works."
    counts = [_counted(tally, state) for state in _TOLD if tally.states[state]]
    words = ", ".join([*counts, *([f"{tally.moved:,} moved away"] if tally.moved else [])])
    if not tally.unfinished:
        where = "" if finished else f" {command('ls')} lists them."
        return f"Nothing is unfinished in {seen.store}: {words}.{where}"
    return f"{counted(everything, 'run')}: {words}"


def _counted(tally: Tally, state: RunState) -> str:
    reasons = [f"{count:,} {reason.replace('_', ' ')}" for reason, count in tally.reasons.items() if count]
    why = f" ({', '.join(reasons)})" if state == RunState.WAITING and reasons else ""
    return f"{tally.states[state]:,} {state}{why}"


def _page_command(page: Page, number: int, *, finished: bool) -> str:
    return command("ps", *(["--all"] if finished else []), *page.words(number))
