"""News of the store: whoever waits for a run or for mail is woken by a notification, and looks.

An accelerator only: nothing is carried by it, one that is lost costs no more than the next look, and without it (a
portable store, a server that is away) waiting is plain waiting. It is sent after the commit it tells of, by a thread of
its own and once for many: a transaction that notifies makes others wait for its commit.
"""

from __future__ import annotations

import contextlib
import contextvars
import threading
from typing import TYPE_CHECKING, Any, Final

import psycopg

from perdure.errors import PerdureError
from perdure.store.postgres.connect import Line
from perdure.store.postgres.refusal import BROKEN
from perdure.store.protocol import ANYTHING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.store.postgres.location import Location

_AGAIN_SECONDS: Final = 1.0
"""How long to wait before a line that broke is opened anew."""

_BETWEEN: Final = "\n"
_LONGEST_BYTES: Final = 7000
_GATHER_SECONDS: Final = 0.002
"""How long one who tells waits for more to tell of."""


class News:
    """What one process tells others of, and hears from them."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._channel = f"perdure_{location.schema}"
        self._listening = Line(location, seconds=0.0, greeting=self._listen)
        self._telling = Line(location, seconds=0.0, synchronous=False)
        self._closed = threading.Event()
        self._wanted = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._told: set[str] = set()
        self._is_new = False

    def tell(self, run_ids: Iterable[str]) -> None:
        """Something was committed to these runs that others may wait for."""
        if self._location.portable or self._closed.is_set():
            return
        with self._lock:
            self._told.update(run_ids)
            if self._thread is None:
                self._thread = threading.Thread(target=self._tell_on, name="perdure-news", daemon=True)
                contextvars.Context().run(self._thread.start)
        self._wanted.set()

    def wait(self, seconds: float) -> frozenset[str]:
        """Wait for news, for so long at most; the runs they are of."""
        if self._location.portable:
            self._closed.wait(seconds)
            return frozenset()
        try:
            with self._listening.use() as connection:
                if self._is_new:
                    self._is_new = False
                    return ANYTHING  # what was told before this line was there is not told again
                heard = [news.payload for news in connection.notifies(timeout=seconds, stop_after=1)]
                return frozenset(run_id for payload in heard for run_id in payload.split(_BETWEEN))
        except (*BROKEN, PerdureError):
            self._closed.wait(min(seconds, _AGAIN_SECONDS))
            return frozenset()

    def close(self) -> None:
        """Hear and tell nothing more; who waits is not waited for."""
        self._closed.set()
        self._wanted.set()
        self._listening.hang_up()
        if self._thread is not None:
            self._thread.join(_AGAIN_SECONDS)
        self._telling.hang_up()

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        connection.execute(f"LISTEN {self._channel}")
        self._is_new = True

    def _tell_on(self) -> None:
        while not self._closed.is_set():
            self._wanted.wait()
            self._closed.wait(_GATHER_SECONDS)
            self._wanted.clear()
            with self._lock:
                told, self._told = self._told, set()
            if told:
                with contextlib.suppress(PerdureError):
                    self._telling.fetch("notify", (self._channel, _written(told)))


def _written(run_ids: set[str]) -> str:
    """As much as one notification can say; more than that is said as `anything`."""
    text = _BETWEEN.join(sorted(run_ids))
    return text if len(text.encode()) < _LONGEST_BYTES else ""
