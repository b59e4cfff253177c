"""Which values need not be serialized again: those of which everything is still as it was when they last were.

A value is recognised by being the same object with the same state. The state of plain data and of LangChain's own
messages is everything their serialized form follows from; it is compared byte for byte, or, which is quicker and the
same where there is nothing but texts in it, by being equal. A value of any other class is always serialized: what its
form follows from is not known.
"""

from __future__ import annotations

import marshal
import threading
from collections.abc import Sequence
from typing import Any, Final

from langchain_core.messages import BaseMessage
from msgspec import Struct

MOST_BYTES: Final = 32 * 1024 * 1024
"""How much of the state of values is remembered."""

_PLAIN: Final = frozenset({str, dict, list})
_FORMAT: Final = 2
"""Of `marshal`: later ones depend on how many others refer to a part."""


class _Known(Struct, frozen=True):
    item: Any
    reference: bytes
    state: bytes
    texts: dict[str, Any] | None
    """A copy of the fields of a message that holds nothing but texts: equal ones are the same ones."""


class Likenesses:
    """What was serialized lately, by identity; safe to use from any thread."""

    def __init__(self, *, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._known: dict[int, _Known] = {}
        self._lock = threading.Lock()

    def find(self, items: Sequence[Any]) -> list[bytes | None]:
        """For each item the reference to the piece that it was, if it is still what it was."""
        known = self._known
        found: list[bytes | None] = []
        for item in items:
            entry = known.get(id(item))
            if entry is None:
                found.append(None)
            elif entry.texts is not None:
                is_same = entry.texts == item.__dict__ and not item.__pydantic_extra__
                found.append(entry.reference if is_same else None)
            else:
                found.append(entry.reference if entry.state == state_of(item) else None)
        return found

    def remember(self, item: Any, reference: bytes) -> None:
        """Remember the piece of an item; the item is held on to, so that its identity stays its own."""
        state = state_of(item)
        if state is None:
            return
        entry = _Known(item, reference, state, _texts_of(item))
        with self._lock:
            before = self._known.pop(id(item), None)
            self._known[id(item)] = entry
            self._bytes += len(state) - (len(before.state) if before else 0)
            while self._bytes > self._most_bytes:
                oldest = self._known.pop(next(iter(self._known)))
                self._bytes -= len(oldest.state)


def state_of(item: Any) -> bytes | None:
    """Everything that the serialized form of this follows from; None where that cannot be said."""
    try:
        if _is_message(item):
            return marshal.dumps((type(item).__name__, item.__dict__, item.__pydantic_extra__), _FORMAT)
        return marshal.dumps(item, _FORMAT) if type(item) in _PLAIN else None
    except ValueError:  # something in it is not plain
        return None


def _is_message(item: Any) -> bool:
    return isinstance(item, BaseMessage) and type(item).__module__.startswith("langchain_core.messages.")


def _texts_of(item: Any) -> dict[str, Any] | None:
    """A copy of the fields of a message, with the texts themselves in it; None where there is anything but texts."""
    if not _is_message(item) or item.__pydantic_extra__:
        return None
    try:
        copied: dict[str, Any] = _copied(item.__dict__)
    except _NotText:
        return None
    return copied


def _copied(value: Any) -> Any:
    if type(value) is dict:
        return {_copied(key): _copied(part) for key, part in value.items()}
    if type(value) is list:
        return [_copied(part) for part in value]
    if value is None or type(value) is str:
        return value
    raise _NotText


class _NotText(Exception):
    """Equal values need not be the same: 1, 1.0 and True are equal."""
