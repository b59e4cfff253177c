"""Runs that this process executes beside its caller: each in a thread while it moves, in none while it waits.

A run that leaves memory is remembered by its id alone. One thread looks at the store for those whose time has come or
that have mail, and starts them again. Children of runs take turns, level by level, so that a run that waits for its
children never keeps them from running.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import weakref
from collections import defaultdict, deque
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from perdure import clock, events
from perdure.engine import lifecycle, whereabouts
from perdure.engine.execute import LOOK_SECONDS, execute, execute_async, goes_on_by_itself
from perdure.errors import PerdureError, RunHeld, RunPaused, RunRestarted, RunWaits
from perdure.records import FINISHED, RunState

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.engine.active import Active
    from perdure.engine.agent import AgentSpec
    from perdure.engine.lifecycle import Finished
    from perdure.engine.session import Session

AT_ONCE: Final = 32
"""How many children of one level, or woken runs, this process executes at a time."""

_STRAY_LOOKS: Final = 10
"""Every so many looks the waiter also looks for runs that another process ended."""


class Task:
    """A run that somebody in this process wants to see ended."""

    def __init__(
        self, spec: AgentSpec, run_id: str, *, depth: int = 0, parent: str = "", known: str | None = None
    ) -> None:
        self.spec = spec
        self.run_id = run_id
        self.depth = depth
        self.parent = parent
        self.known = known  # the failure of a child that its parent knows: only after that one is it attempted anew
        self.future: Future[Any] = Future()
        self.future.set_running_or_notify_cancel()  # who stops waiting for it does not end it for others
        self.is_moving = False
        self.comes_at = 0.0
        """When it goes on by itself; 0 where it moves, or waits for something else than a time."""


class Level:
    """The runs of one depth of parents and children that are to be executed, and the threads that do it."""

    def __init__(self) -> None:
        self.queue: deque[Task] = deque()
        self.threads = 0


_runners: Final[weakref.WeakKeyDictionary[Session, Runner]] = weakref.WeakKeyDictionary()
_making: Final = threading.Lock()


def runner_of(opened: Session) -> Runner:
    """The one runner of a session."""
    with _making:
        if opened not in _runners:
            _runners[opened] = Runner(opened)
        return _runners[opened]


class Runner:
    """The runs of one session that have threads of their own, and those that wait for one."""

    def __init__(self, opened: Session) -> None:
        self._session = weakref.proxy(opened)
        self._lock = threading.Lock()
        self._tasks: dict[str, Task] = {}
        self._levels: defaultdict[int, Level] = defaultdict(Level)
        self._waiter: threading.Thread | None = None

    def begin(self, task: Task, active: Active | Finished) -> None:
        """Execute a run that this process holds, in a thread of its own."""
        with self._lock:
            self._tasks[task.run_id] = task
            task.is_moving = True
        self._start_thread(self._work, task, active)

    def ensure(self, task: Task) -> Task:
        """See to it that the run moves: here, unless it is known here already."""
        with self._lock:
            known = self._tasks.get(task.run_id)
            if known is not None:
                return known
            self._tasks[task.run_id] = task
        self._queue(task)
        return task

    def is_moving(self, run_id: str) -> bool:
        """Whether the run is executed here, or about to be: what its row says of it may be over in a moment."""
        task = self._tasks.get(run_id)
        return task is not None and task.is_moving

    def has_queued(self) -> bool:
        """Whether a run is to be executed here and waits for a thread."""
        with self._lock:
            return any(level.queue for level in self._levels.values())

    def is_settled(self) -> bool:
        """Whether every run that somebody here wants to see ended waits for something that has not come."""
        tasks = list(self._tasks.values())
        return not any(task.is_moving for task in tasks) and not (tasks and self._ready(tasks, thoroughly=False))

    def _queue(self, task: Task) -> None:
        """Have a run executed as soon as one of the threads of its level is free."""
        with self._lock:
            task.is_moving, task.comes_at = True, 0.0
            level = self._levels[task.depth]
            level.queue.append(task)
            if level.threads == AT_ONCE:
                return
            level.threads += 1
        self._start_thread(self._serve, level)

    def _serve(self, level: Level) -> None:
        while True:
            with self._lock:
                if not level.queue:
                    level.threads -= 1
                    return
                task = level.queue.popleft()
            if self._session.is_stopped(task.parent):
                self._give_up(task, RunWaits(f"Run {task.run_id} was stopped with its parent."))
            else:
                self._work(task, None)

    def _start_thread(self, target: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=_while_open, args=(target, *args), name="perdure-run")
        contextvars.Context().run(thread.start)  # it serves other runs, and is no part of the one that asks

    def _work(self, task: Task, active: Active | Finished | None) -> None:
        try:
            self._move(task, active)
        finally:
            if task.parent:
                self._session.ring(task.parent)

    def _move(self, task: Task, active: Active | Finished | None) -> None:
        """Execute until the run ends or leaves memory."""
        while True:
            try:
                value = self._execute(task, active)
            except RunRestarted as restarted:
                self._follow(task, restarted.next_id)
                active = None
            except (RunWaits, RunHeld, RunPaused) as waits:
                if self._session.is_stopped(task.run_id):
                    self._give_up(task, waits)
                else:
                    task.comes_at = waits.wake_at if isinstance(waits, RunWaits) and goes_on_by_itself(waits) else 0.0
                    self._wait(task)
                    self._tell(task, waits)
                return
            except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
                self._give_up(task, error)
                return
            else:
                self._forget(task)
                task.future.set_result(value)
                return

    def _tell(self, task: Task, waits: PerdureError) -> None:
        """Nobody sees the refusal that `perdure.run` would raise, so that it is said where lines are shown."""
        if not isinstance(waits, RunWaits) or not events.is_wanted(events.RunLeft):
            return
        with contextlib.suppress(PerdureError, ReferenceError):  # the store was closed meanwhile: nobody waits any more
            run = self._session.store.read_run(task.run_id)
            name = run.name if run is not None else task.run_id
            events.publish(events.RunLeft(task.run_id, name, waits.reason, waits.message, waits.hint))

    def _execute(self, task: Task, active: Active | Finished | None) -> Any:
        spec = task.spec
        if active is None:
            run = self._session.store.read_run(task.run_id)
            if run is None:
                raise whereabouts.vanished(task.run_id)
            if task.known is not None and whereabouts.failure_of(run) not in ("", task.known):
                return None  # it failed since it was queued, and its parent will decide
            active = lifecycle.open_run(self._session, spec, run, quietly=True)
        if spec.signature.is_async:
            return asyncio.run(execute_async(self._session, spec, active))
        return execute(self._session, spec, active)

    def _follow(self, task: Task, run_id: str) -> None:
        with self._lock:
            self._tasks.pop(task.run_id, None)
            task.run_id = run_id
            self._tasks[run_id] = task

    def _give_up(self, task: Task, error: BaseException) -> None:
        self._forget(task)
        task.future.set_exception(error)

    def _forget(self, task: Task) -> None:
        with self._lock:
            self._tasks.pop(task.run_id, None)

    def _wait(self, task: Task) -> None:
        with self._lock:
            task.is_moving = False
            if self._waiter is None or not self._waiter.is_alive():
                self._waiter = threading.Thread(
                    target=_while_open, args=(self._look_until_closed,), name="perdure-waker", daemon=True
                )
                contextvars.Context().run(self._waiter.start)

    def _waits_for(self, runs: frozenset[str]) -> bool:
        return "" in runs or not runs.isdisjoint(self._tasks)

    def _look_until_closed(self) -> None:
        looks, woken = 0, threading.Event()
        self._session.news.hear(woken.set, of=self._waits_for)
        while True:
            clock.poll(LOOK_SECONDS, until=self._comes_at, woken=woken)
            woken.clear()
            if self._session.has_ended(0.0):
                return
            looks += 1
            waiting = [task for task in list(self._tasks.values()) if not task.is_moving]
            if not waiting:
                continue
            try:
                ready = self._ready(waiting, thoroughly=looks % _STRAY_LOOKS == 0)
            except PerdureError:  # a store that fails here fails the runs at their own next write
                continue
            for task in ready:
                self._queue(task)

    def _comes_at(self) -> float:
        """When the first of those that wait for a time alone goes on; 0 where none does."""
        return min((task.comes_at for task in list(self._tasks.values()) if task.comes_at), default=0.0)

    def _ready(self, waiting: list[Task], *, thoroughly: bool) -> list[Task]:
        """Those that are due; now and then also those that somebody else moved or ended."""
        store = self._session.store
        found = store.list_due(now=clock.wall_seconds(), limit=10_000)
        due = {run.run_id for run in found if not whereabouts.is_paused(store, run)}
        ready = [task for task in waiting if task.run_id in due]
        for task in waiting if thoroughly else ():
            run = store.read_run(task.run_id)
            over = run is None or run.state in FINISHED or run.state == RunState.FAILED
            idle = run is not None and run.state in (RunState.QUEUED, RunState.RUNNING)
            if task.run_id not in due and (over or (idle and run is not None and not self._session.is_running(run))):
                ready.append(task)
        return ready


def _while_open(target: Callable[..., None], *args: Any) -> None:
    """Do what a thread is for, unless the session is closed and gone: with it went everybody to work for."""
    with contextlib.suppress(ReferenceError):
        target(*args)
