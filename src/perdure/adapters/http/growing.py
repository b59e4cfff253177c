"""Lists that never change, and grow into others: each shares with those before what it has in common with them."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, TypeVar, overload

_Item = TypeVar("_Item")
_growing: Final = threading.Lock()
"""Held while items are put behind others: two lists that grow from one must not both do so in place."""


class Growing(Sequence[_Item]):
    """The first so many items of a list that others may have extended since; safe to use from any thread."""

    __slots__ = ("_count", "_items")

    def __init__(self, items: list[_Item], count: int | None = None) -> None:
        """What it was given is its own from here on."""
        self._items = items
        self._count = len(items) if count is None else count

    def grown(self, count: int, new: list[_Item]) -> Growing[_Item]:
        """The first so many items, and the new ones behind them; copied only where another list went on otherwise."""
        items = self._items
        with _growing:
            is_end = count == len(items)
            if is_end:
                items += new
        return Growing(items, count + len(new)) if is_end else Growing(items[:count] + new)

    def begun_with(self, other: Growing[_Item]) -> int:
        """How many items this list and another have in common from the beginning on."""
        low, high = 0, min(self._count, other._count)
        if self._items is other._items or self._items[:high] == other._items[:high]:
            return high
        while low < high:
            middle = (low + high + 1) // 2
            is_same = self._items[low:middle] == other._items[low:middle]
            low, high = (middle, high) if is_same else (low, middle - 1)
        return low

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> _Item: ...

    @overload
    def __getitem__(self, place: slice) -> list[_Item]: ...

    def __getitem__(self, place: int | slice) -> _Item | list[_Item]:
        if isinstance(place, slice):
            return [self._items[at] for at in range(*place.indices(self._count))]
        if not -self._count <= place < self._count:
            raise IndexError(place)
        return self._items[place if place >= 0 else place + self._count]

    def __iter__(self) -> Iterator[_Item]:
        return islice(self._items, self._count)

    def __reversed__(self) -> Iterator[_Item]:
        return map(self._items.__getitem__, range(self._count - 1, -1, -1))
