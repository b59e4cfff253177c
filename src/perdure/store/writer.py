"""The one way into a store: concurrent callers share one transaction and one sync.

A caller puts its append into the queue and takes its turn; whoever has the turn commits everything queued. A lone sync
caller thus commits inline, in its own thread, and a crowd is grouped by itself. Callers on an event loop are flushed
together once an iteration: inline while commits are quick, on a thread where they would hold the loop up. One that is
alone on its loop does not even wait for the iteration, except now and then, to let the loop come round.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from perdure import clock

if TYPE_CHECKING:
    from perdure.records import Append
    from perdure.store.protocol import Outcome, Store

INLINE_COMMIT_SECONDS: Final = 0.005
"""How long an event loop may be held by a commit, judged by recent ones."""

MAX_BATCH: Final = 512
_SMOOTHING: Final = 0.2


class Ticket:
    """One queued append, and how it ended."""

    __slots__ = ("append", "done", "error", "waiter")

    def __init__(self, append: Append) -> None:
        self.append = append
        self.done = False
        self.error: Outcome = None
        self.waiter: asyncio.Future[None] | None = None

    def check(self) -> None:
        """Raise what became of the append, if it did not land."""
        if self.error is not None:
            raise self.error


class Writer:
    """Group commit over one store; safe to use from any thread and any event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: deque[Ticket] = deque()
        self._turn = threading.Lock()
        self._loops: set[asyncio.AbstractEventLoop] = set()
        self._smoothed_seconds = 0.0
        self._was_alone = False
        self._flushed_at = 0.0
        self._thread: threading.Thread | None = None
        self._wanted = threading.Event()

    def submit(self, append: Append) -> Ticket:
        """Queue an append; the order of submission is the order of commit."""
        ticket = Ticket(append)
        self._queue.append(ticket)
        return ticket

    def wait(self, ticket: Ticket) -> None:
        """Return once the append is committed; raise if it was refused."""
        while not ticket.done:
            with self._turn:
                if not ticket.done:
                    self._commit_queued()
        ticket.check()

    async def wait_async(self, ticket: Ticket) -> None:
        """Like `wait`, without holding up the event loop for longer than a quick commit."""
        if self._is_alone() and self._commit_inline():
            ticket.check()
            return
        loop = asyncio.get_running_loop()
        ticket.waiter = loop.create_future()
        if not ticket.done:
            if loop not in self._loops:
                self._loops.add(loop)
                loop.call_soon(self._flush, loop)
            await ticket.waiter
        ticket.check()

    def _is_alone(self) -> bool:
        """Whether nobody else had anything to commit when the event loop last came round, which was just now."""
        return self._was_alone and clock.elapsed_seconds() - self._flushed_at < INLINE_COMMIT_SECONDS

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loops.discard(loop)
        self._was_alone = len(self._queue) == 1
        if not self._commit_inline() and self._queue:
            self._ask_thread()
        self._flushed_at = clock.elapsed_seconds()

    def _commit_inline(self) -> bool:
        """Commit all that is queued, here and now, if that is quick and nobody else is at it."""
        if self._smoothed_seconds > INLINE_COMMIT_SECONDS or not self._turn.acquire(blocking=False):
            return False
        try:
            while self._queue:
                self._commit_queued()
        finally:
            self._turn.release()
        return True

    def _ask_thread(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._serve, name="perdure-writer", daemon=True)
            contextvars.Context().run(self._thread.start)  # it serves every run, and is no part of the one that asks
        self._wanted.set()

    def _serve(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            while self._queue:
                with self._turn:
                    self._commit_queued()

    def _commit_queued(self) -> None:
        """Commit up to MAX_BATCH queued appends in one transaction; the caller has the turn."""
        if not self._queue:
            return
        batch = [self._queue.popleft()]
        while self._queue and len(batch) < MAX_BATCH:
            batch.append(self._queue.popleft())
        started = clock.elapsed_seconds()
        outcomes: list[Outcome] = []
        try:
            appends = [ticket.append for ticket in batch]
            power = appends[0].power or any(append.power for append in appends)
            outcomes = self._store.append_all(appends, power=power)
        except Exception as error:  # noqa: BLE001 - each caller of the batch gets it, and the next batch goes on
            outcomes = [error] * len(batch)
        except BaseException as error:
            outcomes = [error] * len(batch)
            raise
        finally:
            for ticket, outcome in zip(batch, outcomes, strict=True):
                ticket.error = outcome
                ticket.done = True
            _wake(batch)
        self._smoothed_seconds += _SMOOTHING * (clock.elapsed_seconds() - started - self._smoothed_seconds)


def _wake(batch: list[Ticket]) -> None:
    """Tell the waiting coroutines, with one call into each event loop."""
    waiters = [ticket.waiter for ticket in batch if ticket.waiter is not None]
    if not waiters:
        return
    here = asyncio._get_running_loop()  # noqa: SLF001 - the public form raises where no loop runs
    elsewhere: dict[asyncio.AbstractEventLoop, list[asyncio.Future[None]]] = {}
    for waiter in waiters:
        loop = waiter.get_loop()
        if loop is here:
            _finish(waiter)
        else:
            elsewhere.setdefault(loop, []).append(waiter)
    for loop, its_waiters in elsewhere.items():
        try:
            loop.call_soon_threadsafe(_finish_all, its_waiters)
        except RuntimeError:
            continue  # the loop was closed under its waiters; nobody is left to tell


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _finish_all(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        _finish(waiter)
