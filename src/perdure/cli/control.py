"""`perdure cancel`, `pause` and `unpause`: ask a run to end, to stop for a while, to go on."""

from __future__ import annotations

import click

from perdure.cli.options import by_option, command, looking, run_argument, store_option
from perdure.cli.runs import current_run
from perdure.cli.screen import bold, dim, joined, say
from perdure.cli.status import status_of
from perdure.engine import control
from perdure.records import FINISHED, Run, RunState
from perdure.status import is_paused
from perdure.telemetry.text import counted, legible


@click.command()
@run_argument(required=True)
@by_option
@store_option
def cancel(run: str, by: str) -> None:
    """End RUN: at its next step where a process holds it, at once where none does. Its children are told.

    What it did stands; a cancelled run is never resumed.
    """
    found = _find(run)
    control.cancel(found.run_id, by=by)
    with looking() as store:
        after = store.read_run(found.run_id) or found
        status = status_of(store, after)
    saved = counted(after.steps, "completed step")
    if after.state == RunState.CANCELLED:
        say(f"{bold(legible(found.name))}  cancelled; what its {saved} did stands")
        say(f"  {dim('next:')} {command('show', found.name)} (it cannot be resumed; fresh=True starts over)")
    else:
        say(joined(f"{bold(legible(found.name))}  asked to end at its next step", legible(status.cause)))
        say(f"  {dim('next:')} {command('show', found.name)}")


@click.command()
@run_argument(required=True)
@by_option
@store_option
def pause(run: str, by: str) -> None:
    """Stop RUN at its next step, until somebody says `perdure unpause`; a run that waits stays so."""
    found = _find(run)
    if _is_paused(found):
        say(f"{bold(legible(found.name))}  is paused already")
    else:
        control.pause(found.run_id, by=by)
        with looking() as store:
            status = status_of(store, found)
        where = f"stops at its next step, {legible(status.cause)}" if status.state == RunState.RUNNING else "paused"
        say(f"{bold(legible(found.name))}  {where}; {counted(found.steps, 'completed step')} kept")
    say(f"  {dim('next:')} {command('unpause', found.name)}")


@click.command()
@run_argument(required=True)
@by_option
@store_option
def unpause(run: str, by: str) -> None:
    """Let a paused RUN go on: where a process waits for it, or with `perdure resume`."""
    found = _find(run)
    if _is_paused(found):
        control.unpause(found.run_id, by=by)
        say(f"{bold(legible(found.name))}  may go on")
    elif found.state in FINISHED:
        control.unpause(found.run_id, by=by)  # which refuses, and says why
    else:
        say(f"{bold(legible(found.name))}  is not paused")
    tell_next(found)


def tell_next(run: Run) -> None:
    """End with how the run goes on: by itself where a process holds it, else by the next command."""
    with looking() as store:
        status = status_of(store, store.read_run(run.run_id) or run)
    if status.state == RunState.RUNNING:
        say(f"  {legible(status.cause)}: it takes this up by itself")
    else:
        say(f"  {dim('next:')} {status.next}")


def _find(wanted: str) -> Run:
    with looking() as store:
        return current_run(store, wanted)


def _is_paused(run: Run) -> bool:
    with looking() as store:
        return is_paused(store, run)
