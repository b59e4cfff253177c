"""`perdure show`: what happened in a run, as a tree; why it stopped, and the next command."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click
from msgspec import Meta, Raw, Struct

from perdure.cli.contract import RunObject, run_object
from perdure.cli.ending import result_of, tell_end
from perdure.cli.head import tell_head
from perdure.cli.kin import Kin
from perdure.cli.options import NEWEST, commands, json_option, looking, run_argument, store_option
from perdure.cli.question import SHORT_LINES, tell_question
from perdure.cli.runs import find_run
from perdure.cli.screen import dim, print_json, say
from perdure.cli.status import status_of
from perdure.cli.telling import leaf_lines, offset
from perdure.cli.timeline import Moment, Teller, referred_runs
from perdure.cli.tree import tree
from perdure.cli.window import SHOWN, Window, newest_window, step_number, window_from, worth_telling
from perdure.errors import UsageError
from perdure.records import FINISHED, Kind
from perdure.replay import Journal
from perdure.status import known_deaths, open_effects, open_waits, parent_of
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from perdure.records import Record, Run
    from perdure.status import Status
    from perdure.store.protocol import Store


class DoubtObject(Struct, frozen=True):
    """An effect in doubt."""

    number: Annotated[int, Meta(description="the number of the step")]
    key: Annotated[str, Meta(description="the key of the step")]
    name: Annotated[str, Meta(description="its name")]
    attempt: Annotated[int, Meta(description="which attempt is in doubt")]
    call: Annotated[str, Meta(description="the call, as a person would write it")]
    why: Annotated[str, Meta(description="why it is in doubt")]


class Shown(Struct, frozen=True):
    """A run and everything that happened in it."""

    store: Annotated[str, Meta(description="where the run is kept")]
    run: Annotated[RunObject, Meta(description="the run")]
    timeline: Annotated[list[Moment], Meta(description="what happened, oldest first; with --from, a part of it")]
    in_doubt: Annotated[list[DoubtObject], Meta(description="its effects in doubt, oldest first")]
    total: Annotated[int, Meta(description="how many moments the whole timeline has")]
    parent: Annotated[str, Meta(description="the id of the run that started it; empty where none did")]
    result: Annotated[Raw, Meta(description="what it returned, as JSON; null where it has not")]


class Told(Struct, frozen=True):
    """What is known of the run that is shown."""

    store: Store
    run: Run
    records: list[Record]
    teller: Teller
    status: Status

    @property
    def journal(self) -> Journal:
        """Its journal."""
        return self.teller.journal


@click.command()
@run_argument(required=False)
@click.option("--all", "everything", is_flag=True, help="The whole timeline of a long run.")
@click.option("--from", "from_step", metavar="STEP", help="The timeline from this step on.")
@click.option("--checkpoint", "as_checkpoint", is_flag=True, help="Everything needed to act on RUN, as JSON.")
@click.option("--at", "at_step", metavar="STEP", help="With --checkpoint: as it was after that many completed steps.")
@json_option(Shown)
@store_option
def show(
    run: str | None,
    *,
    everything: bool,
    from_step: str | None,
    as_checkpoint: bool,
    at_step: str | None,
    as_json: bool,
) -> None:
    """Tell what happened in RUN, why it stopped and what to do next; without RUN, in the last run.

    Steps stand below the task, thread, agent or map they belong to. `perdure step RUN N` tells all of one step.
    """
    if at_step is not None and not as_checkpoint:
        problem, hint = "--at belongs to --checkpoint.", "perdure show RUN --checkpoint --at STEP"
        raise UsageError(problem, safe="nothing was changed.", hint=hint)
    at_hint = "--at 0 is the beginning, --at 1 after the first completed step"
    with looking() as store:
        found = find_run(store, NEWEST if run is None else run)
        if as_checkpoint:
            from perdure.checkpoint import document  # slow to load, and seldom asked for

            at = step_number(at_step, of="--at", hint=at_hint)
            print_json(document(store, found, commands=commands(), at_step=at))
            return
        told = _read(store, found)
        start = step_number(from_step, of="--from", hint="--from 1 is the beginning")
        if as_json:
            print_json(_object(told, start))
        else:
            _tell(told, _window(told, start, everything=everything))


def _read(store: Store, run: Run) -> Told:
    """The run and its journal as of one moment, the row never older than the records."""
    records = store.load_journal(run.run_id)
    row = store.read_run(run.run_id) or run
    teller = Teller(records, Journal(records, suspects=row.suspects), deaths=known_deaths(store))
    status = status_of(store, row, records=records, journal=teller.journal)
    return Told(store, row, records, teller, status)


def _window(told: Told, start: int | None, *, everything: bool) -> Window:
    if start is not None:
        return window_from(told.records, told.teller.numbers, start)
    return Window(worth_telling(told.records)) if everything else newest_window(told.records)


def _object(told: Told, start: int | None) -> Shown:
    window = Window(told.records) if start is None else _window(told, start, everything=False)
    kin = Kin(told.store, referred_runs(window.records))
    parent = parent_of(told.store, told.journal)
    doubts = open_effects(told.store, told.run, told.journal)
    return Shown(
        store=told.store.location,
        run=run_object(told.run, told.status),
        timeline=told.teller.tell(window.records, kin.words),
        in_doubt=[DoubtObject(each.number, each.key, each.name, each.attempt, each.shown, each.why) for each in doubts],
        total=len(told.records),
        parent="" if parent is None else parent.run_id,
        result=Raw(result_of(told.store, told.records[-1]) or b"null"),
    )


def _tell(told: Told, window: Window) -> None:
    run = told.run
    tell_head(run, told.status, told.records[0], parent_of(told.store, told.journal))
    if window.earlier:
        say(dim(f"  … {counted(window.earlier, 'earlier moment')}: {_earlier(told, window)}"))
    _tell_tree(told, window)
    if window.later:
        say(dim(f"  … {counted(window.later, 'later moment')}: {_later(told, window)}"))
    if run.state not in FINISHED:
        for wait in open_waits(told.store, run, told.journal):
            if wait.opened.question is not None:
                tell_question(wait, lines=SHORT_LINES)
    for mail in told.store.read_mail(run.run_id):
        if mail.kind == "refused":
            at = offset(mail.at - run.created_at)
            what = "a verdict" if '"outcome":' in mail.body else "an answer"
            say(dim(f"     {at:>7}  · {what} by {legible(mail.by)} came second or too late, and was not used"))
    tell_end(told.store, run, told.status, told.records[-1])


def _tell_tree(told: Told, window: Window) -> None:
    kin = Kin(told.store, referred_runs(window.records))
    names = {key: told.journal.entries[key].name for key in told.journal.batches}
    digits = len(str(len(told.teller.numbers)))
    moments = told.teller.tell(window.records, kin.words)
    # Where the end of the page tells why the run stopped, its last record need not.
    last = moments[-1] if moments and told.status.cause and moments[-1].record == Kind.ENDED else None
    for leaf in tree(moments, names):
        if leaf.what != last:
            for line in leaf_lines(leaf, run=told.run, digits=digits):
                say(line)
        if isinstance(leaf.what, Moment) and leaf.what.child:
            for line in kin.lines(leaf.what.child, depth=leaf.depth + 1):
                say(line)


def _earlier(told: Told, window: Window) -> str:
    """How to see what comes before."""
    name = commands().among(told.store).named(told.run)
    first = next((told.teller.numbers[each.key] for each in window.records if each.key in told.teller.numbers), 1)
    return f"{commands()('show', name, '--all')}, or --from {max(1, first - SHOWN)}"


def _later(told: Told, window: Window) -> str:
    name = commands().among(told.store).named(told.run)
    shown = [told.teller.numbers[each.key] for each in window.records if each.key in told.teller.numbers]
    return commands()("show", name, "--from", str(max(shown) + 1))
