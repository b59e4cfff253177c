"""Rehearses one run: its journal is replayed against the code, and nothing is performed, recorded or made.

A strand whose journal is used up stands still where it would perform, wait or write next; once all of them stand still,
or the code makes another call than the recorded one, the rehearsal is over. Code between the steps is executed.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import threading
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure import clock
from perdure.bodies import write_body
from perdure.engine.active import Active
from perdure.engine.scope import current_frame
from perdure.engine.session import Session
from perdure.engine.stillness import Standing, Watch
from perdure.errors import RunSuspended, Signal
from perdure.records import Kind, Record
from perdure.replay import Fresh, InDoubt, Open
from perdure.settings import Settings
from perdure.store.memory import MemoryStore, Shelf

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.engine.active import Stop
    from perdure.engine.scope import Frame, Scope
    from perdure.records import Append, Run
    from perdure.replay import Call, Decision, Journal
    from perdure.store.protocol import Whole

STILL_SECONDS: Final = 1.0
"""A strand of which nothing else is known, and that makes no call for so long, waits for another."""

LOOK_SECONDS: Final = 0.002
"""How often whoever watches a rehearsal looks."""

_LOOKS: Final = 2
"""So many looks in a row must find every strand at rest before that is believed."""


class Exhausted(Signal):
    """The journal of this strand is used up, and a call that blocks an event loop cannot stand still."""


class Pending(Struct, frozen=True):
    """A call that a resume would perform, ask about or wait for."""

    key: str
    name: str
    kind: str
    standing: str
    """`fresh`, `in doubt` or `open`."""


class Rehearsal(Active):
    """A run that is replayed and not executed: every strand stops where its journal ends."""

    is_rehearsal = True

    def __init__(self, store: MemoryStore, row: Run, journal: Journal) -> None:
        super().__init__(store, Still(self), row, journal)  # type: ignore[arg-type]
        self.deadline_at = math.inf  # every call asks whether its strand may still make one
        self.pending: dict[str, Pending] = {}
        self._exhausted: set[Scope] = set()
        self._sleepers: list[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = []
        self._over = threading.Event()
        self._watch = Watch()
        self._looks = 0
        self._seen = -1
        self._since = 0.0

    @property
    def is_recalling(self) -> bool:
        """Every call is decided on, so that each counts as a movement."""
        return False

    def decide(self, call: Call) -> Decision:
        """What this call means; what a resume would do about it, where the journal does not say."""
        decision = super().decide(call)
        self.movements += 1
        standing = {Fresh: "fresh", InDoubt: "in doubt", Open: "open"}.get(type(decision))
        if standing is not None:
            self.pending[call.key] = Pending(call.key, call.name, call.kind, standing)
        if isinstance(decision, Fresh):
            return Fresh(decision.attempt, forgiven=decision.forgiven)  # nobody waits for its next attempt here
        return decision

    def raise_if_stopped(self) -> None:
        frame = current_frame()
        if frame is not None and frame.scope.strand in self._exhausted:
            raise Exhausted
        super().raise_if_stopped()

    def submit(self, kind: Kind, call: Call | None, body: Struct | None, **_others: Any) -> tuple[Any, Record]:
        """Nothing is recorded: who waits for a record of its call stands still; notes are as good as written."""
        key, name, arguments = ("", self.row.agent, b"") if call is None else (call.key, call.name, call.arguments)
        text = "{}" if body is None else write_body(body)
        record = Record(self.row.length, kind, key, name, arguments, clock.wall_seconds(), self.row.epoch, text)
        is_beside = call is None or kind in (Kind.NOTE, Kind.PATCHED)
        return is_beside, record

    def body_of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """In place of a body: the end of the journal of whoever calls it."""
        is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)

        def stand(*_args: object, **_kwargs: object) -> None:
            self.stand()

        async def stand_later(*_args: object, **_kwargs: object) -> None:
            await self.stand_later()

        return stand_later if is_async else stand

    def begin_body(self, frame: Frame) -> None:  # noqa: ARG002 - nothing is executed
        self.movements += 1

    def end_body(self, frame: Frame) -> None:  # noqa: ARG002
        self.movements += 1

    def may_leave(self) -> bool:
        """A wait that is not over: a thread stands still in it; a task goes on looking until all do."""
        frame = current_frame()
        if frame is None or not frame.can_await:
            self.stand()
        return False

    def halt(self, stop: Stop) -> Signal:
        """The first reason ends the rehearsal for every strand."""
        signal = super().halt(stop)
        self.release()
        return signal

    def stand(self) -> None:
        """Stand still until the rehearsal is over; on an event loop, where others must go on, stop this strand."""
        strand = self._strand()
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - as above
            if strand is not None:
                self.exhaust(strand)
            raise Exhausted
        self.waiting.add(strand)
        self._over.wait()
        raise self.signal or Exhausted

    async def stand_later(self) -> None:
        """The same for a task, which lets its loop go on; one that is cancelled moves again."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._sleepers.append((loop, future))
        strand = self._strand()
        self.waiting.add(strand)
        try:
            if not self._over.is_set():
                await future
        finally:
            self.waiting.discard(strand)
        raise self.signal or Exhausted

    def exhaust(self, strand: Scope) -> None:
        """Let this strand make no call any more."""
        self._exhausted.add(strand)
        self.waiting.add(strand)

    def is_still(self) -> bool:
        """Whether no strand can come any further; asked again and again by whoever watches."""
        if not self.waiting:
            return False
        if not self.strands and self.root in self.waiting:
            return True
        standing = self.standing(self._watch)
        if self.movements != self._seen or standing is Standing.WORKING:
            self._seen, self._looks, self._since = self.movements, 0, clock.elapsed_seconds()
            return False
        self._looks += 1
        if standing is Standing.BLOCKED:
            return self._looks >= _LOOKS
        return clock.elapsed_seconds() - self._since >= STILL_SECONDS

    def release(self) -> None:
        """It is over: everybody who stands still is told, and none makes another call."""
        self.signal = self.signal or RunSuspended(f"Run {self.row.name} was only rehearsed.")
        self._over.set()
        for loop, future in list(self._sleepers):
            with contextlib.suppress(RuntimeError):  # its loop is closed, and its task with it
                loop.call_soon_threadsafe(_wake, future)

    def _strand(self) -> Scope | None:
        frame = current_frame()
        return None if frame is None else frame.scope.strand


class Still:
    """In place of a writer: nothing is ever committed, so that whoever waits for a commit stands still."""

    def __init__(self, rehearsal: Rehearsal) -> None:
        self._rehearsal = rehearsal

    def submit(self, append: Append) -> bool:
        """Nothing of a rehearsal is written."""
        raise AssertionError(append)

    def wait(self, ticket: bool) -> None:  # noqa: FBT001 - what `Rehearsal.submit` gave
        """At once for a note; never for the record of a call."""
        if not ticket:
            self._rehearsal.stand()

    async def wait_async(self, ticket: bool) -> None:  # noqa: FBT001 - as above
        """The same for a task."""
        if not ticket:
            await self._rehearsal.stand_later()


class Shelved(MemoryStore):
    """The one run that is rehearsed, in memory; large values are loaded from where they are when one is read."""

    def __init__(self, whole: Whole, load_blob: Callable[[bytes], bytes]) -> None:
        shelf = Shelf()
        shelf.runs[whole.run.run_id] = whole.run
        shelf.journals[whole.run.run_id] = list(whole.records)
        shelf.mail.update({mail.mail_id: mail for mail in whole.mail})
        super().__init__(shelf)
        self._load_large = load_blob

    def load_blob(self, digest: bytes) -> bytes:
        """A large value of the run."""
        return self._load_large(digest)


class Stage(Session):
    """What code of a rehearsed run gets for its session: every child runs elsewhere, and nobody is written to."""

    def __init__(self, store: Shelved) -> None:
        super().__init__(Settings(store="memory:"))
        self.store = store

    def is_running(self, run: Run) -> bool:
        """Nothing is executed here."""
        del run
        return True

    def deliver_mail(self) -> None:
        """Nothing here holds a run."""


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
