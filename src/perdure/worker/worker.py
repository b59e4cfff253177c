"""A worker: it looks for runs of its agents that may go on, claims them, and executes so many at once.

Recovery goes through the same claim as new work: a run whose holder is gone is found like one that was just accepted.
A run that waits leaves the worker, and is found again, here or elsewhere, when it is due.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure import clock, events
from perdure.engine import lifecycle, whereabouts
from perdure.engine.execute import to_pause
from perdure.errors import PerdureError, QueueFull, RunHeld, RunPaused, Signal, StoreError
from perdure.records import RunState
from perdure.worker.absence import Absence
from perdure.worker.intake import Intake, Search
from perdure.worker.memory import resident_bytes
from perdure.worker.readiness import ready_at
from perdure.worker.schedules import Timekeeper
from perdure.worker.suspects import Suspects

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perdure.engine.active import Active
    from perdure.engine.agent import AgentSpec
    from perdure.engine.lifecycle import Finished
    from perdure.engine.session import Session
    from perdure.records import Run

LOOK_SECONDS: Final = 0.25
"""How often an idle worker looks for work: a killed worker's runs go on elsewhere within about so long."""

SHUN_SECONDS: Final = 30.0
"""How long a run that could not be taken, because it is damaged or parked just then, is left alone by this worker."""


class Limits(Struct, frozen=True):
    """How much a worker takes on."""

    concurrency: int = 10
    memory_bytes: int = 0
    """Nothing more is claimed while the process is larger than this; 0 for no limit."""
    queues: tuple[str, ...] = ()
    """The queues whose runs it takes; of all of them where none is named."""


class Worker:
    """Executes runs until it is asked to drain and the last of them has ended."""

    def __init__(
        self, opened: Session, agents: Mapping[str, AgentSpec], limits: Limits, *, is_declared: bool = False
    ) -> None:
        """`is_declared` where one with the same code has declared its limits and schedules before."""
        self._session = opened
        self._agents = dict(agents)
        self._limits = limits
        self._lock = threading.Lock()
        self._intake = Intake(limits.queues, is_declared=is_declared)
        self._suspects = Suspects(opened, self._agents)
        self._timekeeper = Timekeeper(opened, self._agents, is_declared=is_declared)
        self._absence = Absence()
        self._moving: dict[str, str] = {}
        self._shunned: dict[str, float] = {}
        self._failing: set[str] = set()
        self.on_declared: Callable[[], None] | None = None
        """Called once the store knows what the code says of queues and schedules, before a run is taken."""
        self._changed = threading.Event()
        self._draining = threading.Event()
        self.looked_at = self._seen_at = clock.boot_seconds()

    @property
    def worker_id(self) -> str:
        """By which others know this worker."""
        return self._session.store.join().worker_id

    @property
    def version(self) -> str:
        """Of the code it executes: it takes runs that are pinned to this, and those that are not pinned."""
        return self._session.store.join().version

    @property
    def is_draining(self) -> bool:
        """Whether it takes nothing more."""
        return self._draining.is_set()

    def moving(self) -> list[str]:
        """The runs it executes now."""
        with self._lock:
            return list(self._moving)

    def work(self) -> None:
        """Take and execute runs; return once it was asked to drain and all of them have ended or left."""
        about = (tuple(self._agents), self._limits.concurrency, self.version, self._limits.queues)
        events.publish(events.WorkerStarted(self.worker_id, *about))
        forget = self._session.news.hear(self._changed.set, of=bool)
        while not (self.is_draining and not self.moving()):
            self._changed.clear()
            if not self._look():
                self._changed.wait(self._absence.pause_seconds or LOOK_SECONDS)
        forget()
        events.publish(events.WorkerStopped(self.worker_id))

    def drain(self) -> None:
        """Take nothing more, and stop what moves at its next step: the step is recorded, and others go on from it."""
        if not self._draining.is_set():
            self._draining.set()
            self._session.stop_all()
            self._changed.set()
            events.publish(events.WorkerDraining(self.worker_id, len(self.moving())))

    def _look(self) -> bool:
        """Look for work once; whether some was taken."""
        try:
            has_taken = self._looked()
        except StoreError as error:  # it is no fault of a run
            self._absence.begin(self.worker_id, error.message)
            return False
        self._absence.end(self.worker_id)
        self._failing.clear()
        return has_taken

    def _looked(self) -> bool:
        free = self._limits.concurrency - len(self.moving())
        self._give_sign()
        self._heed_drain()
        if self.is_draining:
            self._session.stop_all()  # also what was only just taken when that was asked
            return False
        self._timekeeper.look()
        if free <= 0 or self._is_full():
            return False
        search = Search(
            agents=tuple(self._agents),
            stall_seconds=self._session.settings.stall_seconds,
            limit=2 * self._limits.concurrency,
            version=self.version,
        )
        found = self._intake.find(self._session.store, search, self._counted())
        self.looked_at = clock.boot_seconds()
        if self.on_declared is not None and self._timekeeper.is_declared and self._intake.is_declared:
            self.on_declared()
            self.on_declared = None
        return self._take_some(found, free)

    def _give_sign(self) -> None:
        """One that holds nothing is alive too, and others look whether it is."""
        now = clock.boot_seconds()
        if now - self._seen_at >= self._session.settings.renew_seconds:
            self._session.store.beat(self.worker_id)
            self._seen_at = now

    def _heed_drain(self) -> None:
        known = self._session.store.read_worker(self.worker_id)
        if known is not None and known.drain_at and not self.is_draining:
            self.drain()

    def _is_full(self) -> bool:
        limit = self._limits.memory_bytes
        return bool(limit) and resident_bytes() > limit

    def _take_some(self, found: list[Run], free: int) -> bool:
        taken = 0
        now = clock.boot_seconds()
        self._shunned = {run_id: until for run_id, until in self._shunned.items() if until > now}
        for run in sorted(found, key=lambda run: run.run_id in self._failing):  # should it be that run after all
            if taken == free or self.is_draining:
                break
            is_known = run.run_id in self._shunned or run.run_id in self._moving
            if is_known or not self._suspects.admits(run, self.moving()):
                continue
            if self._intake.admits(run, self._counted()):
                taken += self._take(run)
        return bool(taken)

    def _counted(self) -> Counter[str]:
        """How many runs of each queue it executes now."""
        with self._lock:
            return Counter(self._moving.values())

    def _take(self, run: Run) -> bool:
        """Claim a run and execute it in a thread of its own; whether it could be had."""
        store, spec = self._session.store, self._agents[run.agent]
        try:
            if run.state == RunState.WAITING and whereabouts.is_paused(store, run):
                return False
            since = ready_at(store, run)
            active = lifecycle.open_run(self._session, spec, run, gated=True)
        except (RunHeld, RunPaused):
            return False  # somebody was quicker
        except QueueFull as full:
            self._intake.refuse(run, full.seconds)
            return False
        except StoreError:
            self._failing.add(run.run_id)
            raise
        except (PerdureError, Signal) as error:
            self._shunned[run.run_id] = clock.boot_seconds() + SHUN_SECONDS
            events.publish(events.RunRefused(run.run_id, run.name, str(error)))
            return False
        self._suspects.add(run)
        after = clock.wall_seconds() - since
        events.publish(events.RunTaken(run.run_id, run.name, run.agent, active.row.deliveries, max(0.0, after)))
        thread = threading.Thread(target=self._execute, args=(spec, active), name="perdure-run", daemon=True)
        with self._lock:
            self._moving[active.row.run_id] = run.queue
        contextvars.Context().run(thread.start)
        return True

    def _execute(self, spec: AgentSpec, active: Active | Finished) -> Any:  # noqa: ANN401 - what an agent returns
        run_id = active.row.run_id
        try:
            with contextlib.suppress(BaseException):  # how it ended is on record, and was told to whoever listens
                to_pause(self._session, spec, active, gated=True)
        finally:
            with self._lock:
                self._intake.make_room(self._moving.pop(run_id, ""))
            self._changed.set()
