"""`perdure cancel`, `pause` and `unpause`: ask a run to end, to stop for a while, to go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click
from msgspec import Meta, Struct

from perdure.cli.contract import RunObject, run_object
from perdure.cli.mode import mode
from perdure.cli.options import (
    by_option,
    command,
    confirm,
    json_option,
    looking,
    run_argument,
    store_option,
    yes_option,
)
from perdure.cli.runs import current_run
from perdure.cli.screen import bold, doubtful, joined, print_json, say, say_next, tell
from perdure.cli.status import status_of
from perdure.engine import control
from perdure.engine.whereabouts import is_undone, newest
from perdure.records import FINISHED, Run, RunState
from perdure.replay import Journal
from perdure.settings import current_settings
from perdure.status import Status, is_paused, open_effects, open_waits
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.store.protocol import Store


class Asked(Struct, frozen=True):
    """What was asked of a run, and where that leaves it."""

    asked: Annotated[str, Meta(description="cancel, pause or unpause")]
    is_done: Annotated[bool, Meta(description="false where the process that holds the run does it at its next step")]
    run: Annotated[RunObject, Meta(description="the run after that")]
    in_doubt: Annotated[list[str], Meta(description="what a cancelled run leaves in doubt: it may have happened")] = []


@click.command()
@run_argument(required=True)
@yes_option
@by_option
@json_option(Asked)
@store_option
def cancel(run: str, *, sure: bool, by: str, as_json: bool) -> None:
    """End RUN for good: at its next step where a process holds it, at once where none does. Its children are told.

    What it did stands; a cancelled run is never resumed. You are asked first, or say --yes. An effect in doubt stays
    so: it is named, and `perdure show RUN` keeps naming it until somebody settles it.
    """
    found = find(run)
    doubts: list[str] = []
    if found.state not in FINISHED:
        doubts = _doubts_in(found)
        tell(f"{bold(legible(found.name))}  {legible(found.agent)}, {counted(found.steps, 'completed step')}")
        for shown in doubts:
            tell(f"  {doubtful('in doubt')}  {shown}: nobody has said whether it happened")
        leaving = f", and leave {doubts[0]} in doubt" if doubts else ""
        confirm(f"Cancel {found.name} for good{leaving}?", sure=sure)
    control.cancel(found.run_id, by=by)
    after, status = standing(found)
    is_ended = after.state == RunState.CANCELLED
    if as_json:
        print_json(Asked("cancel", is_ended, run_object(after, status), doubts))
    elif is_ended:
        say(f"{bold(legible(found.name))}  cancelled; {_what_stands(after)}")
        for shown in doubts:
            say(f"  {doubtful('in doubt')}  {shown}: it may have happened, and the same call would do it again")
        say_next(status.next or f"{command('show', found.name)} (it cannot be resumed)")
    else:
        say(joined(f"{bold(legible(found.name))}  asked to end at its next step", legible(status.cause)))
        say_next(command("show", found.name))


@click.command()
@run_argument(required=True)
@by_option
@json_option(Asked)
@store_option
def pause(run: str, *, by: str, as_json: bool) -> None:
    """Stop RUN at its next step, until somebody says `perdure unpause`; a run that waits stays so."""
    found = find(run)
    was_paused = _is_paused(found)
    if not was_paused:
        control.pause(found.run_id, by=by)
    after, status = standing(found)
    is_running = status.state == RunState.RUNNING
    if as_json:
        print_json(Asked("pause", not is_running, run_object(after, status)))
        return
    if was_paused:
        say(f"{bold(legible(found.name))}  is paused already")
    else:
        where = f"stops at its next step, {legible(status.cause)}" if is_running else "paused"
        say(f"{bold(legible(found.name))}  {where}; {counted(found.steps, 'completed step')} kept")
    say_next(command("unpause", found.name))


@click.command()
@run_argument(required=True)
@by_option
@json_option(Asked)
@store_option
def unpause(run: str, *, by: str, as_json: bool) -> None:
    """Let a paused RUN go on: where a process waits for it, or with `perdure resume`."""
    found = find(run)
    was_paused = _is_paused(found)
    if was_paused or found.state in FINISHED:
        control.unpause(found.run_id, by=by)  # which refuses one that has ended, and says why
    after, status = standing(found)
    if as_json:
        print_json(Asked("unpause", is_done=True, run=run_object(after, status)))
        return
    say(f"{bold(legible(found.name))}  {'may go on' if was_paused else 'is not paused'}")
    tell_next(status)


def _doubts_in(run: Run) -> list[str]:
    """The effects in doubt that would be left so: of a run that nobody holds, and of the runs that it waits for."""
    with looking() as store:
        return list(_unsettled(store, run))


def _unsettled(store: Store, run: Run) -> Iterator[str]:
    if store.is_running(run, stall_seconds=current_settings().stall_seconds):
        return
    journal = Journal(store.load_journal(run.run_id))
    yield from (legible(effect.shown) for effect in open_effects(store, run, journal) if effect.letter is None)
    for wait in open_waits(store, run, journal):
        child = newest(store, wait.opened.child) if wait.opened.child else None
        if child is not None and child.state not in FINISHED:
            yield from _unsettled(store, child)


def _what_stands(run: Run) -> str:
    with looking() as store:
        if is_undone(store, run):
            return "its effects were taken back before"
    return f"what its {counted(run.steps, 'completed step')} did stands"


def find(wanted: str) -> Run:
    """The run that is meant, or the one that goes on in its place."""
    with looking() as store:
        return current_run(store, wanted)


def standing(run: Run) -> tuple[Run, Status]:
    """The run as it is now, and where it stands."""
    with looking() as store:
        now = store.read_run(run.run_id) or run
        return now, status_of(store, now)


def tell_next(status: Status) -> None:
    """End with how the run goes on: by itself where a process holds it, else by the next command."""
    if mode.as_json:
        return
    if status.state == RunState.RUNNING:
        say(f"  {legible(status.cause)}: it takes this up by itself")
    elif status.next:
        say_next(status.next)


def _is_paused(run: Run) -> bool:
    with looking() as store:
        return is_paused(store, run)
