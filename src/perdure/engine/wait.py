"""Waits: pauses for a time, a signal, a person or a child, which outlive the process.

A wait is one call with two records: the first says what the run waits for, the second how that ended. Between them the
run needs no memory and no process:

    Fresh ─ wait recorded ─┐
    Open ──────────────────┴─ look ─┬─ nothing yet ─ idle ─ look again, or leave memory
                                    └─ mail, time or child ─ answer recorded, mail taken with it ─ value
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from perdure import clock, events
from perdure.bodies import Done, Failure, Opened, read_body
from perdure.engine.active import Waiting
from perdure.engine.call import Prepared, Spec
from perdure.engine.drive import Commit, Idle, Operation, Quiet, drive, drive_async
from perdure.engine.mailbox import mail_key
from perdure.engine.scope import current_frame
from perdure.errors import NotInRun, UsageError
from perdure.policy import ONCE
from perdure.records import Kind, Mail, Record, WaitReason
from perdure.replay import Fresh, Open, Replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from perdure.engine.active import Active
    from perdure.engine.scope import Frame
    from perdure.replay import Call


class Resolution(Struct, frozen=True):
    """How a wait ended: a value, sealed, or a failure; and the mail that said so."""

    sealed: bytes = b"null"
    failure: Failure | None = None
    taken: tuple[int, ...] = ()
    by: str = ""


class WaitSpec(Spec):
    """A call that waits; its function has the parameters that identify what is waited for, and no body of interest."""

    kind = "wait"

    def __init__(self, function: Callable[..., Any], *, name: str) -> None:
        super().__init__(function, name=name, retry=ONCE, timeout=None, key=None)


class Wait(Protocol):
    """What is waited for."""

    def open(self, prepared: Prepared[WaitSpec]) -> Opened:
        """What to record when the wait begins."""

    def look(self, place: Place) -> Resolution | None:
        """Whether it has come; asked again whenever something may have changed."""

    def standing(self, place: Place) -> Waiting:
        """How a person sees this wait."""


class Place(Struct, frozen=True):
    """An open wait of a run, and the mail its look may use."""

    prepared: Prepared[WaitSpec]
    record: Record
    opened: Opened
    mail: list[Mail]

    @property
    def active(self) -> Active:
        """The run."""
        return self.prepared.active

    @property
    def mail_key(self) -> str:
        """Under which key others write to this wait."""
        return mail_key(self.record)

    @property
    def is_due(self) -> bool:
        """Whether the time of this wait is over."""
        return 0 < self.opened.due_at <= clock.wall_seconds()

    def allowed_seconds(self, seconds: float | None) -> float:
        """How long the wait was given: as the code says, or, where it no longer says so, as was recorded."""
        return round(self.opened.due_at - self.record.at, 1) if seconds is None else seconds

    def waiting(
        self, shown: str, hint: str, *, due_at: float = 0.0, is_busy: bool = False, is_elsewhere: bool = False
    ) -> Waiting:
        """The wait as it stands."""
        heard = max((mail.mail_id for mail in self.mail), default=0)
        reason, key = WaitReason(self.opened.reason), self.prepared.call.key
        return Waiting(key, reason, shown, hint, due_at or self.opened.due_at, heard, is_busy, is_elsewhere)


def waited(spec: WaitSpec, wait: Wait, *args: Any, finish: Callable[[Prepared[WaitSpec], Any], Any]) -> Any:
    """Wait inside a run: the value where the agent is sync, something to await where it is async."""
    frame = agent_frame(spec.name)
    prepared = Prepared(spec, frame, args, {})
    flow = finished(prepared, wait, finish)
    return drive_async(flow) if frame.can_await else drive(flow)


def agent_frame(name: str) -> Frame:
    """The frame of agent code; a wait makes no sense elsewhere."""
    frame = current_frame()
    if frame is None or frame.active is None:
        raise NotInRun(f"perdure.{name} was called outside a run.", hint="call it in an agent: @perdure.agent")
    if frame.body:
        raise UsageError(
            f"perdure.{name} was called inside the body of {frame.body}.",
            safe="nothing was recorded.",
            hint=f"call it from the agent, before or after {frame.body}",
        )
    return frame


def finished(
    prepared: Prepared[WaitSpec], wait: Wait, finish: Callable[[Prepared[WaitSpec], Any], Any]
) -> Generator[Operation, Any, Any]:
    """The wait to its end, and what the agent gets of it."""
    try:
        if isinstance(prepared.decision, Replayed):
            return finish(prepared, prepared.recorded(prepared.decision.done))
        done = yield from _flow(prepared, wait)
        return finish(prepared, prepared.recorded(done))
    finally:
        prepared.leave()


def opened_wait(prepared: Prepared[WaitSpec], wait: Wait) -> Generator[Operation, Any, Record]:
    """The record that opened the wait, made now where there is none."""
    active, decision = prepared.active, prepared.decision
    if isinstance(decision, Open):
        return decision.wait
    if not isinstance(decision, Fresh):
        raise TypeError(decision)
    ticket, record = active.submit(Kind.WAIT, prepared.call, wait.open(prepared), power=True)
    yield Commit(active, ticket)
    return record


def _flow(prepared: Prepared[WaitSpec], wait: Wait) -> Generator[Operation, Any, Done]:
    record = yield from opened_wait(prepared, wait)
    return (yield from awaited(prepared, wait, record))


def awaited(prepared: Prepared[WaitSpec], wait: Wait, record: Record) -> Generator[Operation, Any, Done]:
    """Look until it has come; record how it ended, and take the mail that said so with it."""
    active, key = prepared.active, prepared.call.key
    opened: Opened = read_body(record)
    is_told, quiet = False, Quiet(active)
    try:
        while True:
            seen = active.rings
            place = Place(prepared, record, opened, active.read(active.mail))
            resolution = wait.look(place)
            if resolution is not None and active.take(resolution.taken):
                return (yield from _answer(prepared, resolution))
            if resolution is None:
                standing = active.waits[key] = wait.standing(place)
                if not is_told and events.is_wanted(events.WaitOpened):
                    _publish(active, prepared.call, standing)
                is_told = True
                yield Idle(active, standing, quiet, seen=seen)
    finally:
        active.waits.pop(key, None)


def _answer(prepared: Prepared[WaitSpec], resolution: Resolution) -> Generator[Operation, Any, Done]:
    active = prepared.active
    raw, blob, stored = active.stored_value(resolution.sealed)
    state, dropped = active.state_changes()
    done = Done(
        value=raw,
        blob=blob,
        failure=resolution.failure,
        shown=prepared.shown(),
        state=state,
        dropped=dropped,
        by=resolution.by,
    )
    ticket, _ = active.submit(
        Kind.ANSWER, prepared.call, done, stored=stored, taken=resolution.taken, power=bool(resolution.taken) or None
    )
    yield Commit(active, ticket)
    active.publish_step(prepared.call, "wait", done)
    return done


def _publish(active: Active, call: Call, waiting: Waiting) -> None:
    row, what = active.row, (waiting.reason, waiting.shown, waiting.due_at)
    events.publish(events.WaitOpened(row.run_id, row.name, call.name, *what, call.key))
