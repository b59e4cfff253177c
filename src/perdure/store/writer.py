"""The one way into a store: concurrent callers share one transaction and one sync.

A caller puts its append into the queue and takes a turn; whoever has one commits what is queued. A lone sync caller
thus commits inline, in its own thread, and a crowd is grouped by itself. Callers on an event loop are flushed together
once an iteration: inline while commits are quick, on a thread where they would hold the loop up. One that is alone on
its loop does not even wait for the iteration, except now and then, to let the loop come round.

A store on a server can have several commits under way, so there are as many turns as it has lanes. A crowd is then
spread over them, and the next steps of some runs are made while those of others are on their way. The appends of one
run never are on two of them: they are committed in the order in which they were made.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure import clock

if TYPE_CHECKING:
    from perdure.records import Append
    from perdure.store.protocol import Outcome, Store

INLINE_COMMIT_SECONDS: Final = 0.005
"""How long an event loop may be held by a commit, judged by recent ones."""

MAX_BATCH: Final = 512
_SMOOTHING: Final = 0.2


class Ticket(Struct, eq=False):
    """One queued append, and how it ended."""

    append: Append
    taken: bool = False
    done: bool = False
    error: Outcome = None
    waiter: asyncio.Future[None] | None = None

    def check(self) -> None:
        """Raise what became of the append, if it did not land."""
        if self.error is not None:
            raise self.error


class Turns:
    """The turns of a store with several lanes: so many may commit at once.

    Where there is one lane a lock gives the turns. Python enters it in one piece, so that no exception which a signal
    raises, such as KeyboardInterrupt, can come between taking a turn and knowing that it must be given back.
    """

    def __init__(self, lanes: int) -> None:
        self._free: queue.SimpleQueue[None] = queue.SimpleQueue()
        for _ in range(lanes):
            self._free.put(None)

    def locked(self) -> bool:
        """Whether whoever wants a turn has to wait for one."""
        return self._free.empty()

    def __enter__(self) -> None:
        self._free.get()

    def __exit__(self, *_: object) -> None:
        self._free.put(None)


class Writer:
    """Group commit over one store; safe to use from any thread and any event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lanes = store.lanes
        self._turns = threading.Lock() if self._lanes == 1 else Turns(self._lanes)
        self._queue: deque[Ticket] = deque()
        self._taking = threading.Lock()
        self._moved = threading.Condition(self._taking)
        self._waiting = 0
        self._under_way: set[str] = set()
        """Runs whose appends are being committed."""
        self._holds_back = False
        """Whether somebody had to leave appends in the queue because of a commit under way."""
        self._loops: set[asyncio.AbstractEventLoop] = set()
        self._smoothed_seconds = 0.0
        self._was_alone = False
        self._flushed_at = 0.0
        self._threads: list[threading.Thread] = []
        self._wanted: queue.SimpleQueue[None] = queue.SimpleQueue()

    def submit(self, append: Append) -> Ticket:
        """Queue an append; the order of submission is the order of commit."""
        ticket = Ticket(append)
        self._queue.append(ticket)
        return ticket

    def wait(self, ticket: Ticket) -> None:
        """Return once the append is committed; raise if it was refused."""
        while not ticket.done:
            with self._turns:
                has_moved = ticket.done or self._commit_alone(ticket) or self._commit_queued()
            if not has_moved:
                self._wait_for_others(ticket)
        ticket.check()

    async def wait_async(self, ticket: Ticket) -> None:
        """Like `wait`, without holding up the event loop for longer than a quick commit."""
        if self._is_alone() and self._commit_inline(ticket) and ticket.done:
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
        self._was_alone = len(self._queue) == 1 and not self._under_way
        is_inline = self._was_alone or self._lanes == 1
        if not (is_inline and self._commit_inline()) and self._queue:
            self._ask_thread()
        self._flushed_at = clock.elapsed_seconds()

    def _commit_inline(self, only: Ticket | None = None) -> bool:
        """Commit all that is queued, here and now, if that is quick and nobody else is at it.

        `only` is an append that is probably all there is.
        """
        if self._smoothed_seconds > INLINE_COMMIT_SECONDS or self._turns.locked():
            return False
        with self._turns:
            if only is not None and not only.done:
                self._commit_alone(only)
            while self._queue and self._commit_queued():
                pass
        return not self._queue

    def _ask_thread(self) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) < self._lanes:
            thread = threading.Thread(target=self._serve, name="perdure-writer", daemon=True)
            self._threads.append(thread)
            contextvars.Context().run(thread.start)  # it serves every run, and is no part of the one that asks
        self._wanted.put(None)

    def _serve(self) -> None:
        while True:
            self._wanted.get()
            has_moved = True
            while has_moved and self._queue:
                with self._turns:
                    has_moved = self._commit_queued()

    def _wait_for_others(self, ticket: Ticket) -> None:
        """Wait until a commit is over, where this append is in one that is under way, or held back by it."""
        with self._taking:
            is_held_back = ticket.taken or ticket.append.run.run_id in self._under_way
            if is_held_back and not ticket.done:
                self._waiting += 1
                self._moved.wait()
                self._waiting -= 1

    def _commit_alone(self, ticket: Ticket) -> bool:
        """Commit the append of a caller who has a turn to itself, the short way; False where others are about."""
        if len(self._queue) > 1 or (self._lanes > 1 and not self._take_alone(ticket)):
            return False
        append, started = ticket.append, 0.0
        if self._lanes == 1:
            self._queue.popleft()
            started = clock.elapsed_seconds()
        try:
            (ticket.error,) = self._store.append_all((append,), power=append.power)
        except Exception as error:  # noqa: BLE001 - as for a batch
            ticket.error = error
        except BaseException as error:
            ticket.error = error
            raise
        finally:
            ticket.done = True
            if self._lanes > 1:
                self._let_alone_go(ticket)
        if self._lanes == 1:
            self._learn(started)
        return True

    def _take_alone(self, ticket: Ticket) -> bool:
        """Take the only append there is out of the queue, where no other is under way."""
        with self._taking:
            if self._under_way or len(self._queue) > 1 or ticket.taken:
                return False
            self._queue.popleft()
            self._under_way.add(ticket.append.run.run_id)
            ticket.taken = True
            return True

    def _let_alone_go(self, ticket: Ticket) -> None:
        with self._taking:
            is_awaited = self._waiting or self._holds_back
            if not is_awaited:
                self._under_way.discard(ticket.append.run.run_id)
        if is_awaited and self._let_go([ticket]):
            self._ask_thread()

    def _commit_queued(self) -> bool:
        """Commit what is queued in one transaction, by whoever has a turn; False where nothing could be taken."""
        started = clock.elapsed_seconds()
        batch = self._take()
        if not batch:
            return False
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
            self._finish(batch, outcomes)
        self._learn(started)
        return True

    def _learn(self, started: float) -> None:
        """How long commits take lately."""
        self._smoothed_seconds += _SMOOTHING * (clock.elapsed_seconds() - started - self._smoothed_seconds)

    def _take(self) -> list[Ticket]:
        """Take this turn's share out of the queue."""
        if self._lanes > 1:
            return self._take_share()
        waiting = self._queue
        batch: list[Ticket] = []
        while waiting and len(batch) < MAX_BATCH:
            batch.append(waiting.popleft())
        return batch

    def _take_share(self) -> list[Ticket]:
        """Take the appends of so many runs that the other lanes have theirs; none of a run that is under way."""
        batch: list[Ticket] = []
        left: list[Ticket] = []
        runs: set[str] = set()
        with self._taking:
            share = -(-(len(self._queue) + len(self._under_way)) // self._lanes)
            while self._queue and len(batch) < MAX_BATCH:
                ticket = self._queue.popleft()
                run_id = ticket.append.run.run_id
                if run_id not in self._under_way and (run_id in runs or len(runs) < share):
                    ticket.taken = True
                    runs.add(run_id)
                    batch.append(ticket)
                else:
                    left.append(ticket)
            is_more = bool(self._queue) or any(ticket.append.run.run_id not in self._under_way for ticket in left)
            self._under_way |= runs
            self._queue.extendleft(reversed(left))
            self._holds_back = self._holds_back or bool(self._queue)
        if batch and is_more and self._threads:
            self._ask_thread()
        return batch

    def _finish(self, batch: list[Ticket], outcomes: list[Outcome]) -> None:
        """Tell everybody of the batch how it ended."""
        for ticket, outcome in zip(batch, outcomes, strict=True):
            ticket.error = outcome
            ticket.done = True
        held_back = self._lanes > 1 and self._let_go(batch)
        if len(batch) > 1 or batch[0].waiter is not None:
            _wake(batch)
        if held_back:
            self._ask_thread()

    def _let_go(self, batch: list[Ticket]) -> bool:
        """These runs have nothing under way any more; whether something was held back that a loop waits for."""
        with self._taking:
            self._under_way.difference_update([ticket.append.run.run_id for ticket in batch])
            held_back, self._holds_back = self._holds_back, False
            if self._waiting:
                self._moved.notify_all()
        return held_back and any(ticket.waiter is not None for ticket in tuple(self._queue))


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
            _resolve(waiter)
        else:
            elsewhere.setdefault(loop, []).append(waiter)
    for loop, its_waiters in elsewhere.items():
        try:
            loop.call_soon_threadsafe(_resolve_all, its_waiters)
        except RuntimeError:
            continue  # the loop was closed under its waiters; nobody is left to tell


def _resolve(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _resolve_all(waiters: list[asyncio.Future[None]]) -> None:
    for waiter in waiters:
        _resolve(waiter)
