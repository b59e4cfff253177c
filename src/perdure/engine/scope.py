"""Where in a run a call stands: frames, scopes, and how tasks and threads of agent code open scopes of their own.

A step's key is its scope and its index there. A task or thread started by agent code opens a scope keyed by its parent,
the qualified name of what it runs and the occurrence of that name, fixed when it is created. Inside a step body nothing
counts. While a run is active, thread start and executor submit carry the frame along; event loops get a task factory.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, cast

from msgspec import Struct

from perdure.engine.stillness import Looping, Returning
from perdure.errors import Signal, UsageError
from perdure.hooks import loaded, when_imported

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
    from types import ModuleType

    from perdure.bodies import Passed
    from perdure.engine.active import Active
    from perdure.engine.stillness import Worker

ROOT: Final = "main"
_WAIT_FOR: Final = asyncio.wait_for.__code__
_RESUMABLE_CODE: Final = (
    inspect.CO_COROUTINE | inspect.CO_GENERATOR | inspect.CO_ITERABLE_COROUTINE | inspect.CO_ASYNC_GENERATOR
)


class Scope:
    """One strand of a run, or an agent called inside one: it counts its calls and what it spawned."""

    __slots__ = ("calls", "parent", "path", "spawned", "strand", "worker")

    def __init__(
        self, path: str, *, strand: Scope | None = None, parent: Scope | None = None, worker: Worker | None = None
    ) -> None:
        self.path = path
        self.calls = 0
        self.spawned: dict[str, int] = {}
        self.strand = strand or self
        self.parent = parent
        self.worker = worker

    def take_key(self) -> str:
        """The key of the next call in this scope."""
        key = f"{self.path}.{self.calls}"
        self.calls += 1
        return key

    def go_on_after(self, passed: Passed) -> None:
        """Count on from there."""
        self.calls = max(self.calls, passed.calls)
        for name, occurrences in passed.spawned.items():
            self.spawned[name] = max(self.spawned.get(name, 0), occurrences)

    def child(self, name: str, *, inline: bool = False) -> Scope:
        """The scope of something this one starts; an agent called inline stays in the strand of its caller."""
        occurrence = self.spawned.get(name, 0)
        self.spawned[name] = occurrence + 1
        path = f"{self.path}/{name}#{occurrence}"
        return Scope(path, strand=self.strand) if inline else Scope(path, parent=self.strand)


class Frame(Struct, eq=False):
    """What code of a run can know of its place: the run, the scope, and the step body it is in, if any."""

    active: Active | None
    scope: Scope
    body: str = ""
    step_key: str = ""
    effect_key: str = ""
    attempt: int = 0
    foreign: str = ""
    caller: Frame | None = None
    blocking: bool = False

    @property
    def can_await(self) -> bool:
        """Whether the code here is a coroutine's; a sync agent may run on an event loop's thread and is none."""
        return not self.blocking and asyncio._get_running_loop() is not None  # noqa: SLF001 - the public form raises

    def path(self) -> Iterator[Scope]:
        """The scope of this frame and those of its callers, which all go on only when it does."""
        frame: Frame | None = self
        while frame is not None:
            yield frame.scope
            frame = frame.caller


_frame: contextvars.ContextVar[Frame | None] = contextvars.ContextVar("perdure_frame", default=None)

current_frame = _frame.get
enter_frame = _frame.set
leave_frame = _frame.reset


def foreign_process(run_name: str) -> UsageError:
    """The refusal a call gets in a forked child or a pool process."""
    return UsageError(
        f"A step of run {run_name} was called in another process than the one that holds the run.",
        safe="the run is untouched; nothing was performed.",
        hint="call steps and effects from the agent's own process; let the pool compute plain functions",
    )


class Carried:
    """A callable that runs in a frame of its own, wherever a thread or executor calls it."""

    def __init__(self, function: Callable[..., Any], frame: Frame, context: contextvars.Context) -> None:
        self._function = function
        self._frame = frame
        self._context = context
        self._finished = False

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return self._context.run(self._run, *args, **kwargs)
        finally:
            if not self._frame.body:
                self._frame.scope.worker = Returning(threading.current_thread(), sys._getframe(1))  # noqa: SLF001
            end_strand(self._frame, finished=self._finished)

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        _frame.set(self._frame)
        if not self._frame.body:
            self._frame.scope.worker = threading.current_thread()
        value = self._function(*args, **kwargs)
        self._finished = True
        return value

    def end_if_cancelled(self, future: Future[Any]) -> None:
        """A strand that was taken back out of its pool never begins."""
        if future.cancelled():
            end_strand(self._frame, finished=False)


class Refused:
    """A callable sent to another process: steps inside it are refused instead of silently unprotected."""

    def __init__(self, function: Callable[..., Any], run_name: str) -> None:
        self._function = function
        self._run_name = run_name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        token = _frame.set(Frame(None, Scope(ROOT), foreign=self._run_name))
        try:
            return self._function(*args, **kwargs)
        finally:
            _frame.reset(token)  # the same process may serve calls that belong to no run


def carry(function: Callable[..., Any], frame: Frame, pool: ThreadPoolExecutor) -> Carried:
    """What a pool should run instead of `function` for code that stands in this frame."""
    function, context = _unwrapped(function)
    child = frame if frame.body else spawn(frame, name_of(function), worker=pool)
    return Carried(function, child, context)


def spawn(frame: Frame, name: str, *, worker: Worker | None = None) -> Frame:
    """The frame of a strand that agent code starts here."""
    strand = Frame(frame.active, frame.scope.child(name))
    strand.scope.worker = worker
    if strand.active is not None:
        strand.active.begin_strand(strand.scope)
    return strand


def end_strand(frame: Frame, *, finished: bool) -> None:
    """The strand of this frame is over; one that finished must have made every call recorded for it."""
    if frame.active is not None and not frame.body:
        frame.active.end_strand(frame.scope)
        if finished:
            frame.active.leave(frame.scope)


def name_of(function: Any) -> str:
    """The qualified name of what a task or thread runs, the same on every Python."""
    while isinstance(function, functools.partial):
        function = function.func
    name = getattr(function, "__qualname__", None)
    return name if isinstance(name, str) else type(function).__qualname__


def adopt_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Have tasks created on this loop by agent code open their own scopes."""
    before = loop.get_task_factory()
    if getattr(before, "opens_scopes", False):
        return

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> Any:
        frame = _frame.get()
        if frame is None or frame.active is None or frame.body or _is_wait_for():
            return make(loop, coroutine, **options)
        given = options.pop("context", None)
        context = contextvars.copy_context() if given is None else given.copy()
        strand = spawn(frame, name_of(coroutine))
        context.run(_frame.set, strand)
        task = make(loop, coroutine, context=context, **options)
        strand.scope.worker = task
        task.add_done_callback(functools.partial(_end_task, strand), context=contextvars.Context())
        return task

    def make(loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, Any], **options: Any) -> Any:
        if before is None:
            return asyncio.Task(coroutine, loop=loop, **options)
        return before(loop, coroutine, **options)

    factory.opens_scopes = True  # type: ignore[attr-defined]
    loop.set_task_factory(cast("Any", factory))


def _end_task(strand: Frame, task: asyncio.Future[Any]) -> None:
    # Asking the task itself would mark its exception as seen.
    end_strand(strand, finished=not task.cancelled() and getattr(task, "_exception", None) is None)


class Carriers:
    """The patches on threads and executors, in place while at least one run is active.

    Process pools are slow to import and most programs have none: what is not loaded yet is patched when it is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._active = 0
        self._awaited: set[str] = set()
        self._originals: list[tuple[type, str, Any]] = []

    def acquire(self) -> None:
        """A run became active."""
        for name in _POOLS.keys() - self._awaited:
            when_imported(name, self._patch_if_active)
            self._awaited.add(name)
        with self._lock:
            self._active += 1
            if self._active == 1:
                self._replace(threading.Thread, "start", _thread_start)
                self._replace(asyncio.BaseEventLoop, "run_forever", _loop_run)
                for module in filter(None, map(loaded, _POOLS)):
                    self._patch(module)

    def release(self) -> None:
        """A run is no longer active."""
        with self._lock:
            self._active -= 1
            if self._active == 0:
                for owner, name, original in self._originals:
                    setattr(owner, name, original)
                self._originals.clear()

    def _patch_if_active(self, module: ModuleType) -> None:
        with self._lock:
            if self._active:
                self._patch(module)

    def _patch(self, module: ModuleType) -> None:
        owner_name, name, build = _POOLS[module.__name__]
        owner = getattr(module, owner_name)
        if all(owner is not patched for patched, *_ in self._originals):
            self._replace(owner, name, build)

    def _replace(self, owner: type, name: str, build: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        self._originals.append((owner, name, original))
        setattr(owner, name, functools.wraps(original)(build(original)))


def _thread_start(original: Callable[..., None]) -> Callable[..., None]:
    def start(thread: threading.Thread) -> None:
        frame = _frame.get()
        if frame is not None and frame.active is not None:
            # A subclass names itself by its class, a plain thread by its target.
            target = getattr(thread, "_target", None)
            named = thread.run if target is None else target
            child = frame if frame.body else spawn(frame, name_of(named), worker=thread)
            thread.run = _quiet(Carried(thread.run, child, contextvars.Context()))  # type: ignore[method-assign]
            try:
                original(thread)
            except RuntimeError:
                end_strand(child, finished=False)
                raise
        else:
            original(thread)

    return start


def _quiet(run: Callable[[], None]) -> Callable[[], None]:
    """A thread of a run that has stopped ends without a traceback; the run itself says why."""

    def quietly() -> None:
        try:
            run()
        except Signal:
            return

    return quietly


def _pool_submit(original: Callable[..., Any]) -> Callable[..., Any]:
    def submit(pool: ThreadPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        frame = _frame.get()
        if frame is None or frame.active is None:
            return original(pool, function, *args, **kwargs)
        carried = carry(_bound(function, args, kwargs), frame, pool)
        # The pool's own worker threads are no strands of the run.
        future = contextvars.Context().run(original, pool, carried)
        future.add_done_callback(carried.end_if_cancelled)
        return future

    return submit


def _process_submit(original: Callable[..., Any]) -> Callable[..., Any]:
    def submit(pool: ProcessPoolExecutor, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        frame = _frame.get()
        if frame is None or frame.active is None:
            return original(pool, function, *args, **kwargs)
        function = Refused(function, frame.active.row.name)
        return contextvars.Context().run(original, pool, function, *args, **kwargs)

    return submit


def _process_start(original: Callable[..., None]) -> Callable[..., None]:
    def start(process: Any) -> None:
        frame = _frame.get()
        if frame is not None and frame.active is not None:
            process.run = Refused(process.run, frame.active.row.name)
        original(process)

    return start


def _loop_run(original: Callable[..., None]) -> Callable[..., None]:
    def run_forever(loop: asyncio.BaseEventLoop) -> None:
        frame = _frame.get()
        if frame is None:
            original(loop)
            return
        is_adopted = getattr(loop.get_task_factory(), "opens_scopes", False)
        adopt_loop(loop)
        scope, before = frame.scope, frame.scope.worker
        if isinstance(before, threading.Thread) and not frame.body:
            scope.worker = Looping(loop, () if is_adopted else asyncio.all_tasks(loop))
        try:
            original(loop)
        finally:
            scope.worker = before

    return run_forever


def _bound(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    return functools.partial(function, *args, **kwargs) if args or kwargs else function


def _unwrapped(function: Callable[..., Any]) -> tuple[Callable[..., Any], contextvars.Context]:
    """`asyncio.to_thread` submits `context.run` with the function as argument: look through it."""
    inner = function
    positional: tuple[Any, ...] = ()
    keywords: dict[str, Any] = {}
    while isinstance(inner, functools.partial):
        positional = (*inner.args, *positional)
        keywords = {**inner.keywords, **keywords}
        inner = inner.func
    context = getattr(inner, "__self__", None)
    if isinstance(context, contextvars.Context) and positional:
        return _bound(positional[0], positional[1:], keywords), context
    return function, contextvars.Context()


def _is_wait_for() -> bool:
    """Whether the task is one that `asyncio.wait_for` makes for itself, as it does on Python 3.11 and not later.

    The innermost coroutine on the stack is the one that asked: one that `wait_for` awaits makes tasks of its own.
    """
    frame = sys._getframe(2)  # noqa: SLF001
    while not frame.f_code.co_flags & _RESUMABLE_CODE:
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return frame.f_code is _WAIT_FOR


_POOLS: Final = {
    "concurrent.futures.thread": ("ThreadPoolExecutor", "submit", _pool_submit),
    "concurrent.futures.process": ("ProcessPoolExecutor", "submit", _process_submit),
    "multiprocessing.process": ("BaseProcess", "start", _process_start),
}
"""What is patched in which module, and by what."""

carriers: Final = Carriers()
