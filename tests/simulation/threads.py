"""What perdure takes from `threading` and `queue`, over the scheduler: a strand that waits hands the baton on."""

from __future__ import annotations

import math
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from tests.simulation import now_playing
from tests.simulation.scheduler import Strand


class Thread:
    """A thread of the process that starts it."""

    def __init__(
        self,
        target: Callable[..., Any] | None = None,
        name: str = "",
        args: Iterable[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        daemon: bool | None = None,
    ) -> None:
        self._target = target
        self._args = tuple(args)
        self._kwargs = dict(kwargs or {})
        self.name = name
        self.daemon = daemon
        self._strand: Strand | None = None
        self._is_over = Event()

    def start(self) -> None:
        scheduler = now_playing.scheduler()
        household = scheduler.current.household
        short = self.name.removeprefix("perdure-") or getattr(self._target, "__name__", "thread")
        self._strand = scheduler.begin(self._bootstrap, name=f"{household.name}:{short}", household=household)
        self._strand.thread = self

    def run(self) -> None:
        if self._target is not None:
            self._target(*self._args, **self._kwargs)

    def join(self, timeout: float | None = None) -> None:
        self._is_over.wait(timeout)

    def is_alive(self) -> bool:
        return self._strand is not None and not self._is_over.is_set()

    @property
    def waits_for_others(self) -> bool:
        """Whether it is over, or can only go on when another one does."""
        return self._strand is not None and (self._strand.is_done or self._strand.waits_for_others)

    def adopt(self, strand: Strand) -> None:
        """Be the thread of a strand that nobody started as one."""
        self._strand = strand
        strand.thread = self

    def _bootstrap(self) -> None:
        try:
            self.run()
        finally:
            self._is_over.set()


class Event:
    """A flag that strands wait for."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[Strand] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        waiting, self._waiting = self._waiting, []
        for strand in waiting:
            now_playing.scheduler().wake(strand)

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = now_playing.scheduler()
        if not self._is_set and (timeout is None or timeout > 0):
            me = scheduler.current
            self._waiting.append(me)
            try:
                scheduler.wait(math.inf if timeout is None else timeout)
            finally:
                if me in self._waiting:
                    self._waiting.remove(me)
        return self._is_set


class Lock:
    """A lock that is held by one strand, as often as it likes where it is reentrant."""

    is_reentrant = False

    def __init__(self) -> None:
        self._holder: Strand | None = None
        self._depth = 0
        self._waiting: deque[Strand] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = now_playing.scheduler()
        me = scheduler.current
        while self._holder is not None and not (self.is_reentrant and self._holder is me):
            if self._holder.is_done or self._holder.household.is_dead:
                break  # what a dead process held is nobody's
            if not blocking:
                return False
            self._waiting.append(me)
            woken = scheduler.wait(timeout if timeout >= 0 else math.inf)
            if not woken and timeout >= 0:
                self._waiting.remove(me)
                return False
        self._holder = me
        self._depth += 1
        return True

    def release(self) -> None:
        self._depth -= 1
        if self._depth <= 0:
            self._holder, self._depth = None, 0
            if self._waiting:
                now_playing.scheduler().wake(self._waiting.popleft())

    def locked(self) -> bool:
        return self._holder is not None

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class RLock(Lock):
    """A lock that its holder may take again."""

    is_reentrant = True


class Condition:
    """A lock, and strands that wait for word from whoever has it."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock or RLock()
        self._waiting: deque[Strand] = deque()

    def wait(self, timeout: float | None = None) -> bool:
        scheduler = now_playing.scheduler()
        self._waiting.append(scheduler.current)
        self._lock.release()
        try:
            return scheduler.wait(math.inf if timeout is None else timeout)
        finally:
            self._lock.acquire()

    def notify_all(self) -> None:
        while self._waiting:
            now_playing.scheduler().wake(self._waiting.popleft())

    def __enter__(self) -> bool:
        return self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class SimpleQueue:
    """A queue without an end."""

    def __init__(self) -> None:
        self._items: deque[Any] = deque()
        self._waiting: deque[Strand] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        if self._waiting:
            now_playing.scheduler().wake(self._waiting.popleft())

    def get(self) -> Any:
        scheduler = now_playing.scheduler()
        while not self._items:
            self._waiting.append(scheduler.current)
            scheduler.wait()
        return self._items.popleft()

    def get_nowait(self) -> Any:
        if not self._items:
            raise queue.Empty
        return self._items.popleft()


class Threading:
    """Stands where a module of perdure has `threading`."""

    Thread = Thread
    Event = Event
    Lock = Lock
    RLock = RLock
    Condition = Condition
    local = threading.local

    @staticmethod
    def get_ident() -> int:
        return now_playing.scheduler().current.number

    @staticmethod
    def current_thread() -> object:
        strand = now_playing.scheduler().current
        if strand.thread is None:
            Thread(name=strand.name).adopt(strand)
        return strand.thread


class Queues:
    """Stands where a module of perdure has `queue`."""

    SimpleQueue = SimpleQueue
    Empty: Final = queue.Empty
