"""Waking those in this process who wait for the store, as soon as others tell of something there."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
import threading
from typing import TYPE_CHECKING, Final

from perdure.errors import PerdureError
from perdure.store.protocol import ANYTHING

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.engine.session import Session

_HEAR_SECONDS: Final = 30.0
_SPACING_SECONDS: Final = 0.01
"""News come in bunches where much happens: nobody is woken more often than this."""


class News:
    """Who wants to hear, and the thread that listens for them; it begins with the first who does."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._ears: list[tuple[Callable[[], object], Callable[[frozenset[str]], bool]]] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def hear(self, ear: Callable[[], object], *, of: Callable[[frozenset[str]], bool]) -> Callable[[], None]:
        """Call this, from a thread of ours, where there are news of such runs; the returned function ends that."""
        pair = (ear, of)
        with self._lock:
            self._ears.append(pair)
            if self._thread is None and self._session.store.lease_seconds:  # where others than our machine may tell
                self._thread = threading.Thread(target=self._listen, name="perdure-listener", daemon=True)
                contextvars.Context().run(self._thread.start)

        def forget() -> None:
            with self._lock, contextlib.suppress(ValueError):
                self._ears.remove(pair)

        return forget

    def wait(self, seconds: float, run_id: str) -> None:
        """Wait for news of this run, or of one that goes on in its place, for so long at most."""
        heard = threading.Event()
        forget = self.hear(heard.set, of=functools.partial(_concern, run_id))
        try:
            heard.wait(seconds)
        finally:
            forget()

    async def wait_async(self, seconds: float, run_id: str) -> None:
        """The same on an event loop."""
        loop, heard = asyncio.get_running_loop(), asyncio.Event()
        wake = functools.partial(loop.call_soon_threadsafe, heard.set)
        forget = self.hear(wake, of=functools.partial(_concern, run_id))
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await heard.wait()
        finally:
            forget()

    def wake_all(self) -> None:
        """The session ends: whoever waits sees that."""
        self._tell(ANYTHING)

    def _listen(self) -> None:
        session = self._session
        while not session.has_ended(0.0):
            with contextlib.suppress(PerdureError):  # whoever waits looks by itself meanwhile
                runs = session.store.wait_for_news(_HEAR_SECONDS)
                if runs:
                    self._tell(runs)
                    session.has_ended(_SPACING_SECONDS)

    def _tell(self, runs: frozenset[str]) -> None:
        with self._lock:
            ears = list(self._ears)
        for ear, of in ears:
            if of(runs):
                with contextlib.suppress(RuntimeError, ReferenceError):  # its event loop, or its runner, is gone
                    ear()


def _concern(run_id: str, runs: frozenset[str]) -> bool:
    """Whether there may be news of this run, or of one that goes on in its place."""
    return any(not each or each.partition("~")[0] == run_id.partition("~")[0] for each in runs)
