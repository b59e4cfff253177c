"""The run that takes back the effects of another one: its agent is `perdure.undo`, its argument the other run's id.

Its id follows from the other's, so that asking twice means the same run: killed in the middle it goes on, and once it
has completed there is nothing more to do. Every undoing is an effect of it, with intent and receipt.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from perdure.engine.agent import AgentSpec
from perdure.engine.drive import drive, drive_async
from perdure.engine.execute import to_end, to_end_async
from perdure.engine.lifecycle import Finished, Request, enter, open_run
from perdure.engine.scope import current_frame
from perdure.engine.undo import Plan, undone
from perdure.engine.whereabouts import UNDO_AGENT, undoings_of, undone_by
from perdure.errors import RunCancelled, UsageError
from perdure.records import RunState, undo_id
from perdure.replay import Journal
from perdure.store.moving import refuse_moving

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.engine.active import Active
    from perdure.engine.session import Session
    from perdure.records import Run
    from perdure.store.protocol import Store

_ENDED: Final = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED})


def undone_run(store: Store, run: Run) -> Run:
    """The run whose effects are meant: this one, or, of a run that takes back, the other."""
    if run.agent != UNDO_AGENT:
        return run
    other = undone_by(store, run)
    if other is None:
        raise UsageError(
            f"The run that {run.name} takes back is not there any more.",
            safe="nothing was undone.",
            hint="perdure ls lists the runs there are",
        )
    return other


def refuse_unended(store: Store, run: Run, *, stall_seconds: float) -> None:
    """Only what has ended can be taken back, where it is now: a run that may go on relies on what it did."""
    refuse_moving(run)
    if store.is_running(run, stall_seconds=stall_seconds):
        raise UsageError(
            f"Run {run.name} is running.",
            safe="nothing was undone.",
            hint=f"perdure cancel {run.name}, and once it has ended: perdure undo {run.name}",
        )
    if run.state not in _ENDED:
        raise UsageError(
            f"Run {run.name} has not ended: it is {run.state}{f' ({run.reason})' if run.reason else ''}.",
            safe="nothing was undone.",
            hint=f"perdure cancel {run.name}, then: perdure undo {run.name}",
        )


def cancelled_undoings(store: Store, run: Run) -> tuple[Journal, ...]:
    """The journals of those that were to take the effects of this run back, and were cancelled."""
    cancelled = [undoing for undoing in undoings_of(store, run.run_id) if undoing.state == RunState.CANCELLED]
    return tuple(Journal(store.load_journal(undoing.run_id)) for undoing in cancelled)


def next_undo_id(store: Store, run: Run) -> str:
    """The id of the run that takes the effects of this one back now: one that was cancelled is left as it is."""
    known = undoings_of(store, run.run_id)
    is_open = bool(known) and known[-1].state != RunState.CANCELLED
    return undo_id(run.run_id, len(known) + (not is_open))


def take_back(opened: Session, plan: Plan) -> int:
    """Take the effects back as planned, or go on with that; how many were, all in all."""
    spec = _agent(opened, plan)
    active = _entered(opened, spec, plan)
    try:
        if spec.signature.is_async:
            count: int = asyncio.run(to_end_async(opened, spec, active))
        else:
            count = to_end(opened, spec, active)
    except RunCancelled as error:
        if _has_gone_on(opened, plan):
            raise UsageError(
                f"Run {plan.run.name} has gone on meanwhile.",
                safe="nothing was undone.",
                hint=f"perdure show {plan.run.name} tells where it stands now",
            ) from error
        raise
    return count


def _entered(opened: Session, spec: AgentSpec, plan: Plan) -> Active | Finished:
    """The run that takes back: a new one, or the one that began to; a parked one is named by whoever asks for this."""
    run_id = next_undo_id(opened.store, plan.run)
    known = opened.store.read_run(run_id)
    other = undone_by(opened.store, known) if known is not None else None
    if known is not None and other is not None and other.run_id == plan.run.run_id:
        return open_run(opened, spec, known, pardon=True)
    return enter(opened, spec, Request((plan.run.run_id,), {}, run_id=run_id))


def _agent(opened: Session, plan: Plan) -> AgentSpec:
    """The agent that follows this plan, async where one of the undos is."""

    def undo(run_id: str) -> int:  # noqa: ARG001 - it names the run in the first record
        active = _begun(opened, plan)
        for undoing in plan.undoings:
            drive(undone(active, undoing.spec, undoing.key, undoing.args, undoing.kwargs))
        return len(plan.undoings)

    async def undo_async(run_id: str) -> int:  # noqa: ARG001 - the same
        active = _begun(opened, plan)
        for undoing in plan.undoings:
            await drive_async(undone(active, undoing.spec, undoing.key, undoing.args, undoing.kwargs))
        return len(plan.undoings)

    is_async = any(undoing.spec.inverse(undoing.key).signature.is_async for undoing in plan.undoings)
    function: Callable[..., Any] = undo_async if is_async else undo
    plain = dict.fromkeys(("durability", "tags", "deadline", "signals", "queue", "deliveries", "schedule"))
    return AgentSpec(function, plain | {"name": UNDO_AGENT, "undo_on_failure": False})


def _begun(opened: Session, plan: Plan) -> Active:
    """The run that takes back; cancelled where the other one went on since it was looked at."""
    frame = current_frame()
    if frame is None or frame.active is None:
        raise TypeError(frame)
    if _has_gone_on(opened, plan):
        frame.active.signal = RunCancelled(f"Run {plan.run.name} has gone on meanwhile.")
        raise frame.active.signal
    return frame.active


def _has_gone_on(opened: Session, plan: Plan) -> bool:
    now = opened.store.read_run(plan.run.run_id)
    return now is None or (now.epoch, now.length) != (plan.run.epoch, plan.run.length)
