"""Which recorded answer a request gets: that of the very same request, in the same strand, in the order recorded.

A request that differs in anything is never given the answer of another. Where a strand asks for something that its
records do not have, while it has records left, the program has taken another way than before.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from perdure.replay import Entry

MODEL: Final = "=model:"
TOOL: Final = "=tool:"


def scope_of(key: str) -> str:
    """The strand in which a call of this key was made."""
    return key.rpartition("@")[2]


class Recorded:
    """The model calls of a journal that this execution has not asked for again yet, strand by strand."""

    def __init__(self, entries: Mapping[str, Entry], *, is_error: Callable[[str], bool]) -> None:
        self._entries = entries
        self._left: dict[str, list[str]] = {}
        self._made: dict[str, int] = {}
        self._lock = threading.Lock()
        for scope, keys in _by_scope(entries).items():
            while keys and keys[-1].startswith(MODEL) and is_error(keys[-1]):
                keys.pop()  # nothing was made of this answer: what was asked is asked again
            self._left[scope] = [key for key in keys if key.startswith(MODEL)]
        for key in entries:
            if key.startswith(MODEL):
                scope = scope_of(key)
                self._made[scope] = max(self._made.get(scope, 0), 1 + _number_of(key))

    def take(self, scope: str, arguments: bytes) -> str | None:
        """The key of the recorded call that this one is, each given once; a strand's own come before another's."""
        with self._lock:
            others = () if self._left.get(scope) else [other for other in self._left if other != scope]
            for place in (scope, *others):
                for key in self._left.get(place, ()):
                    if self._entries[key].arguments == arguments:
                        self._left[place].remove(key)
                        return key
            return None

    def expected(self, scope: str) -> str | None:
        """The key of the call that this strand made next when it was recorded."""
        with self._lock:
            return next(iter(self._left.get(scope, ())), None)

    def new_key(self, scope: str) -> str:
        """A key that no call of this run has had."""
        with self._lock:
            number = self._made.get(scope, 0)
            self._made[scope] = number + 1
            return f"{MODEL}{number}@{scope}"


def _by_scope(entries: Mapping[str, Entry]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for key, entry in entries.items():
        if key.startswith((MODEL, TOOL)) and (entry.completion is not None or entry.is_open):
            found.setdefault(scope_of(key), []).append(key)
    return found


def _number_of(key: str) -> int:
    return int(key.removeprefix(MODEL).partition("@")[0])
