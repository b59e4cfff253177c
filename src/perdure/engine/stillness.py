"""Whether a strand of agent code can only go on when another one does, or works on its own.

A run leaves memory when every strand of it waits. A strand that calls perdure says so itself; one that stands in an
`await` or a `join` of its own must be looked at: does it wait for other strands, or for the world? One that was let go
on and has not been given the processor since stands there just the same, so the system is asked about it too.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import selectors
import sys
import threading
from enum import Enum, auto
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from perdure import clock

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import ThreadPoolExecutor

SETTLED_SECONDS: Final = 0.02
"""A thread that waits for the interpreter is woken several times in so long; one that waits for another is not."""

_ASYNCIO: Final = Path(asyncio.__file__).parent
_LOOP_WAITS: Final = frozenset(
    str(_ASYNCIO / f"{name}.py") for name in ("tasks", "taskgroups", "locks", "queues", "threads")
)
_NOT_WAITS: Final = frozenset({"sleep", "wait_for"})
"""Coroutines in these files that wait for a time, or for what they were given to run themselves."""

_WORLD_WAITS: Final = frozenset(str(_ASYNCIO / f"{name}.py") for name in ("streams", "subprocess", "unix_events"))
"""Whoever waits there waits for another process or machine, which may say something at any time, or never."""

_POOLS: Final = str(Path(concurrent.futures.__file__).parent / "thread.py")
_THREAD_WAITS: Final = frozenset(
    {
        threading.__file__,
        queue.__file__,
        str(Path(concurrent.futures.__file__).parent / "_base.py"),
        _POOLS,
        str(Path(__file__).parent / "mapping" / "lanes.py"),
    }
)
"""Code that only waits; a map waits for its lanes in a queue that has no frame of its own."""

_WRITER: Final = str(Path(__file__).parent.parent / "store" / "writer.py")
"""Whoever waits there waits for the store, which answers by itself."""

_STARTS: Final = threading.Thread.start.__code__
"""Whoever waits there waits for a thread to begin, which it does by itself."""


class Standing(Enum):
    """What is known of a strand that makes no call."""

    BLOCKED = auto()
    UNKNOWN = auto()
    WORKING = auto()


class Returning:
    """A thread whose strand is over, and that may still have to tell those who wait for it."""

    __slots__ = ("_caller", "thread")

    def __init__(self, thread: threading.Thread, caller: FrameType) -> None:
        self.thread = thread
        self._caller = caller if caller.f_code.co_filename == _POOLS else None

    def is_over(self, frame: FrameType | None) -> bool:
        """Whether everybody was told; a pool has done so when the thread leaves the call that executed the strand."""
        if self._caller is None:
            return not self.thread.is_alive()
        while frame is not None and frame is not self._caller:
            frame = frame.f_back
        return frame is None


class Looping:
    """A strand of plain code that runs an event loop: it goes on when the loop ends, so its tasks tell what it does."""

    __slots__ = ("loop", "tasks")

    def __init__(self, loop: asyncio.AbstractEventLoop, tasks: Iterable[asyncio.Task[Any]]) -> None:
        self.loop = loop
        self.tasks = tuple(tasks)
        """Those that were there when the loop began to run; later ones are strands of their own."""


Worker: TypeAlias = "asyncio.Task[Any] | threading.Thread | ThreadPoolExecutor | Returning | Looping"
"""What executes a strand: a task, a thread, or the pool it was given to and has not begun in."""


class Watch:
    """One observer of the strands of a run, who looks again and again: two looks tell more than one."""

    def __init__(self) -> None:
        self._frames: dict[int, FrameType] = {}
        self._rested: dict[int, tuple[bytes, float]] = {}
        self.is_close = False
        """Whether all that is wanting is to see a thread rest for a while."""

    def farthest(self, workers: Iterable[Worker | None]) -> Standing:
        """What the one of these is at that is farthest from waiting; one that nobody executes yet is about to begin."""
        self.is_close = False
        self._frames = sys._current_frames()  # noqa: SLF001 - documented; there is no other way to ask
        try:
            found = Standing.BLOCKED
            for worker in workers:
                standing = Standing.WORKING if worker is None else self._standing_of(worker)
                if standing is Standing.WORKING:
                    return standing
                found = Standing.UNKNOWN if standing is Standing.UNKNOWN else found
            return found
        finally:
            self._frames = {}

    def _standing_of(self, worker: Worker) -> Standing:
        """Whether it waits for others of its program, or works, or waits for something outside of it."""
        if isinstance(worker, asyncio.Task):
            return self._task_standing(worker)
        if isinstance(worker, threading.Thread):
            return self._thread_standing(worker.ident, worker.native_id)
        if isinstance(worker, Looping):
            return self._looping_standing(worker)
        if isinstance(worker, Returning):
            return _blocked_if(worker.is_over(self._frames.get(worker.thread.ident or 0)))
        return self._pool_standing(worker)

    def _looping_standing(self, worker: Looping) -> Standing:
        standings = {self._task_standing(task) for task in worker.tasks if not task.done()}
        for found in (Standing.WORKING, Standing.UNKNOWN):
            if found in standings:
                return found
        return _blocked_if(bool(standings) or self._loop_rests(worker.loop))

    def _task_standing(self, task: asyncio.Task[Any]) -> Standing:
        awaited = getattr(task, "_fut_waiter", None)
        if task.done():
            return Standing.BLOCKED
        if awaited is None:
            return self._running_standing(task)
        if awaited.done() or not self._loop_rests(task.get_loop()):
            return Standing.WORKING
        if isinstance(awaited, (asyncio.Task, asyncio.tasks._GatheringFuture)):  # type: ignore[attr-defined]  # noqa: SLF001
            return Standing.BLOCKED
        return _awaiting_standing(_innermost(task))

    def _running_standing(self, task: asyncio.Task[Any]) -> Standing:
        """A task that awaits nothing runs, or will in a moment; it may run into a wait that holds its whole loop up."""
        loop = task.get_loop()
        thread = getattr(loop, "_thread_id", None)
        if thread is None or asyncio.current_task(loop) is not task:
            return Standing.WORKING
        known = threading._active.get(thread)  # type: ignore[attr-defined]  # noqa: SLF001 - `enumerate` takes a lock
        return self._thread_standing(thread, getattr(known, "native_id", None))

    def _loop_rests(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether the loop of another thread has nothing to do at the moment; this one goes on when we let it."""
        thread = getattr(loop, "_thread_id", None)
        if thread == threading.get_ident():
            return True
        frame = self._frames.get(thread or 0)
        is_between = asyncio.current_task(loop) is None and frame is not None and _is_inside(frame, _ASYNCIO)
        return not getattr(loop, "_ready", ()) and not is_between

    def _thread_standing(self, thread: int | None, native: int | None) -> Standing:
        if thread is None:
            return Standing.WORKING  # it is being started
        frame = self._frames.get(thread)
        if frame is not None and frame.f_code.co_filename in _WORLD_WAITS:
            return Standing.UNKNOWN
        return _blocked_if(frame is None or (_only_waits(frame) and self._rests(native)))

    def _pool_standing(self, pool: ThreadPoolExecutor) -> Standing:
        """A strand that was put into a pool waits for a thread of it, unless one is free, or has taken it out."""
        threads = [self._frames.get(thread.ident or 0) for thread in tuple(pool._threads)]  # noqa: SLF001
        return _blocked_if(all(map(_is_engaged, threads)) and not pool._work_queue.empty())  # noqa: SLF001

    def _rests(self, native: int | None) -> bool:
        """Whether the system has not let this thread run for a while, and is not about to."""
        now = clock.elapsed_seconds()
        told = _told_of(native)
        before, since = self._rested.get(native or 0, (None, now))
        if told is None or told != before:
            self._rested[native or 0] = (told or b"", now)
            since = now
        self.is_close = now - since < max(SETTLED_SECONDS, 2 * sys.getswitchinterval())
        return not self.is_close


def _told_of(native: int | None) -> bytes | None:
    """How often a thread was put to sleep; None where it is not asleep, and nothing where the system does not tell."""
    try:
        told = Path(f"/proc/self/task/{native}/status").read_bytes()
    except OSError:
        return b""
    return told[told.rfind(b"\nvoluntary_ctxt") :] if b"\nState:\tS" in told else None


def _blocked_if(waits: bool) -> Standing:  # noqa: FBT001 - the one thing that is asked
    return Standing.BLOCKED if waits else Standing.WORKING


def _only_waits(frame: FrameType | None) -> bool:
    """Whether the thread with this innermost frame waits for another, by what it has called."""
    if frame is None or frame.f_code.co_filename not in _THREAD_WAITS:
        return False
    while frame is not None and frame.f_code.co_filename in _THREAD_WAITS:
        if frame.f_code is _STARTS:
            return False
        frame = frame.f_back
    return frame is None or frame.f_code.co_filename != _WRITER


def _is_engaged(frame: FrameType | None) -> bool:
    """Whether the thread of a pool executes something it was given."""
    while frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) != (_POOLS, "run"):
        frame = frame.f_back
    return frame is not None


def _is_inside(frame: FrameType, folder: Path) -> bool:
    """Whether code of this folder executes, and has not gone to wait for what comes from outside."""
    return frame.f_code.co_filename != selectors.__file__ and frame.f_code.co_filename.startswith(str(folder))


def _awaiting_standing(code: CodeType | None) -> Standing:
    """What a task is at that awaits in this code."""
    if code is None:
        return Standing.UNKNOWN
    if code.co_filename in _LOOP_WAITS:
        return Standing.WORKING if code.co_name in _NOT_WAITS else Standing.BLOCKED
    is_known = code.co_filename.startswith(str(_ASYNCIO)) or code.co_filename == _WRITER
    is_known = is_known and code.co_filename not in _WORLD_WAITS
    return Standing.WORKING if is_known else Standing.UNKNOWN


def _innermost(task: asyncio.Task[Any]) -> CodeType | None:
    """The code of the coroutine that does the awaiting, however deep it was called."""
    coroutine: Any = task.get_coro()
    code = None
    while coroutine is not None and hasattr(coroutine, "cr_code"):
        code = coroutine.cr_code
        coroutine = coroutine.cr_await
    return code
