"""Keeping the leases of the runs held here: one thread says that this process lives, one watches whether that is heard.

Where others judge by the lease, because they cannot see whether this process lives, a process that cannot renew stops
its runs before anybody may take them: at their next call, and inside what they await. They go on from the store, here
or elsewhere, once it is back. A third thread brings mail. None has anything to do with an event loop, and only the last
with the connections of the runs: a body or a statement that hangs holds up no sign of life.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from typing import TYPE_CHECKING, Final

from perdure import clock
from perdure.errors import PerdureError

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.engine.session import Session
    from perdure.settings import Settings

TICK_SECONDS: Final = 1.0
"""How often mail is looked for, and a beat that failed is tried again."""

_MARGIN: Final = 1 / 6
"""The part of a lease before its end in which nothing is begun any more."""


def lapse_seconds(lease_seconds: float, *, renew_seconds: float) -> float:
    """How old the last acknowledged sign of life may be before the runs stop; a healthy beat never comes close."""
    return lease_seconds - min(lease_seconds * _MARGIN, (lease_seconds - renew_seconds) / 2)


class Upkeep:
    """The signs of life of one session, and what follows where they are not acknowledged."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._acknowledged_at = 0.0
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Start the threads, once."""
        with self._lock:
            if not self._threads:
                self._threads = [_started(self._beat_on, "perdure-beat"), _started(self._bring_mail, "perdure-mail")]
                if self._session.store.lease_seconds:
                    self._threads.append(_started(self._watch, "perdure-lease"))

    def acknowledge(self, since: float) -> None:
        """The store has answered a sign of life that was sent at this moment of the boot clock."""
        self._acknowledged_at = max(self._acknowledged_at, since)

    def holds(self) -> bool:
        """Whether nobody may take the runs of this process yet; the store is asked where that is unsure."""
        if self._is_lapsed():
            self._beat()  # a process that was frozen finds out whether it is still counted among the living
        return not self._is_lapsed()

    def _is_lapsed(self) -> bool:
        lease_seconds = self._session.store.lease_seconds
        if not lease_seconds:
            return False
        limit = lapse_seconds(lease_seconds, renew_seconds=self._session.settings.renew_seconds)
        return clock.boot_seconds() - self._acknowledged_at >= limit

    def _watch(self) -> None:
        """Stop everything where no sign of life is acknowledged in time, whatever the thread that beats waits for."""
        session = self._session
        while not session.has_ended(_tick_of(session.settings) / 2):
            if session.needs_upkeep and self._is_lapsed():
                session.lapse()

    def _beat_on(self) -> None:
        """Beat while anything is held, and free what this process had to let go of."""
        session = self._session
        while not session.has_ended(_tick_of(session.settings)):
            if not session.needs_upkeep:
                continue
            if clock.boot_seconds() - self._acknowledged_at >= session.settings.renew_seconds:
                self._beat()
            if not self._is_lapsed():
                with contextlib.suppress(PerdureError):  # at the next sign of life it is tried again
                    session.give_back()

    def _beat(self) -> None:
        since = clock.boot_seconds()
        with contextlib.suppress(PerdureError):  # a store that fails here fails the runs at their own next write
            self._session.store.beat(self._session.store.join().worker_id)
            self.acknowledge(since)

    def _bring_mail(self) -> None:
        session, posted = self._session, threading.Event()
        session.news.hear(posted.set, of=session.holds_any)
        while not session.has_ended(0.0):
            posted.wait(_tick_of(session.settings))
            posted.clear()
            with contextlib.suppress(PerdureError):
                session.deliver_mail()


def _tick_of(settings: Settings) -> float:
    return min(TICK_SECONDS, settings.renew_seconds / 4)


def _started(target: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=target, name=name, daemon=True)
    contextvars.Context().run(thread.start)  # it serves every run, and is no part of the one that asks
    return thread
