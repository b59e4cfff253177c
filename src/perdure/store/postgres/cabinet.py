"""The cabinet on a PostgreSQL server: each transaction is asked again where the line broke or the server says so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perdure.store.cabinet import end_of, row_digest, verified_rows
from perdure.store.postgres.check import snapshot
from perdure.store.postgres.connect import fetch
from perdure.store.postgres.store import PostgresStore
from perdure.store.protocol import EVERY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import TypeVar

    import psycopg

    from perdure.store.cabinet import Rows

    T = TypeVar("T")


class PostgresCabinet(PostgresStore):
    """A store on a server, of which only the cabinet is used."""

    def read(self, act: Callable[[Rows], T]) -> T:
        """Let this read, all of it as of one moment."""

        def attempt(connection: psycopg.Connection[Any]) -> T:
            with snapshot(connection):
                return act(_Rows(connection))

        return self._reader.again(attempt)

    def write(self, act: Callable[[Rows], T], *, power: bool = True) -> T:
        """Let this write; an answer that was lost leads to the same rows once more."""

        def attempt(connection: psycopg.Connection[Any]) -> T:
            with connection.transaction():
                return act(_Rows(connection))

        return (self._writer if power else self._unsynced).again(attempt)


class _Rows:
    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def get(self, keys: Iterable[bytes]) -> dict[bytes, bytes]:
        return dict(verified_rows(fetch(self._connection, "read_cabinet", (list(keys),))))

    def scan(self, prefix: bytes, *, limit: int = EVERY) -> list[tuple[bytes, bytes]]:
        return list(verified_rows(fetch(self._connection, "scan_cabinet", (prefix, end_of(prefix), limit))))

    def newest(self, prefix: bytes, *, before: bytes = b"", limit: int = EVERY) -> list[bytes]:
        bounds = (prefix, before or end_of(prefix), limit)
        return [key for (key,) in fetch(self._connection, "newest_in_cabinet", bounds)]

    def hold(self, key: bytes, *, alone: bool) -> None:
        fetch(self._connection, "lock_cabinet_row" if alone else "share_cabinet_row", (key,))

    def keep(self, rows: Mapping[bytes, bytes]) -> None:
        self._write("keep_in_cabinet", rows)

    def put(self, rows: Mapping[bytes, bytes]) -> None:
        self._write("put_into_cabinet", rows)

    def remove(self, keys: Iterable[bytes]) -> None:
        fetch(self._connection, "remove_from_cabinet", (list(keys),))

    def clear(self, prefix: bytes) -> None:
        fetch(self._connection, "clear_cabinet", (prefix, end_of(prefix)))

    def _write(self, statement: str, rows: Mapping[bytes, bytes]) -> None:
        """In the order of the keys: two that write the same rows wait for each other, and neither for ever."""
        if rows:
            keys = sorted(rows)
            values = [rows[key] for key in keys]
            digests = [row_digest(key, rows[key]) for key in keys]
            fetch(self._connection, statement, (keys, values, digests))
