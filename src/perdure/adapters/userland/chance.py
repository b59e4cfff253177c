"""Chance that is the same at every replay: generators and bytes made from the seed of a run and the path of a scope.

Bytes, which become keys and tokens, come from SHA-256 in counter mode: whoever sees some cannot tell the others.
"""

from __future__ import annotations

import hashlib
import random
import threading
from typing import Any, Final

_BLOCK_BYTES: Final = 32


class Chance:
    """The generators and byte streams of one run; safe from any thread."""

    def __init__(self, seed: bytes) -> None:
        self._seed = seed
        self._generators: dict[str, random.Random] = {}
        self._seeded: dict[str, bytes] = {}
        self._streams: dict[str, _Stream] = {}
        self._lock = threading.Lock()

    def generator(self, scope: str) -> random.Random:
        """The generator of a scope."""
        found = self._generators.get(scope)
        if found is None:
            with self._lock:
                made = random.Random(self._material("generator", scope))  # noqa: S311 - what `random` gives
                found = self._generators.setdefault(scope, made)
        return found

    def reseed(self, scope: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """What `random.seed` asks for: this scope draws what it would without perdure; those below it, made from that.

        Without a seed of the caller's own it is one of the run's.
        """
        if not args and not kwargs:
            args = (self.data(scope, _BLOCK_BYTES),)
        made = random.Random()  # noqa: S311
        made.seed(*args, **kwargs)
        with self._lock:
            self._generators[scope] = made
            self._seeded[scope] = hashlib.sha256(repr(made.getstate()).encode()).digest()

    def data(self, scope: str, size: int) -> bytes:
        """The next bytes of a scope."""
        with self._lock:
            stream = self._streams.get(scope)
            if stream is None:
                stream = self._streams[scope] = _Stream(self._digest(self._seed, "bytes", scope))
            return stream.take(size)

    def _material(self, what: str, scope: str) -> bytes:
        """What the generator of a scope is made from: the closest seed that code above it has set, else the run's."""
        above = scope
        while above not in self._seeded and "/" in above:
            above = above.rpartition("/")[0]
        return self._digest(self._seeded.get(above, self._seed), what, scope)

    @staticmethod
    def _digest(seed: bytes, what: str, scope: str) -> bytes:
        return hashlib.sha256(b"\0".join((seed, what.encode(), scope.encode()))).digest()


class _Stream:
    """Bytes made from a key, one block after the other."""

    __slots__ = ("_count", "_key", "_left")

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0
        self._left = b""

    def take(self, size: int) -> bytes:
        blocks = [self._left]
        missing = size - len(self._left)
        while missing > 0:
            blocks.append(hashlib.sha256(self._key + self._count.to_bytes(16)).digest())
            self._count += 1
            missing -= _BLOCK_BYTES
        found = b"".join(blocks)
        self._left = found[size:]
        return found[:size]
