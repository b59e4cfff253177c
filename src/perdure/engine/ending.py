"""From the outcome of an execution to a settled run: completed, failed, cancelled, stopped, or going on as another."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, TypeVar

from perdure import clock, codec, events
from perdure.bodies import Ended, Opened, read_body
from perdure.engine.active import Active, Doubtful
from perdure.engine.drive import Commit, Drained, Operation, drive
from perdure.engine.failure import describe_failure, failed_calls, message_of, passed_scopes
from perdure.engine.lifecycle import drafted, load
from perdure.engine.session import Session, heed
from perdure.engine.undo import undo_flow
from perdure.engine.whereabouts import CONTINUED, UNDONE, hand_on, newest, next_id
from perdure.errors import (
    LeaseLost,
    RunCancelled,
    RunHeld,
    RunRestarted,
    RunSuspended,
    Signal,
    StoreError,
    UnknownRun,
    UnstorableValue,
    UsageError,
)
from perdure.queues import Placement
from perdure.records import FINISHED, Kind, Mail, Run, RunState, WaitReason
from perdure.replay import Journal, left_over
from perdure.store.lease import Park, held, write_park

if TYPE_CHECKING:
    from collections.abc import Generator

    from perdure.engine.agent import AgentSpec
    from perdure.store.protocol import Store

T = TypeVar("T")


def outcome(active: Active, spec: AgentSpec, error: BaseException) -> Generator[Operation, Any, BaseException]:
    """What an exception that left the agent means for the run, written down, and what its caller sees."""
    if isinstance(error, RunRestarted) and active.signal is None:
        return (yield from _restart(active, spec, error))
    if active.signal is not None:
        stopped = yield from _stopped(active)
        from_outside = isinstance(error, (KeyboardInterrupt, SystemExit, asyncio.CancelledError))
        return error if from_outside and not active.was_interrupted else stopped
    if isinstance(error, Exception):
        return (yield from fail(active, spec, error))
    with contextlib.suppress(Signal, StoreError):  # the run stays resumable even where this cannot be written
        yield from _end(
            active, Ended(state=RunState.QUEUED, code="interrupted", message="its process was asked to stop")
        )
    return error


def settled(active: Active, flow: Generator[Operation, Any, T]) -> Generator[Operation, Any, T]:
    """Run the end of a run; a signal that arrives while it is written down becomes the error that explains it."""
    try:
        return (yield from flow)
    except RunCancelled:
        raise
    except Signal as signal:
        raise (active.stop.error if active.stop is not None else _taken_over(active)) from signal


def complete(active: Active, spec: AgentSpec, value: Any) -> Generator[Operation, Any, Any]:
    """The agent returned: record the outcome, unless something stopped the run underneath it."""
    yield Drained(active)
    if active.signal is None:
        _notice_loose_ends(active)
    if active.signal is not None:
        raise (yield from _stopped(active))
    try:
        sealed, decoded = codec.seal_faithfully(value, spec.signature.returns, what="result")
    except UnstorableValue as error:
        failure = UnstorableValue(
            f"The result of {spec.name} cannot be saved: {error.message}",
            safe=f"the {active.row.steps} completed steps of run {active.row.name} are saved.",
            hint=f"{error.hint}; then start again",
        )
        raise (yield from fail(active, spec, failure)) from None
    raw, blob, stored = active.stored_value(sealed)
    active.say_resumed()  # nothing was left to do but to return
    yield from _end(active, Ended(state=RunState.COMPLETED, value=raw, blob=blob), stored=stored)
    return decoded


def fail(active: Active, spec: AgentSpec, error: Exception) -> Generator[Operation, Any, BaseException]:
    """The agent raised: record the failure, undo if asked to, and give back what the caller should see."""
    yield Drained(active)
    if active.signal is not None:
        return (yield from _stopped(active))
    undone = False
    if spec.undo_on_failure:
        try:
            undone = (yield from undo_flow(active)) > 0
        except Signal:
            return (yield from _stopped(active))
        except Exception as second:  # noqa: BLE001 - the agent's own failure is what its caller must see
            undone = True
            error.add_note(f"perdure: not everything could be undone: {type(second).__name__}: {message_of(second)}")
    reopened = () if undone else failed_calls(active, error)
    ended = Ended(
        state=RunState.FAILED,
        failure=describe_failure(error),
        reopened=reopened,
        passed=passed_scopes(active, reopened),
        undone=undone,
        code=UNDONE if undone else "failed",
    )
    park = Park(code=ended.code, message=f"{type(error).__name__}: {message_of(error)}")
    yield from _end(active, ended, park=park)
    return error


def _notice_loose_ends(active: Active) -> None:
    """A finished program must have made every recorded call, and left no effect open."""
    for key, (name, shown) in list(active.open_effects.items()):
        active.doubt(Doubtful(key, name, shown, "it was interrupted before it was confirmed"))
    if active.doubtful:
        active.suspend()
        return
    entry = left_over(active.journal, active.unvisited)
    if entry is not None:
        active.diverge(entry.shown_call(), "(the agent returned without making this call)")


def _stopped(active: Active) -> Generator[Operation, Any, BaseException]:
    """Write down why the run stopped, where that may still be written, and build what its caller sees."""
    signal, stop = active.signal, active.stop
    if isinstance(signal, RunCancelled):
        yield from end_cancelled(active)
        return signal
    if isinstance(signal, LeaseLost) or stop is None:
        return _taken_over(active)
    error = stop.error
    park = Park(code=error.code, message=error.message, safe=error.safe, hint=error.hint)
    if stop.state is RunState.FAILED:
        _cancel_children(active)
        yield from _end(active, Ended(state=stop.state, failure=describe_failure(error), code=error.code), park=park)
    elif not isinstance(error, StoreError):
        reason = stop.reason or (WaitReason.PARKED if stop.state is RunState.WAITING else "")
        ended = Ended(state=stop.state, reason=reason, code=error.code, message=error.message, hint=error.hint)
        heard = max((mail.mail_id for mail in active.mail()), default=0) if stop.heard is None else stop.heard
        yield from _end(active, ended, park=park, taken=stop.taken, wake_at=stop.wake_at, heard=heard)
    return error


def end_cancelled(active: Active) -> Generator[Operation, Any, None]:
    """Tell the children, then record that the run was cancelled; told twice after a crash, they hear it once.

    A run that was accepted to go on in its place is told too: a process died before this one could say so.
    """
    _cancel_children(active)
    cancel_child(active.store, next_id(active.row.run_id), by=active.row.name)
    taken = tuple(mail.mail_id for mail in active.mail() if mail.kind == "cancel")
    yield from _end(active, Ended(state=RunState.CANCELLED), taken=taken)


def _cancel_children(active: Active) -> None:
    for child in open_children(active):
        cancel_child(active.store, child.run_id, by=active.row.name)


def end_if_free(session: Session, run: Run) -> None:
    """End a cancelled run that nobody holds, and its children; one that somebody took meanwhile hears of it there."""
    if session.is_running(run):
        return
    try:
        taken = session.claim(run.run_id, pardon=True)
    except RunHeld:
        return
    if taken.state in FINISHED:
        session.release(run.run_id)
        return
    active = load(session, taken)
    try:
        drive(end_cancelled(active))
    except Signal:  # somebody else has it by now, or its end could not be written: it was told, and ends where it is
        return
    finally:
        session.release(run.run_id)
    end_free_children(session, active)


def queue_anew(session: Session, run: Run, *, why: str = "it is attempted anew") -> None:
    """Leave a run that nobody holds to whoever comes, with all its deliveries; one that was taken goes on there."""
    try:
        taken = session.claim(run.run_id, pardon=True, head=run.head)
    except RunHeld:
        return
    active = load(session, taken)
    try:
        drive(_end(active, Ended(state=RunState.QUEUED, code="interrupted", message=why)))
    except Signal:  # somebody else has it by now, or this could not be written: it is tried again
        return
    finally:
        session.release(run.run_id)


def end_free_children(session: Session, active: Active) -> None:
    """End the children of a cancelled run that nobody holds, such as those that wait for a person."""
    for child in open_children(active):
        end_if_free(session, child)
    following = newest(active.store, next_id(active.row.run_id))
    if following is not None and isinstance(active.signal, RunCancelled):
        end_if_free(session, following)


def open_children(active: Active) -> list[Run]:
    """The children that the run started and has no outcome of, where they have not ended by themselves."""
    entries = Journal(active.store.load_journal(active.row.run_id)).entries.values()
    waits: list[Opened] = [read_body(entry.wait) for entry in entries if entry.wait and not entry.completion]
    found = [newest(active.store, wait.child) for wait in waits if wait.child]
    return [child for child in found if child is not None and child.state not in FINISHED]


def cancel_child(store: Store, run_id: str, *, by: str) -> None:
    """Ask a run to end; its holder, or whoever looks at it next, does that."""
    run = newest(store, run_id)
    if run is not None and run.state not in FINISHED:
        store.post(Mail(0, run.run_id, "cancel", "", "{}", by, clock.wall_seconds()))


def _restart(active: Active, spec: AgentSpec, signal: RunRestarted) -> Generator[Operation, Any, BaseException]:
    """Accept the run that goes on, then end this one: a crash in between ends in the same two."""
    yield Drained(active)
    active.read(heed, active)
    if active.signal is None:
        _notice_loose_ends(active)
    if active.signal is not None:
        return (yield from _stopped(active))
    row, started = active.row, active.journal.started()
    try:
        arguments = spec.signature.bind(*signal.arguments)
        run, first = drafted(
            spec, arguments, durability=row.durability, run_id=next_id(row.run_id), tags=row.tags,
            deadline_seconds=started.deadline_at and started.deadline_at - row.created_at, lineage=started.lineage,
            placement=Placement(row.queue, row.priority, row.tenant),
        )  # fmt: skip
    except (TypeError, UnstorableValue) as error:
        return (yield from fail(active, spec, error))
    signal.next_id = run.run_id
    created = active.read(active.store.create_run, run, first)
    if (created.agent, created.arguments) != (run.agent, run.arguments):
        taken_id = UsageError(
            f"Run {row.name} cannot go on as {run.run_id!r}: another call has that id.",
            safe="nothing was started.",
            hint="let that run end, and start again",
        )
        return (yield from fail(active, spec, taken_id))
    taken = active.read(hand_on, active.store, row.run_id, run.run_id)
    park = Park(code=CONTINUED, message=run.run_id)
    yield from _end(active, Ended(state=RunState.COMPLETED, continued=run.run_id), park=park, taken=taken)
    active.read(hand_on, active.store, row.run_id, run.run_id)  # what was posted while the end was written
    return signal


def _taken_over(active: Active) -> RunHeld:
    """Another worker has this run now, or had it and is done with it."""
    run = active.store.read_run(active.row.run_id)
    if run is None or not run.holder:
        return RunHeld(
            f"Run {active.row.name} was taken over by another worker.",
            safe="nothing more is performed or recorded here.",
            hint=f"perdure show {active.row.name}",
        )
    return held(run, active.store.read_worker(run.holder))


def _tell_parent(active: Active) -> None:
    """Wake a parent that left memory. Told before the end is recorded: one told too early just looks once more."""
    lineage = active.journal.started().lineage
    if lineage:
        parent, child = lineage[-1].run_id, active.row.run_id
        with contextlib.suppress(UnknownRun):  # a parent that is gone needs no waking
            active.read(active.store.post, Mail(0, parent, "child", child, "{}", active.row.name, clock.wall_seconds()))


def _end(
    active: Active,
    ended: Ended,
    *,
    park: Park | None = None,
    stored: tuple[tuple[bytes, bytes], ...] = (),
    taken: tuple[int, ...] = (),
    wake_at: float = 0.0,
    heard: int = 0,
) -> Generator[Operation, Any, None]:
    detail = write_park(park) if park else ""
    if ended.state in FINISHED or ended.state == RunState.FAILED:
        _tell_parent(active)
    ticket, _ = active.submit(
        Kind.ENDED,
        None,
        ended,
        power=True,
        stored=stored,
        taken=taken,
        state=ended.state,
        reason=ended.reason,
        detail=detail,
        holder="",
        deliveries=0,
        steps=active.row.steps - len(ended.reopened),
        wake_at=wake_at,
        heard=heard,
    )
    yield Commit(active, ticket)
    row, active.has_ended = active.row, True
    active.signal = active.signal or RunSuspended(f"Run {row.name} has ended here.")
    events.publish(events.RunEnded(row.run_id, row.name, ended.state, ended.reason, row.steps))
