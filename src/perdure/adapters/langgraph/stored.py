"""Which pieces of a thread are known to be kept, in which edition of the thread, so that they are not sent again."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

MOST_THREADS: Final = 256
MOST_PIECES: Final = 200_000
"""Of one thread; one with more is looked at afresh now and then."""


class Stored:
    """What this process knows of each thread; safe to use from any thread."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[bytes, set[bytes]]] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, thread: str) -> tuple[bytes, frozenset[bytes] | set[bytes]]:
        """The edition of the thread as it is known here, and its pieces; empty where nothing is."""
        with self._lock:
            return self._known.get(thread, (b"", frozenset()))

    def add(self, thread: str, edition: bytes, references: Iterable[bytes]) -> None:
        """These were written, or read, in this edition."""
        with self._lock:
            known, pieces = self._known.pop(thread, (edition, set()))
            if known != edition or len(pieces) > MOST_PIECES:
                pieces = set()
            pieces.update(references)
            self._known[thread] = (edition, pieces)
            if len(self._known) > MOST_THREADS:
                self._known.popitem(last=False)

    def forget(self, thread: str) -> None:
        """Nothing of it is known any more."""
        with self._lock:
            self._known.pop(thread, None)
