"""One execution of a held run, sync or async: replay, go on, settle the outcome; and again until it is over."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any, Final

from perdure import clock
from perdure.engine import ending, lifecycle, whereabouts
from perdure.engine.drive import drive, drive_async
from perdure.engine.lifecycle import Finished
from perdure.engine.scope import Frame, adopt_loop, enter_frame, leave_frame
from perdure.errors import LeaseLapsed, PerdureError, RunCancelled, RunHeld, RunRestarted, RunWaits, Signal
from perdure.records import FINISHED, RunState, WaitReason

if TYPE_CHECKING:
    from perdure.engine.active import Active
    from perdure.engine.agent import AgentSpec
    from perdure.engine.session import Session
    from perdure.records import Run

LOOK_SECONDS: Final = 0.2
"""How often somebody who waits for a run that left memory looks whether it can go on."""


def goes_on_by_itself(waits: RunWaits) -> bool:
    """Whether a caller should wait: for a time, or a child that sleeps or moves; a person or a signal may take days."""
    if isinstance(waits, LeaseLapsed):
        return True  # the store is away, and this process is as likely as any other to see it come back
    return waits.reason == WaitReason.TIME or (waits.reason == WaitReason.CHILD and (waits.moves or waits.wake_at > 0))


def to_end(opened: Session, spec: AgentSpec, active: Active | Finished) -> Any:
    """Execute a run, and again whenever a time or a child it waited for has come, until it has an outcome."""
    run_id = active.row.run_id
    while True:
        try:
            return execute(opened, spec, active)
        except RunRestarted as restarted:
            run_id = restarted.next_id
        except RunWaits as waits:
            if not goes_on_by_itself(waits):
                raise
            while not is_ready(opened, run_id):
                clock.poll(LOOK_SECONDS, until=functools.partial(_wakes_at, opened, run_id))
        while (found := _reopened(opened, spec, run_id)) is None:
            clock.poll(LOOK_SECONDS)
        active = found


async def to_end_async(opened: Session, spec: AgentSpec, active: Active | Finished) -> Any:
    """The same for async agents."""
    run_id = active.row.run_id
    while True:
        try:
            return await execute_async(opened, spec, active)
        except RunRestarted as restarted:
            run_id = restarted.next_id
        except RunWaits as waits:
            if not goes_on_by_itself(waits):
                raise
            while not is_ready(opened, run_id):
                await clock.poll_async(LOOK_SECONDS, until=functools.partial(_wakes_at, opened, run_id))
        while (found := _reopened(opened, spec, run_id)) is None:
            await clock.poll_async(LOOK_SECONDS)
        active = found


def to_pause(opened: Session, spec: AgentSpec, active: Active | Finished, *, gated: bool = False) -> Any:
    """Execute a run until it has an outcome or waits for anything; one that goes on as another is followed.

    `gated` where a worker took it for its queue: one that goes on as another needs a place there as well.
    """
    while True:
        try:
            if spec.signature.is_async:
                return asyncio.run(execute_async(opened, spec, active))
            return execute(opened, spec, active)
        except RunRestarted as restarted:
            following = whereabouts.known_run(opened.store, restarted.next_id)
            active = lifecycle.open_run(opened, spec, following, quietly=True, gated=gated)


def is_ready(opened: Session, run_id: str) -> bool:
    """Whether a run that left memory can go on, or was ended by somebody else."""
    run = opened.store.read_run(run_id)
    if run is None or run.state in FINISHED or run.state == RunState.FAILED:
        return True
    if run.state != RunState.WAITING:
        return not opened.is_running(run)
    return 0 < run.wake_at <= clock.wall_seconds() or has_unheard(opened, run)


def _wakes_at(opened: Session, run_id: str) -> float:
    """When a run that left memory goes on by itself; 0 where that is not known."""
    run = opened.store.read_run(run_id)
    return run.wake_at if run is not None and run.state == RunState.WAITING else 0.0


def has_unheard(opened: Session, run: Run) -> bool:
    """Whether somebody wrote to a waiting run since it last looked."""
    mails = opened.store.read_mail(run.run_id)
    return any(mail.mail_id > run.heard and not mail.taken and mail.kind != "refused" for mail in mails)


def _reopened(opened: Session, spec: AgentSpec, run_id: str) -> Active | Finished | None:
    """Hold the run again; None where another process was quicker, and what becomes of it there must be awaited."""
    try:
        return lifecycle.open_run(opened, spec, whereabouts.known_run(opened.store, run_id), quietly=True)
    except RunHeld:
        return None


def execute(opened: Session, spec: AgentSpec, active: Active | Finished) -> Any:
    """Replay and continue the agent, settle the outcome; for sync agents."""
    if isinstance(active, Finished):
        return active.value
    active.root.worker = threading.current_thread()
    token = enter_frame(Frame(active, active.root, blocking=True))
    try:
        drive(lifecycle.recovered(active))
        bound = lifecycle.recorded_arguments(active, spec)
        active.interrupt = functools.partial(_cut_off, active)
        value = spec.function(*bound.args, **bound.kwargs)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            opened.stop_below(active.row.run_id)
        active.interrupt = None
        leave_frame(token)
        outcome = drive(ending.settled(active, ending.outcome(active, spec, error)))
        if outcome is error:
            raise
        raise outcome from None
    else:
        active.interrupt = None
        leave_frame(token)
        return drive(ending.settled(active, ending.complete(active, spec, value)))
    finally:
        opened.release(active.row.run_id)
        _end_children(opened, active)


def _end_children(opened: Session, active: Active) -> None:
    """A run that was cut off told its children; those that nobody holds are ended while there is a process to do it."""
    is_late = active.stop is not None and active.stop.state is RunState.FAILED
    if is_late or isinstance(active.signal, RunCancelled):
        with contextlib.suppress(PerdureError):  # they were told: whoever looks at them next ends them
            ending.end_free_children(opened, active)


def _cut_off(active: Active) -> None:
    """End a cancelled run whose sync body does not return: what that still does is neither recorded nor followed."""
    if isinstance(active.signal, RunCancelled) and not active.was_interrupted:
        active.was_interrupted = True
        with contextlib.suppress(PerdureError, Signal):  # it ended by itself, or the store says so at its next write
            drive(ending.end_cancelled(active))


def _interrupt(active: Active, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any] | None) -> None:
    """Cancel what the agent awaits, once: whoever asked for its end has waited long enough."""
    if task is not None:
        loop.call_soon_threadsafe(_cancel_agent, active, task)


def _cancel_agent(active: Active, task: asyncio.Task[Any]) -> None:
    """Cancel it unless it has returned by now: what writes down how it ended is not to be cancelled."""
    if active.interrupt is not None and not active.was_interrupted:
        active.was_interrupted = True
        task.cancel()


async def execute_async(opened: Session, spec: AgentSpec, active: Active | Finished) -> Any:
    """Replay and continue the agent, settle the outcome; for async agents."""
    if isinstance(active, Finished):
        return active.value
    loop = asyncio.get_running_loop()
    adopt_loop(loop)
    task = asyncio.current_task()
    active.root.worker = task
    token = enter_frame(Frame(active, active.root))
    try:
        await drive_async(lifecycle.recovered(active))
        bound = lifecycle.recorded_arguments(active, spec)
        active.interrupt = functools.partial(_interrupt, active, loop, task)
        value = await spec.function(*bound.args, **bound.kwargs)
    except BaseException as error:
        if isinstance(error, (KeyboardInterrupt, SystemExit, asyncio.CancelledError)) and not active.was_interrupted:
            opened.stop_below(active.row.run_id)
        active.interrupt = None
        if active.was_interrupted and task is not None:
            task.uncancel()
        leave_frame(token)
        outcome = await drive_async(ending.settled(active, ending.outcome(active, spec, error)))
        if outcome is error:
            raise
        raise outcome from None
    else:
        active.interrupt = None
        leave_frame(token)
        return await drive_async(ending.settled(active, ending.complete(active, spec, value)))
    finally:
        opened.release(active.row.run_id)
        _end_children(opened, active)
