"""Runs that a run has to do with: its parent, the one it was forked from, the one that takes its effects back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.engine.whereabouts import newest, undoing_of
from perdure.records import FINISHED, Run, RunState
from perdure.replay import Journal
from perdure.settings import current_settings
from perdure.status.commands import Commands

if TYPE_CHECKING:
    from perdure.bodies import Origin
    from perdure.store.protocol import Store


def parent_of(store: Store, journal: Journal) -> Run | None:
    """The run that started this one, or goes on in the place of that."""
    lineage = journal.started().lineage
    return newest(store, lineage[-1].run_id) if lineage else None


def origin_of(journal: Journal) -> Origin | None:
    """Where a fork comes from; None for any other run."""
    return journal.started().forked_from


def origin_words(origin: Origin) -> str:
    """The same in words."""
    return f"fork of {origin.name} at step {origin.at}"


def undone_words(store: Store, run: Run, commands: Commands) -> tuple[str, str]:
    """Whether somebody had the run's effects taken back, and the command that goes on with that; empty where nobody."""
    undoing = undoing_of(store, run.run_id)
    if undoing is None:
        return "", ""
    if undoing.state == RunState.COMPLETED:
        return f"its effects were taken back by {undoing.name}", ""
    following = commands.undo(run)
    if undoing.state == RunState.CANCELLED:
        return f"{undoing.name} was cancelled while it took its effects back", following
    is_dead = undoing.state == RunState.RUNNING and not store.is_running(
        undoing, stall_seconds=current_settings().stall_seconds
    )
    where = "its process died" if is_dead else undoing.reason.replace("_", " ") or undoing.state
    return f"{undoing.name} is to take its effects back ({where})", following


def resumable(store: Store, run: Run, journal: Journal) -> Run:
    """The run to resume so that this one goes on: the outermost of those that started it and still wait for it."""
    for entry in journal.started().lineage:
        ancestor = newest(store, entry.run_id)
        if ancestor is not None and ancestor.state not in FINISHED:
            return ancestor
    return run
