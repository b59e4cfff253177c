"""Long arguments of one run as they were last passed, so that one which only grew is hashed from where it stood.

A conversation is a list that every step is passed whole. Whatever it holds may have been changed since, so all of it is
looked at; but to compare texts with the very texts that were hashed takes far less time than to encode them again.
"""

from __future__ import annotations

from collections import OrderedDict
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

CACHE_BYTES: Final = 16 * 1024 * 1024

ArgumentKey = tuple[str, str | int]
"""The name of the step, and the name or position of the argument."""


class HashState(Protocol):
    """A hash that can be continued from where it stands."""

    def update(self, data: bytes | memoryview, /) -> None: ...
    def digest(self) -> bytes: ...
    def copy(self) -> HashState: ...


class BytesSoFar:
    """An argument by its encoded bytes, and the hash of them."""

    __slots__ = ("_prefix", "_state")

    def __init__(self, prefix: bytes, state: HashState) -> None:
        self._prefix = prefix
        self._state = state

    @property
    def size(self) -> int:
        """How many bytes are remembered."""
        return len(self._prefix)

    def resume(self, content: bytes, start: int) -> tuple[HashState, int] | None:
        """A hash, and the offset up to which it is done; None where the content began otherwise."""
        if not content.startswith(self._prefix, start):
            return None
        return self._state.copy(), start + len(self._prefix)


class ListSoFar:
    """A list by its items, and the hash of what they encode to."""

    __slots__ = ("_encode", "_items", "_packed", "_state", "size")

    def __init__(self, encode: Callable[[Any], bytes]) -> None:
        self._encode = encode
        self._items: list[object] = []
        """What was hashed: containers are copies, so that nobody changes them, and texts are shared."""
        self._packed: list[tuple[int, bytes]] = []
        """The places of items that comparing does not tell apart, or that may change; only their bytes say the same."""
        self._state: HashState = sha256()
        self.size = 0

    def __len__(self) -> int:
        return len(self._items)

    def extend(self, items: list[object]) -> bytes:
        """Take in what follows; what it encodes to. The encoder's errors are the caller's."""
        following = b"".join([self._pack(item) for item in items])
        self._state.update(following)
        self.size += len(following)
        return following

    def is_of(self, value: list[object]) -> bool:
        """Whether this is the list that was hashed, each item unchanged."""
        try:
            return value == self._items and all(self._encode(value[place]) == packed for place, packed in self._packed)
        except Exception:  # noqa: BLE001 - an item may make of a comparison what it likes; then the list is read anew
            return False

    def digest(self) -> bytes:
        """The hash of all items."""
        return self._state.digest()

    def _pack(self, item: object) -> bytes:
        """What is remembered is what is encoded, whatever another thread does to the item meanwhile."""
        try:
            kept = _copied(item)
        except TypeError:
            packed = self._encode(item)
            self._packed.append((len(self._items), packed))
            kept = item
        else:
            packed = self._encode(kept)
        self._items.append(kept)
        return packed


M = TypeVar("M", BytesSoFar, ListSoFar)


class PrefixCache:
    """The long arguments that a run last passed, within a bound of memory. Safe to use from any thread.

    Whoever takes a memory has it alone and puts it back; who comes meanwhile finds none, and begins anew.
    """

    def __init__(self, *, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self.held_bytes = 0
        self._memories: OrderedDict[ArgumentKey, BytesSoFar | ListSoFar] = OrderedDict()
        self._lock = Lock()

    def take(self, key: ArgumentKey, kind: type[M]) -> M | None:
        """What is remembered of this argument in this way, if anything; it is forgotten here."""
        with self._lock:
            memory = self._memories.get(key)
            if not isinstance(memory, kind):
                return None
            self._forget(key)
            return memory

    def keep(self, key: ArgumentKey, memory: BytesSoFar | ListSoFar) -> None:
        """Remember this, and of the others the latest, as far as the bound allows."""
        with self._lock:
            self._forget(key)
            if memory.size > self._limit_bytes:
                return
            self._memories[key] = memory
            self.held_bytes += memory.size
            while self.held_bytes > self._limit_bytes:
                self._forget(next(iter(self._memories)))

    def _forget(self, key: ArgumentKey) -> None:
        memory = self._memories.pop(key, None)
        if memory is not None:
            self.held_bytes -= memory.size


def _copied(item: object) -> object:
    """The same texts in containers of its own; TypeError where equal is not the same, as 1, 1.0 and True are equal."""
    kind = type(item)
    if kind is str or item is None:
        return item
    if kind is dict:
        return {key: _copied(value) for key, value in item.items()}  # type: ignore[attr-defined]
    if kind is list:
        return [_copied(each) for each in item]  # type: ignore[attr-defined]
    raise TypeError
