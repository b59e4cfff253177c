"""Which of many runs can go on now, and why the others do not; nothing is changed, and no code is loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from perdure import clock
from perdure.cli.status import status_of
from perdure.engine.whereabouts import is_undone, previous_id
from perdure.errors import CheckpointCorrupt
from perdure.records import FINISHED, Run, RunState, WaitReason
from perdure.replay import Journal
from perdure.status import Status, is_paused, resumable
from perdure.store.protocol import EVERY, Which
from perdure.telemetry.text import age, legible

if TYPE_CHECKING:
    from collections.abc import Collection

    from perdure.store.protocol import Store


class Choice(Struct, frozen=True):
    """What becomes of one unfinished run."""

    run: Run
    status: Status
    why: str
    """Why it goes on, or why it does not."""
    goes_on: bool
    next: str = ""
    """What a person can do, where it does not go on."""
    lacks_code: bool = False
    """Whether it only needs its agent's code to be named."""


class Bounds(Struct, frozen=True):
    """Which runs are wanted."""

    max_age_seconds: float
    failed: bool = False
    agents: Collection[str] | None = None
    """The agents whose code is there; None where that is not asked."""


def choose(store: Store, bounds: Bounds) -> list[Choice]:
    """Every unfinished run, oldest first: a run is wanted once, however many of its children can go on."""
    runs = store.find_runs(Which(unfinished=True), limit=EVERY)
    due = {run.run_id for run in store.list_due(now=clock.wall_seconds(), limit=EVERY)}
    chosen: dict[str, Choice] = {}
    for run in sorted(runs, key=lambda each: each.created_at):
        choice = _judge(store, run, bounds, is_due=run.run_id in due)
        before = chosen.get(choice.run.run_id)
        if before is None or (choice.goes_on and not before.goes_on):
            chosen[choice.run.run_id] = choice
    return list(chosen.values())


def _judge(store: Store, run: Run, bounds: Bounds, *, is_due: bool) -> Choice:
    try:
        records = store.load_journal(run.run_id)
    except CheckpointCorrupt as error:
        return Choice(run, status := status_of(store, run), error.message, goes_on=False, next=status.next)
    status = status_of(store, run, records=records)
    root = resumable(store, run, Journal(records))
    refusal = _refusal(store, run, status, bounds, is_due=is_due)
    if root.run_id != run.run_id and refusal is None:
        return _with_parent(store, run, root, bounds)
    return _choice(run, status, refusal, status.cause or status.words, bounds)


def _with_parent(store: Store, run: Run, root: Run, bounds: Bounds) -> Choice:
    """A child that can go on does so with the run that waits for it."""
    status = status_of(store, root)
    waits_for_child = root.state == RunState.WAITING and root.reason == WaitReason.CHILD and not is_paused(store, root)
    refusal = _refusal(store, root, status, bounds, is_due=waits_for_child)
    return _choice(root, status, refusal, f"its child {run.name} can go on", bounds)


def _choice(run: Run, status: Status, refusal: str | None, why: str, bounds: Bounds) -> Choice:
    """What becomes of a run, given why it cannot go on, if so, and why it can; last of all its code must be there."""
    if refusal is not None:
        return Choice(run, status, legible(refusal), goes_on=False, next=status.next)
    if bounds.agents is not None and run.agent not in bounds.agents:
        missing = f"the code of its agent {run.agent} was not named"
        return Choice(run, status, legible(missing), goes_on=False, next=status.next, lacks_code=True)
    return Choice(run, status, legible(why), goes_on=True)


def _refusal(store: Store, run: Run, status: Status, bounds: Bounds, *, is_due: bool) -> str | None:
    """Why this run does not go on; None where it does."""
    if status.state == RunState.RUNNING:
        return f"running, {status.cause}"
    if run.state == RunState.WAITING and not (is_due and not is_paused(store, run)):
        return status.cause or status.words
    if run.state == RunState.FAILED and (why := _why_not_failed(store, run, bounds)):
        return why
    if (earlier := store.read_run(previous_id(run.run_id))) is not None and earlier.state not in FINISHED:
        return f"goes on after {earlier.name}"
    idle_seconds = clock.wall_seconds() - run.updated_at
    if run.state != RunState.WAITING and idle_seconds > bounds.max_age_seconds:
        return f"untouched for {age(idle_seconds)}, longer than {age(bounds.max_age_seconds)}"
    return None


def _why_not_failed(store: Store, run: Run, bounds: Bounds) -> str:
    """A failed run goes on only if that was asked for, and if it is still what its caller wants."""
    newest = store.list_runs(agent=run.agent, arguments=run.arguments, limit=1)
    if is_undone(store, run):
        return "failed, and its effects were undone"
    if newest and newest[0].run_id != run.run_id:
        return f"failed, and the same call was made again since: {newest[0].name}"
    return "" if bounds.failed else "failed; --failed attempts it anew"
