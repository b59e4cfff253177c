"""Where the items of a map come from: taken one at a time, never collected, and recognised when walked again."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterable, Callable, Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

import msgspec
from msgspec import Struct

from perdure import codec
from perdure.engine.scope import Frame, enter_frame, leave_frame
from perdure.engine.signature import is_storable_text, shown_value
from perdure.errors import UnstorableValue, UsageError

if TYPE_CHECKING:
    from perdure.bodies import Batch

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

SCOPE: Final = "items"
"""The strand in which a source makes its own calls."""

KEY_CHARACTERS: Final = 500
_SHORT_CHARACTERS: Final = 100
_KEY, _PLAIN, _DIGEST = b"k", b"p", b"d"
"""How an item is recognised: by its key, by itself where it is short and plain, or by its digest."""

_ENDED: Final = object()
_encode: Final = msgspec.msgpack.Encoder().encode
_INDEXED: Final = frozenset({list, tuple, range})
"""Sources that run no code of the user's when they are walked."""


class Restartable(Protocol[T_co]):
    """A source that can begin in its middle, so that a resumed map does not walk over what is done.

    `start` must not call steps: nothing inside it is recorded.
    """

    def start(self, at: int) -> Iterator[T_co]:
        """The items from number `at` on, counted from 0."""


class Item(Struct, gc=False):
    """One item: its number, its value until it is done, the bytes it is recognised by, how it looks to a person."""

    index: int
    value: Any
    print: bytes
    shown: str
    key: str


class Source:
    """The items of one map, in order."""

    def __init__(
        self, items: object, *, name: str, key: Callable[[Any], str] | None, frame: Frame | None, body: Frame | None
    ) -> None:
        self._items = items
        self._name = name
        self._key = key
        self._restarts = _restarts(items)
        self._frame = body if self._restarts else None if type(items) in _INDEXED else frame
        self._iterator: Iterator[Any] = iter(())
        self._made: object = None
        self._next = 0

    @property
    def can_restart(self) -> bool:
        """Whether the source can begin in its middle."""
        return self._restarts

    @property
    def total(self) -> int | None:
        """How many items there are, where the source knows."""
        return len(self._items) if isinstance(self._items, Sized) else None

    def open(self, at: int = 0) -> None:
        """Begin to take items, from number `at` on where the source can restart."""
        self._next = at
        self._iterator = self._within(self._opened)

    def take(self) -> Item | None:
        """The next item; None at the end."""
        if self._frame is None:
            value = next(self._iterator, _ENDED)
        else:
            value = self._within(lambda: next(self._iterator, _ENDED))
        if value is _ENDED:
            return None
        index = self._next
        self._next = index + 1
        return self._recognised(index, value)

    def close(self) -> None:
        """Close what was made for this walk, such as a file; what was given belongs to its giver."""
        made, self._made = self._made, None
        if made is not None and callable(close := getattr(made, "close", None)):
            self._within(close)

    def _opened(self) -> Iterator[Any]:
        items = self._items
        if self._restarts:
            items = self._made = items.start(self._next)  # type: ignore[attr-defined]
        elif not isinstance(items, Iterable) and callable(items):
            items = self._made = items()
        if not isinstance(items, Iterable):
            raise _not_iterable(self._name, items)
        return iter(items)

    def _recognised(self, index: int, value: Any) -> Item:
        if self._key is not None:
            key = self._checked_key(index, value)
            return Item(index, value, _KEY + key.encode(), shown_value(value), key)
        try:
            return Item(index, value, _print(value, self._name), shown_value(value), "")
        except UnstorableValue as error:
            raise UnstorableValue(
                f"{self._name}: item {index:,} cannot be recognised after a restart: {error.message}",
                safe=f"the {index:,} items before it are not affected.",
                hint="walk over plain data, or name each item: key=lambda item: item.id",
            ) from None

    def _checked_key(self, index: int, value: Any) -> str:
        key = self._key(value) if self._key is not None else ""
        if not is_storable_text(key, KEY_CHARACTERS):
            raise UsageError(
                f"{self._name}: key= gave {codec.describe(key)} for item {index:,}.",
                safe="nothing was performed for it.",
                hint=f"give a text of 1 to {KEY_CHARACTERS} characters that tells this item from every other",
            )
        return key

    def _within(self, act: Callable[[], T]) -> T:
        """Execute code of the source in the source's own place."""
        token = enter_frame(self._frame)
        try:
            return act()
        finally:
            leave_frame(token)


def checked_items(items: object, *, name: str) -> object:
    """What was given as items, if it can be walked."""
    if isinstance(items, (str, bytes, bytearray)):
        raise _not_iterable(name, items)
    if not (isinstance(items, Iterable) or _restarts(items) or callable(items)):
        raise _not_iterable(name, items)
    return items


def digest_of(items: Iterable[Item]) -> str:
    """The digest over the items of a batch."""
    return hashlib.sha256(_encode([item.print for item in items])).hexdigest()[:32]


def _print(value: Any, name: str) -> bytes:
    kind = type(value)
    if kind is int or (kind is str and len(value) <= _SHORT_CHARACTERS):
        try:
            return _PLAIN + _encode(value)
        except (OverflowError, UnicodeEncodeError):
            return _DIGEST + codec.digest_arguments({"item": value}, of=name)
    return _DIGEST + codec.digest_arguments({"item": value}, of=name)


def matches(batch: Batch, items: list[Item]) -> bool:
    """Whether these are the items that the batch was made of."""
    return len(items) == batch.count and digest_of(items) == batch.items


def _restarts(items: object) -> bool:
    """Whether the source can begin in its middle; a range has a `start` too, which is a number."""
    return callable(getattr(items, "start", None))


def _not_iterable(name: str, items: object) -> UsageError:
    what = f"{name}: items={codec.describe(items)}"
    if isinstance(items, (str, bytes, bytearray)):
        return UsageError(f"{what} is one text.", hint="items=[...], or lambda: open(path) for the lines of a file")
    if isinstance(items, AsyncIterable):
        return UsageError(f"{what} is async.", hint="walk over it in the agent, and map each page of it")
    return UsageError(
        f"{what} cannot be walked.",
        safe="nothing was performed.",
        hint="give an iterable, a function that makes one, or an object with start(at)",
    )
