"""`perdure inbox`: everything that waits for a person, oldest first, each with the command that ends the wait."""

from __future__ import annotations

import heapq
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Final

import click
from msgspec import Meta, Raw, Struct

from perdure.cli.contract import RunObject, run_object
from perdure.cli.mode import is_plain
from perdure.cli.options import command, commands, json_option, looking, store_option
from perdure.cli.paging import PAGE, Page, page_of, page_options, refuse_beyond
from perdure.cli.question import SHORT_LINES, question_of, tell_question
from perdure.cli.rows import first_cause
from perdure.cli.runs import every_run
from perdure.cli.screen import bold, dim, doubtful, print_json, say, say_next, spread
from perdure.cli.status import status_of
from perdure.errors import CheckpointCorrupt, PerdureError
from perdure.forms import approving
from perdure.records import Record, Run, RunState, WaitReason
from perdure.replay import Journal
from perdure.status import Commands, OpenWait, Status, open_effects, open_waits
from perdure.store.moving import has_left
from perdure.store.protocol import Which
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.store.protocol import Store

_WAITING: Final = Which(states=(RunState.WAITING,), reasons=(WaitReason.HUMAN, WaitReason.IN_DOUBT, WaitReason.PARKED))
_HELD: Final = Which(states=(RunState.QUEUED, RunState.RUNNING))
"""Runs that may have asked and gone on beside the question, or died."""

_NEVER_BEGUN: Final = 1
"""The length of the journal of a run that was only accepted."""


class QuestionObject(Struct, frozen=True):
    """A question that nobody has answered."""

    number: Annotated[int, Meta(description="its number among the questions of its run")]
    run_id: Annotated[str, Meta(description="the run's id")]
    name: Annotated[str, Meta(description="the run's readable name")]
    agent: Annotated[str, Meta(description="the agent's name")]
    step: Annotated[int, Meta(description="the number of the step that asks")]
    text: Annotated[str, Meta(description="what is asked")]
    options: Annotated[tuple[str, ...], Meta(description="the choices; empty for a text or a form")]
    form: Annotated[Raw, Meta(description="the JSON Schema of the answer, or null")]
    show: Annotated[Raw, Meta(description="what is shown with it")]
    assignee: Annotated[str, Meta(description="for whom it is; empty for anybody")]
    asked_at: Annotated[float, Meta(description="when it was asked")]
    due_at: Annotated[float | None, Meta(description="when its time is over, or null")]
    answer: Annotated[str, Meta(description="the command that answers it; <> and () hold what is to be chosen")]
    approve: Annotated[str, Meta(description="the command that says yes; empty where there is no plain yes")]
    reject: Annotated[str, Meta(description="the command that says no; empty where there is no plain no")]


class Inbox(Struct, frozen=True):
    """Everything that waits for a person, oldest run first."""

    store: Annotated[str, Meta(description="where the runs are kept")]
    page: Annotated[int, Meta(description="the number of this page")]
    next_page: Annotated[int, Meta(description="the page that follows; 0 where none does")]
    questions: Annotated[list[QuestionObject], Meta(description="the questions on this page")]
    others: Annotated[list[RunObject], Meta(description="runs with an effect in doubt, and parked ones, on this page")]


class Item(Struct, frozen=True):
    """A run that needs somebody."""

    run: Run
    status: Status
    waits: list[OpenWait]
    questions: list[OpenWait]
    is_stopped: bool
    """Whether something else than a question holds it up: a doubt, or a reason to park."""


@click.command()
@click.option("--all", "everything", is_flag=True, help="Every run on one page.")
@page_options
@json_option(Inbox)
@store_option
def inbox(*, everything: bool, page: int, limit: int, as_json: bool) -> None:
    """List everything that waits for a person, oldest first: questions, effects in doubt, parked runs."""
    asked = page_of(page, limit=limit, everything=everything)
    with looking() as store:
        items, has_more = _page(store, asked)
        how = commands().among(store)
        if as_json:
            questions = [_question_object(item, wait, how) for item in items for wait in item.questions]
            others = [run_object(item.run, item.status) for item in items if item.is_stopped]
            following = asked.number + 1 if has_more else 0
            print_json(Inbox(store.location, asked.number, following, questions, others))
            return
        if not items:
            say(f"Nothing in {store.location} waits for a person.")
        for item in items:
            _tell(item, how)
        if has_more:
            where = f"page {asked.number}, {store.count_runs(_WAITING):,} runs wait"
            further = command("inbox", *asked.words(asked.number + 1))
            say(spread(dim(where), f"{dim('next:')} {further}"))


def _page(store: Store, page: Page) -> tuple[list[Item], bool]:
    """The runs on this page, and whether more follow."""
    items = _items(store)
    before = sum(1 for _ in islice(items, page.skip))
    found = list(islice(items, page.size + 1))
    if not found:
        refuse_beyond(page, total=before, first=command("inbox", *page.words(1)))
    return found[: page.size], len(found) > page.size


def _items(store: Store) -> Iterator[Item]:
    """Every run that needs somebody, oldest first; journals are read as they are come to."""
    for run in heapq.merge(_oldest_first(store, _WAITING), _oldest_first(store, _HELD), key=lambda run: run.created_at):
        is_quiet = run.length <= _NEVER_BEGUN or has_left(run)
        item = None if is_quiet else _item(store, run)
        if item is not None:
            yield item


def _oldest_first(store: Store, which: Which) -> Iterator[Run]:
    """Runs, read in portions that grow: the first page is quick, and all of them are few questions to the store."""
    try:
        left, portion = store.count_runs(which), PAGE
        while left > 0:
            size = min(left, portion)
            left, portion = left - size, portion * 2
            yield from reversed(store.find_runs(which, limit=size, skip=left))
    except CheckpointCorrupt:
        runs, _ = every_run(store)
        wanted = [run for run in runs if run.state in which.states and run.reason in (which.reasons or (run.reason,))]
        yield from reversed(wanted)


def _item(store: Store, run: Run) -> Item | None:
    """What this run needs of a person; None where that is nothing."""
    records, waits, is_settled = _open(store, run)
    questions = [wait for wait in waits if wait.question_number and not wait.has_come]
    is_stopped = run.reason in (WaitReason.IN_DOUBT, WaitReason.PARKED) and not is_settled
    if not questions and not is_stopped:
        return None
    return Item(run, status_of(store, run, records=records), waits, questions, is_stopped)


def _open(store: Store, run: Run) -> tuple[list[Record] | None, list[OpenWait], bool]:
    """The journal, what it waits for, and whether every doubt in it has its verdict; a damaged one says nothing."""
    try:
        records = store.load_journal(run.run_id)
        journal = Journal(records, suspects=run.suspects)
    except PerdureError:
        return None, [], False
    effects = open_effects(store, run, journal) if run.reason == WaitReason.IN_DOUBT else []
    is_settled = bool(effects) and all(effect.letter is not None for effect in effects)
    return records, open_waits(store, run, journal), is_settled


def _tell(item: Item, how: Commands) -> None:
    run, status = item.run, item.status
    asked = counted(len(item.questions), "question")
    whose = f"{bold(legible(run.name))}  {legible(run.agent)}{f'  {run.run_id}' if is_plain() else ''}"
    say(spread(whose, doubtful(status.words) if item.is_stopped else dim(asked)))
    for wait in item.questions:
        tell_question(wait, lines=0 if is_plain() else SHORT_LINES)
        say_next(how.answer(run, wait, item.waits), margin="    ")
    if item.is_stopped:
        if status.cause:
            say(f"    {legible(first_cause(run, status))}")
        say_next(status.next, margin="    ")


def _question_object(item: Item, wait: OpenWait, how: Commands) -> QuestionObject:
    run, question = item.run, question_of(wait)
    has_yes = approving(question) is not None
    return QuestionObject(
        number=wait.question_number,
        run_id=run.run_id,
        name=run.name,
        agent=run.agent,
        step=wait.number,
        text=question.text,
        options=question.options,
        form=question.form,
        show=question.show,
        assignee=question.assignee,
        asked_at=wait.record.at,
        due_at=wait.opened.due_at or None,
        answer=how.answer(run, wait, item.waits),
        approve=how.reply("approve", run, wait, item.waits) if has_yes else "",
        reject=how.reply("reject", run, wait, item.waits) if has_yes else "",
    )
