"""Child runs: an agent started inside a run is a run of its own, whose id follows from its parent and its place there.

The wait is recorded before the child is created, and the id is always the same, so that a crash in between creates the
rest of a fan-out and nothing twice.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from perdure import clock
from perdure.bodies import Ancestor, Ended, Opened, read_body
from perdure.engine import ending, lifecycle, whereabouts
from perdure.engine.active import STAY_SECONDS
from perdure.engine.call import Prepared
from perdure.engine.drive import QUIET_SECONDS, Pause, drive, drive_async
from perdure.engine.execute import is_ready
from perdure.engine.failure import describe_failure
from perdure.engine.handle import Handle
from perdure.engine.runner import Task, runner_of
from perdure.engine.wait import Place, Resolution, WaitSpec, agent_frame, awaited, opened_wait
from perdure.errors import StepFailed, UsageError
from perdure.records import FINISHED, RunState, WaitReason
from perdure.replay import Replayed

if TYPE_CHECKING:
    from collections.abc import Generator

    from perdure.bodies import Done
    from perdure.engine.active import Active, Waiting
    from perdure.engine.agent import AgentSpec
    from perdure.engine.drive import Operation
    from perdure.engine.lifecycle import Request
    from perdure.engine.session import Session
    from perdure.queues import Placement
    from perdure.records import Record, Run

T = TypeVar("T")
MAX_DEPTH: Final = 20
_ID_CHARACTERS: Final = 16
AGAIN_SECONDS: Final = 5.0
"""After how long a parent looks again at a child that said it was about to end, and was not seen to."""

_ENDED: Final = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED})


class Child(Handle[T]):
    """A run started by this one: await it, or ask for its result."""

    def __init__(self, prepared: Prepared[WaitSpec], wait: ForChild, record: Record | None) -> None:
        self.run_id = wait.run_id
        self._prepared = prepared
        self._wait = wait
        self._record = record
        self._done: Done | None = None
        self._is_asked = False

    def result(self, timeout: float | None = None) -> T:
        """What the child returned; raises what it raised. In a sync agent."""
        if timeout is not None:
            raise UsageError(
                "A child's result cannot be waited for with a timeout: the replay could end otherwise.",
                safe="the child goes on.",
                hint="give the child a deadline: perdure.start(child, …, deadline=…)",
            )
        return drive(self._flow())  # type: ignore[no-any-return]

    def cancel(self) -> None:
        """Ask the child to end at its next step; one that nobody holds ends at once."""
        opened = self._wait.session
        ending.cancel_child(opened.store, self.run_id, by=self._prepared.active.row.name)
        opened.deliver_mail()
        run = whereabouts.newest(opened.store, self.run_id)
        if run is not None:
            ending.end_if_free(opened, run)

    def __await__(self) -> Generator[Any, None, T]:
        return drive_async(self._flow()).__await__()

    def _flow(self) -> Generator[Operation, Any, Any]:
        prepared = self._prepared
        try:
            if isinstance(prepared.decision, Replayed):
                return prepared.recorded(prepared.decision.done)
            return prepared.recorded((yield from self._ended()))
        finally:
            prepared.leave()

    def _ended(self) -> Generator[Operation, Any, Done]:
        """How the child ended, recorded once, however many strands ask."""
        active = self._prepared.active
        while self._done is None and self._is_asked:
            if active.signal is not None:
                raise active.signal
            yield Pause(QUIET_SECONDS)
        if self._done is None and self._record is not None:
            self._is_asked = True
            try:
                self._done = yield from awaited(self._prepared, self._wait, self._record)
            finally:
                self._is_asked = False
        if self._done is None:
            raise TypeError(self._prepared.decision)
        return self._done


def start_child(opened: Session, spec: AgentSpec, request: Request) -> Child[Any]:
    """Accept a child run at this place of the run, and let it move."""
    frame = agent_frame("start")
    prepared = Prepared(spec.as_child, frame, request.args, request.kwargs)
    active = prepared.active
    wait = ForChild(opened, spec, prepared, request)
    if isinstance(prepared.decision, Replayed):
        return Child(prepared, wait, None)
    wait.refuse_cycle()
    record = drive(opened_wait(prepared, wait))
    if active.signal is not None:
        raise active.signal
    active.read(wait.create)
    wait.move(known=read_body(record).failed)
    return Child(prepared, wait, record)


class ForChild:
    """A wait that the outcome of a child ends."""

    def __init__(self, session: Session, spec: AgentSpec, prepared: Prepared[WaitSpec], request: Request) -> None:
        self.session = session
        self.spec = spec
        self.prepared = prepared
        self.request = request
        self.run_id = child_id(prepared.active.row.run_id, prepared.call.key)

    def open(self, prepared: Prepared[WaitSpec]) -> Opened:
        """The child's id; and how it failed before, where this attempts it anew."""
        run = self._newest(prepared.active)
        failed = whereabouts.failure_of(run) if run is not None else ""
        return Opened(reason="child", shown=prepared.shown(), child=self.run_id, failed=failed)

    def look(self, place: Place) -> Resolution | None:
        """The child's outcome, once there is one."""
        active = place.active
        run = self._newest(active)
        if run is None:
            active.read(self.create)
            return None
        news = tuple(mail.mail_id for mail in place.mail if mail.kind == "child" and mail.key.startswith(self.run_id))
        if run.state in _ENDED:
            active.news_at = clock.boot_seconds()
        if run.state == RunState.COMPLETED:
            ended = _ending(active, run)
            return Resolution(sealed=active.load_value(ended.value, ended.blob), taken=news, by=run.name)
        if run.state == RunState.FAILED and whereabouts.failure_of(run) != place.opened.failed:
            return Resolution(failure=_ending(active, run).failure, taken=news, by=run.name)
        if run.state == RunState.CANCELLED:
            gone = StepFailed(f"The child run {run.name} ({self.spec.name}) was cancelled.")
            return Resolution(failure=describe_failure(gone), taken=news, by=run.name)
        if run.state != RunState.WAITING and run.steps and run.deliveries <= 1:
            active.credit()  # its delivery before this one, or this one, completed a step
        self.move(known=place.opened.failed)
        return None

    def standing(self, place: Place) -> Waiting:
        """Waiting for this child, which may wait itself."""
        run = self._newest(place.active)
        name = run.name if run is not None else self.run_id
        is_moving = run is not None and runner_of(self.session).is_moving(run.run_id)
        waits = run is not None and run.state == RunState.WAITING and not is_moving
        why = f", which waits ({run.reason})" if waits and run is not None else ""
        sleeps = run is not None and run.reason in (WaitReason.TIME, WaitReason.CHILD)
        due_at = run.wake_at if run is not None and sleeps else 0.0
        is_elsewhere = self.is_queued and (not waits or due_at > 0)
        if is_elsewhere:  # some worker wakes it, and may need the place that this run would keep
            due_at = clock.wall_seconds() + AGAIN_SECONDS if self._is_ending(place) else 0.0
        return place.waiting(
            f"waits for its child run {name} ({self.spec.name}){why}",
            f"perdure show {name}",
            due_at=due_at,
            is_busy=self._is_worth_staying(place, run) if is_elsewhere else not waits,
            is_elsewhere=is_elsewhere,
        )

    def _is_worth_staying(self, place: Place, run: Run | None) -> bool:
        """Whether a child that runs elsewhere is about to end, or has ended since, so that nothing would wake us.

        Or whether one was heard of only just: where many end one after the other, not each must wake it anew.
        """
        if run is None:
            return False
        if run.state in _ENDED:
            return run.state != RunState.FAILED or whereabouts.failure_of(run) != place.opened.failed
        if not self.session.is_running(run):
            return False
        return self._is_ending(place) or clock.boot_seconds() - place.active.news_at < STAY_SECONDS

    def _is_ending(self, place: Place) -> bool:
        """Whether the child said that it is about to end, which it does before it is on record.

        We have heard that by now, and would not be woken by it: whoever leaves all the same must come back by itself.
        """
        return any(mail.kind == "child" and mail.key.startswith(self.run_id) for mail in place.mail)

    def create(self) -> Run:
        """Accept the child, unless that was done before."""
        prepared = self.prepared
        run, first = lifecycle.drafted(
            self.spec,
            prepared.arguments,
            durability=prepared.active.row.durability,
            run_id=self.run_id,
            tags=self.request.tags or prepared.active.row.tags,
            deadline_seconds=self.request.deadline_seconds,
            lineage=self._lineage(),
            placement=self._placement(),
            version=prepared.active.row.version,
            ready_at=lifecycle.ready_at(self.session.store, self.request.placement),
        )
        return self.session.store.create_run(run, first)

    @property
    def is_queued(self) -> bool:
        """Whether the child is left to workers."""
        return self.request.placement is not None

    def _placement(self) -> Placement | None:
        """Where the child waits for a worker; it comes in the turn of whoever its parent works for."""
        given, row = self.request.placement, self.prepared.active.row
        if given is None:
            return None
        priority = row.priority if given.priority is None else given.priority
        return msgspec.structs.replace(given, priority=priority, tenant=given.tenant or row.tenant)

    def move(self, *, known: str = "") -> None:
        """Let the child run here, unless it runs, or waits, already; anew after a failure that its parent knows.

        One that is left to workers is taken by whoever is free.
        """
        run = self._newest(self.prepared.active)
        if run is None or run.state in FINISHED or self.session.is_running(run):
            return
        needs_person = run.reason in (WaitReason.PARKED, WaitReason.IN_DOUBT) and not is_ready(self.session, run.run_id)
        if needs_person or (run.state == RunState.FAILED and whereabouts.failure_of(run) != known):
            return
        if self.is_queued:
            if run.state == RunState.FAILED:
                ending.queue_anew(self.session, run)
            return
        parent = self.prepared.active.row.run_id
        task = Task(self.spec, run.run_id, depth=len(self._lineage()), parent=parent, known=known)
        runner_of(self.session).ensure(task)

    def refuse_cycle(self) -> None:
        """A child that is the same call as one of its ancestors would start itself for ever."""
        lineage = self._lineage()
        call = (self.spec.name, self.prepared.call.arguments.hex())
        ancestors = [(ancestor.agent, ancestor.arguments) for ancestor in lineage]
        if call in ancestors or len(lineage) > MAX_DEPTH:
            why = "is the same call as one of the runs that started it" if call in ancestors else "is too deep"
            raise UsageError(
                f"{self.prepared.shown()}: this child {why} ({len(lineage)} levels).",
                safe="it was not started.",
                hint="pass other arguments from level to level, or call the agent itself instead of starting it",
            )

    def _lineage(self) -> tuple[Ancestor, ...]:
        active = self.prepared.active
        row = active.row
        return (*active.journal.started().lineage, Ancestor(row.run_id, row.agent, row.arguments.hex()))

    def _newest(self, active: Active) -> Run | None:
        """The child, or the run that goes on in its place."""
        return active.read(whereabouts.newest, active.store, self.run_id)


def child_id(parent_id: str, key: str) -> str:
    """The id of the child started at this place of its parent."""
    digest = hashlib.sha256(f"{parent_id}\n{key}".encode()).hexdigest()[:_ID_CHARACTERS]
    root = parent_id.partition("/")[0]
    return f"{root}/{digest}"


def _ending(active: Active, run: Run) -> Ended:
    ended: Ended = read_body(active.read(active.store.load_journal, run.run_id)[-1])
    return ended
