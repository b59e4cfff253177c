"""Executes several items of a map at once, in threads or in tasks.

A lane is no strand of the agent: no key depends on which lane an item is executed in.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from collections.abc import Callable, Coroutine, Generator
from queue import Empty, SimpleQueue
from typing import Any, Protocol

from perdure.engine.drive import Operation
from perdure.engine.mapping.item import Outcome, Performer
from perdure.engine.mapping.source import Item
from perdure.engine.scope import Frame, Scope, enter_frame
from perdure.engine.stillness import Worker
from perdure.errors import Signal

Ended = tuple[Item, Outcome | None, BaseException | None]
"""An item, and what became of it, or what stopped it."""


class Lanes(Protocol):
    """Where items are executed."""

    busy: int
    """How many items have been started and not been handed back."""

    def start(self, item: Item) -> None:
        """Have this item executed; no more than there are lanes."""

    def next(self, seconds: float) -> Operation:
        """An operation that gives the next item that ended, or None after so many seconds."""

    def close(self) -> Operation:
        """An operation that ends the lanes, each after the item it executes."""


class Threads:
    """Several items at once, each in a thread."""

    def __init__(self, performer: Performer, frame: Frame, *, count: int) -> None:
        self._performer = performer
        self._frame = frame
        self._count = count
        self._items: SimpleQueue[tuple[Item, Frame] | None] = SimpleQueue()
        self._ended: SimpleQueue[Ended] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self.busy = 0

    def start(self, item: Item) -> None:
        self.busy += 1
        if len(self._threads) < min(self.busy, self._count):
            thread = threading.Thread(target=self._serve, daemon=True)
            self._threads.append(thread)
            contextvars.Context().run(thread.start)  # a thread of the agent's would be a strand of the run
        self._items.put((item, _begun(self._frame)))

    def next(self, seconds: float) -> Operation:
        return _Blocking(lambda: self._next(seconds))

    def close(self) -> Operation:
        return _Blocking(self._close)

    def _next(self, seconds: float) -> Ended | None:
        try:
            ended = self._ended.get(timeout=seconds)
        except Empty:
            return None
        self.busy -= 1
        return ended

    def _close(self) -> None:
        for _ in self._threads:
            self._items.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while (taken := self._items.get()) is not None:
            item, frame = taken
            with _moving(frame, threading.current_thread()):
                try:
                    self._ended.put((item, self._performer.now(item, frame), None))
                except BaseException as error:  # noqa: BLE001 - raised again by the map
                    self._ended.put((item, None, error))


class Tasks:
    """Several items at once, each in a task of the running event loop."""

    def __init__(self, performer: Performer, frame: Frame, *, count: int) -> None:
        self._performer = performer
        self._frame = frame
        self._count = count
        self._items: asyncio.Queue[tuple[Item, Frame]] = asyncio.Queue()
        self._ended: asyncio.Queue[Ended] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self.busy = 0

    def start(self, item: Item) -> None:
        self.busy += 1
        if len(self._tasks) < min(self.busy, self._count):
            context = contextvars.copy_context()
            loop = asyncio.get_running_loop()
            # A task made in the frame of the agent would be a strand of the run.
            serve = contextvars.Context().run(loop.create_task, self._serve(), context=context)
            self._tasks.append(serve)
        self._items.put_nowait((item, _begun(self._frame)))

    def next(self, seconds: float) -> Operation:
        return _Awaiting(lambda: self._next(seconds))

    def close(self) -> Operation:
        return _Awaiting(self._close)

    async def _next(self, seconds: float) -> Ended | None:
        try:
            async with asyncio.timeout(seconds):
                ended = await self._ended.get()
        except TimeoutError:
            return None
        self.busy -= 1
        return ended

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self) -> None:
        while True:
            item, frame = await self._items.get()
            with _moving(frame, asyncio.current_task()):
                try:
                    self._ended.put_nowait((item, await self._performer.later(item, frame), None))
                except (Exception, Signal) as error:  # noqa: BLE001 - raised again by the map
                    self._ended.put_nowait((item, None, error))


class _Blocking:
    """An operation that only a thread can wait for."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self._act = act

    def now(self) -> Any:
        return self._act()

    async def later(self) -> Any:
        return self._act()


class _Awaiting:
    """An operation that only a task can wait for."""

    def __init__(self, act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self._act = act

    def now(self) -> Any:
        raise AssertionError(self._act)

    async def later(self) -> Any:
        return await self._act()


def _begun(frame: Frame) -> Frame:
    """The frame of an item: it waits and moves on its own, and its caller goes on only when it does.

    From here on the run knows that something moves, so that it does not stop under an effect that is about to begin.
    """
    scope = Scope(f"{frame.scope.path}[]", parent=frame.scope.strand)
    if frame.active is not None:
        frame.active.begin_strand(scope)
    return Frame(frame.active, scope, caller=frame)


@contextlib.contextmanager
def _moving(frame: Frame, worker: Worker | None) -> Generator[None, None, None]:
    """Execute the item of this frame here; whoever waits for it is told before it counts as over."""
    frame.scope.worker = worker
    enter_frame(frame)
    try:
        yield
    finally:
        if frame.active is not None:
            frame.active.end_strand(frame.scope)
