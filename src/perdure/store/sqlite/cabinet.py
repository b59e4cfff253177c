"""The cabinet in the SQLite file: one connection writes, another reads, each for one thread at a time.

Those who write at once share one transaction and one sync: whoever has the turn commits what waits for it.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from perdure.store.cabinet import end_of, row_digest, verified_rows
from perdure.store.protocol import EVERY
from perdure.store.sqlite.statements import Q, fetch
from perdure.store.sqlite.store import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path
    from typing import TypeVar

    import apsw

    from perdure.store.cabinet import Rows

    T = TypeVar("T")

MOST_AT_ONCE: Final = 64


class _Turn:
    """One who wants to write, and how it ended."""

    def __init__(self, act: Callable[[Rows], Any], *, power: bool) -> None:
        self.act = act
        self.power = power
        self.is_done = False
        self.answer: Any = None
        self.error: Exception | None = None


class SqliteCabinet(SqliteStore):
    """A store in one file, of which only the cabinet is used."""

    def __init__(self, path: str | Path, *, seconds: float = 10.0) -> None:
        super().__init__(path, seconds=seconds)
        self._waiting: deque[_Turn] = deque()
        self._committing = threading.Lock()

    def read(self, act: Callable[[Rows], T]) -> T:
        """Let this read, all of it as of one moment."""
        with self._snapshot() as reader:
            return act(_Rows(reader))

    def write(self, act: Callable[[Rows], T], *, power: bool = True) -> T:
        """Let this write; nobody else writes meanwhile."""
        turn = _Turn(act, power=power)
        self._waiting.append(turn)
        with self._committing:
            while not turn.is_done:
                self._commit_waiting()
        if turn.error is not None:
            raise turn.error
        answer: T = turn.answer
        return answer

    def _commit_waiting(self) -> None:
        """Commit for all who wait; where one of them fails, each for itself, so that nobody else does."""
        batch = [self._waiting[at] for at in range(min(len(self._waiting), MOST_AT_ONCE))]
        if len(batch) > 1:
            with contextlib.suppress(Exception):
                self._commit(batch)
        for turn in batch:
            if not turn.is_done:
                try:
                    self._commit([turn])
                except Exception as error:  # noqa: BLE001 - it is raised where it belongs
                    turn.error = error
                    turn.is_done = True
            self._waiting.popleft()

    def _commit(self, batch: list[_Turn]) -> None:
        with self._transaction(power=any(turn.power for turn in batch), counted=False) as connection:
            answers = [turn.act(_Rows(connection)) for turn in batch]
        for turn, answer in zip(batch, answers, strict=True):
            turn.answer = answer
            turn.is_done = True


class _Rows:
    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        asked = ((key,) for key in keys)
        found = self._connection.executemany(Q["read_cabinet"], asked).fetchall()  # before any of it can be refused
        return dict(verified_rows(found))

    def scan(self, prefix: bytes, *, limit: int = EVERY) -> list[tuple[bytes, bytes]]:
        return list(verified_rows(fetch(self._connection, "scan_cabinet", (prefix, end_of(prefix), limit))))

    def newest(self, prefix: bytes, *, before: bytes = b"", limit: int = EVERY) -> list[bytes]:
        return [
            key for (key,) in fetch(self._connection, "newest_in_cabinet", (prefix, before or end_of(prefix), limit))
        ]

    def hold(self, key: bytes, *, alone: bool) -> None:
        """The transaction holds the whole file."""

    def keep(self, rows: Mapping[bytes, bytes]) -> None:
        self._write("keep_in_cabinet", rows)

    def put(self, rows: Mapping[bytes, bytes]) -> None:
        self._write("put_into_cabinet", rows)

    def remove(self, keys: Iterable[bytes]) -> None:
        self._connection.executemany(Q["remove_from_cabinet"], ((key,) for key in keys))

    def clear(self, prefix: bytes) -> None:
        fetch(self._connection, "clear_cabinet", (prefix, end_of(prefix)))

    def _write(self, statement: str, rows: Mapping[bytes, bytes]) -> None:
        written = ((key, value, row_digest(key, value)) for key, value in rows.items())
        self._connection.executemany(Q[statement], written)
