"""Chance that can be repeated: the same seed makes the same choices, on every machine and in every version."""

from __future__ import annotations

import hashlib
import itertools
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

    T = TypeVar("T")

_BITS: Final = 64


class Dice:
    """Choices made from a seed, one after the other."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._throws = itertools.count()

    def fraction(self) -> float:
        """A number in [0, 1)."""
        thrown = hashlib.sha256(f"{self._seed}/{next(self._throws)}".encode()).digest()
        return float(int.from_bytes(thrown[: _BITS // 8]) / 2**_BITS)

    def number(self, below: int) -> int:
        """A whole number from 0 on, below this."""
        return int(self.fraction() * below)

    def choice(self, among: Sequence[T]) -> T:
        """One of these."""
        return among[self.number(len(among))]
