"""The cabinet: what adapters keep in the store beside the runs, as values by key, in the order of the keys' bytes.

A key is two letters for the kind of thing and names that follow it; all rows whose key begins alike are found together.
Every row carries a digest over its key and its value, which is compared whenever it is read. An adapter needs no table
of its own, so it works in every store, and what it keeps is verified like everything else.
"""

from __future__ import annotations

import bisect
import hashlib
import re
import threading
from typing import TYPE_CHECKING, Final, Protocol

from perdure.errors import CheckpointCorrupt
from perdure.store.protocol import EVERY, Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any, TypeVar

    T = TypeVar("T")

_DIGEST_BYTES: Final = 16
_KIND_BYTES: Final = 2
ALL_ROWS: Final = (b"", b"\xff", EVERY)
"""The bounds of a scan over everything."""

_END: Final = b"\0"
_ESCAPE: Final = b"\1"
_ESCAPED: Final = {b"\1": b"\1\1", b"\0": b"\1\2"}
"""How the two bytes that mean something in a key are written where a name holds them."""


class Rows(Protocol):
    """What can be done inside one transaction."""

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        """The values under these keys; those that are not there are left out."""

    def scan(self, prefix: bytes, *, limit: int = EVERY) -> list[tuple[bytes, bytes]]:
        """The first rows whose key begins so, in order."""

    def newest(self, prefix: bytes, *, before: bytes = b"", limit: int = EVERY) -> list[bytes]:
        """The last keys that begin so, in descending order; with `before`, only smaller ones."""

    def hold(self, key: bytes, *, alone: bool) -> None:
        """Let nobody change this row until the transaction ends; `alone` keeps out everybody else who holds it."""

    def keep(self, rows: Mapping[bytes, bytes]) -> None:
        """Write rows where nothing is yet."""

    def put(self, rows: Mapping[bytes, bytes]) -> None:
        """Write rows, in place of what is there."""

    def remove(self, keys: Iterable[bytes]) -> None:
        """Remove rows, if they are there."""

    def clear(self, prefix: bytes) -> None:
        """Remove every row whose key begins so."""


class Cabinet(Protocol):
    """Where the rows are."""

    @property
    def location(self) -> str:
        """Where the rows are, as a person would write it."""

    def read(self, act: Callable[[Rows], T]) -> T:
        """Let this read, all of it as of one moment."""

    def write(self, act: Callable[[Rows], T], *, power: bool = True) -> T:
        """Let this write: all of it is there when this returns, or none of it; `power` syncs it.

        It may be called more than once, each time as if nothing had been written.
        """

    def close(self) -> None:
        """Let go of the store."""


def key_of(kind: bytes, *names: str) -> bytes:
    """The key of a thing: no name can be mistaken for the beginning of another, and names sort as their text does."""
    return kind + b"".join(_written(name) + _END for name in names)


def names_of(key: bytes) -> list[str]:
    """The names in a key that consists of nothing else."""
    return [_read(part) for part in key[_KIND_BYTES:-1].split(_END)]


def end_of(prefix: bytes) -> bytes:
    """The smallest key that is greater than everything that begins so; the last byte of a prefix is never 255."""
    return prefix[:-1] + bytes((prefix[-1] + 1,))


def row_digest(key: bytes, value: bytes) -> bytes:
    """What a row must carry."""
    return hashlib.sha256(len(key).to_bytes(4, "big") + key + value).digest()[:_DIGEST_BYTES]


def verified_rows(rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[bytes, bytes]]:
    """Rows as they were written; damage is an error, never an absence."""
    for key, value, digest in rows:
        if row_digest(key, value) != digest:
            raise CheckpointCorrupt(
                f"What the store keeps under {shown_key(key)} is damaged (its digest does not match).",
                safe="nothing was changed; every other row can still be read.",
                hint="perdure verify lists the damage; put back a copy of the store, or delete what is damaged",
            )
        yield key, value


def row_finding(row: tuple[Any, ...]) -> Finding | None:
    """What is wrong with a row, if something is."""
    key, value, digest = row
    if row_digest(key, value) == digest:
        return None
    return Finding(where=f"cabinet {shown_key(key)}", what="is damaged (its digest does not match)")


def shown_key(key: bytes) -> str:
    """A key as a person may read it."""
    parts = key[_KIND_BYTES:].rstrip(_END).split(_END)
    return " ".join([key[:_KIND_BYTES].decode("ascii", "replace"), *map(_legible, parts)])


def _written(name: str) -> bytes:
    written = name.encode("utf-8", "surrogatepass")
    if _END in written or _ESCAPE in written:
        return re.sub(b"[\0\1]", lambda found: _ESCAPED[found[0]], written)
    return written


def _read(written: bytes) -> str:
    plain = {escaped: byte for byte, escaped in _ESCAPED.items()}
    return re.sub(b"\1.", lambda found: plain[found[0]], written).decode("utf-8", "surrogatepass")


def _legible(part: bytes) -> str:
    text = part.decode("utf-8", "replace")
    return text[:60] if text.isprintable() and "\ufffd" not in text else part.hex()[:16]


class MemoryCabinet:
    """A cabinet that is gone with its process; for trials, and as the model of the others."""

    location = "memory:"

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._rows: dict[bytes, bytes] = {}

    def read(self, act: Callable[[Rows], T]) -> T:
        with self._lock:
            return act(_MemoryRows(self._rows))

    def write(self, act: Callable[[Rows], T], *, power: bool = True) -> T:
        del power
        with self._lock:
            changed = dict(self._rows)
            answer = act(_MemoryRows(changed))
            self._rows = changed
            return answer

    def close(self) -> None:
        """Nothing is held."""


class _MemoryRows:
    def __init__(self, rows: dict[bytes, bytes]) -> None:
        self._rows = rows

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        return {key: self._rows[key] for key in keys if key in self._rows}

    def scan(self, prefix: bytes, *, limit: int = EVERY) -> list[tuple[bytes, bytes]]:
        return [(key, self._rows[key]) for key in self._between(prefix, end_of(prefix))[:limit]]

    def newest(self, prefix: bytes, *, before: bytes = b"", limit: int = EVERY) -> list[bytes]:
        return self._between(prefix, before or end_of(prefix))[::-1][:limit]

    def hold(self, key: bytes, *, alone: bool) -> None:
        """Everybody else waits anyway."""

    def keep(self, rows: Mapping[bytes, bytes]) -> None:
        self._rows.update({key: value for key, value in rows.items() if key not in self._rows})

    def put(self, rows: Mapping[bytes, bytes]) -> None:
        self._rows.update(rows)

    def remove(self, keys: Iterable[bytes]) -> None:
        for key in keys:
            self._rows.pop(key, None)

    def clear(self, prefix: bytes) -> None:
        self.remove(self._between(prefix, end_of(prefix)))

    def _between(self, first: bytes, end: bytes) -> list[bytes]:
        keys = sorted(self._rows)
        return keys[bisect.bisect_left(keys, first) : bisect.bisect_left(keys, end)]
