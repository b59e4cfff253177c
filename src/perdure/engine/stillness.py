"""Whether a strand of agent code can only go on when another one does, or works on its own.

A run leaves memory when every strand of it waits. A strand that calls perdure says so itself; one that stands in an
`await` or a `join` of its own must be looked at: does it wait for other strands, or for the world?
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import queue
import sys
import threading
from enum import Enum, auto
from pathlib import Path
from types import CodeType
from typing import Any, Final

Worker = asyncio.Task[Any] | int
"""What executes a strand: a task, or a thread by its number."""

_ASYNCIO: Final = Path(asyncio.__file__).parent
_LOOP_WAITS: Final = frozenset(
    str(_ASYNCIO / f"{name}.py") for name in ("tasks", "taskgroups", "locks", "queues", "threads")
)
_NOT_WAITS: Final = frozenset({"sleep", "wait_for"})
"""Coroutines in these files that wait for a time, or for what they were given to run themselves."""

_FUTURES: Final = Path(concurrent.futures.__file__).parent
_THREAD_WAITS: Final = frozenset(
    {
        threading.__file__,
        queue.__file__,
        str(_FUTURES / "_base.py"),
        str(_FUTURES / "thread.py"),
        str(Path(__file__).parent / "mapping" / "lanes.py"),
    }
)
"""Code that only waits; a map waits for its lanes in a queue that has no frame of its own."""


class Standing(Enum):
    """What is known of a strand that makes no call."""

    BLOCKED = auto()
    UNKNOWN = auto()
    WORKING = auto()


def standing_of(worker: Worker) -> Standing:
    """Whether this task or thread waits for others of its program, or works, or waits for something outside of it."""
    return _task_standing(worker) if isinstance(worker, asyncio.Task) else _thread_standing(worker)


def _task_standing(task: asyncio.Task[Any]) -> Standing:
    awaited = getattr(task, "_fut_waiter", None)
    if task.done() or isinstance(awaited, (asyncio.Task, asyncio.tasks._GatheringFuture)):  # type: ignore[attr-defined]  # noqa: SLF001
        return Standing.BLOCKED
    if awaited is None:
        return _running_standing(task)
    code = _innermost(task)
    if code is None:
        return Standing.UNKNOWN
    if code.co_filename in _LOOP_WAITS:
        return Standing.WORKING if code.co_name in _NOT_WAITS else Standing.BLOCKED
    return Standing.WORKING if code.co_filename.startswith(str(_ASYNCIO)) else Standing.UNKNOWN


def _running_standing(task: asyncio.Task[Any]) -> Standing:
    """A task that awaits nothing runs, or will in a moment; it may run into a wait that holds its whole loop up."""
    loop = task.get_loop()
    thread = getattr(loop, "_thread_id", None)
    if thread is None or asyncio.current_task(loop) is not task:
        return Standing.WORKING
    return _thread_standing(thread)


def _innermost(task: asyncio.Task[Any]) -> CodeType | None:
    """The code of the coroutine that does the awaiting, however deep it was called."""
    coroutine: Any = task.get_coro()
    code = None
    while coroutine is not None and hasattr(coroutine, "cr_code"):
        code = coroutine.cr_code
        coroutine = coroutine.cr_await
    return code


def _thread_standing(thread: int) -> Standing:
    frame = sys._current_frames().get(thread)  # noqa: SLF001 - documented; there is no other way to ask
    if frame is None or frame.f_code.co_filename in _THREAD_WAITS:
        return Standing.BLOCKED
    return Standing.WORKING
