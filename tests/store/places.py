"""Where the conformance suite keeps its stores: each place opens workers on shared records, and can damage them."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Protocol

import apsw
import msgspec
import psycopg
import pytest

from perdure.store.memory import MemoryStore, Shelf
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.location import read_location
from perdure.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perdure.store.protocol import Store


STORES = ("memory", "sqlite", "postgres")
PORTABLE = "portable"
asks_who_lives = pytest.mark.parametrize("place", [*STORES, PORTABLE], indirect=True)
"""The portable store differs from `postgres` in how it knows who lives, and in nothing else: what does not ask that
is tested with it in the exhaustive tests alone."""

LEASE_SECONDS = 120.0
"""As long as the terms of the suite let a holder be silent."""


class Place(Protocol):
    """Shared records; every store opened on them is another worker."""

    def open(self) -> Store: ...

    def damage_record(self, run_id: str, seq: int) -> None: ...

    def delete_record(self, run_id: str, seq: int) -> None: ...

    def damage_run(self, run_id: str, **fields: Any) -> None: ...

    def damage_mail(self, mail_id: int, **fields: Any) -> None: ...

    def damage_blob(self, digest: bytes) -> None: ...

    def damage_schedule(self, name: str, **fields: Any) -> None: ...


class MemoryPlace:
    def __init__(self) -> None:
        self.shelf = Shelf()

    def open(self) -> Store:
        return MemoryStore(self.shelf)

    def damage_record(self, run_id: str, seq: int) -> None:
        journal = self.shelf.journals[run_id]
        journal[seq] = msgspec.structs.replace(journal[seq], body='{"value":2}')

    def delete_record(self, run_id: str, seq: int) -> None:
        del self.shelf.journals[run_id][seq]

    def damage_run(self, run_id: str, **fields: Any) -> None:
        self.shelf.runs[run_id] = msgspec.structs.replace(self.shelf.runs[run_id], **fields)

    def damage_mail(self, mail_id: int, **fields: Any) -> None:
        self.shelf.mail[mail_id] = msgspec.structs.replace(self.shelf.mail[mail_id], **fields)

    def damage_blob(self, digest: bytes) -> None:
        self.shelf.blobs[digest] = self.shelf.blobs[digest][:-1] + b"?"

    def damage_schedule(self, name: str, **fields: Any) -> None:
        self.shelf.schedules[name] = msgspec.structs.replace(self.shelf.schedules[name], **fields)


class SqlitePlace:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._opened = contextlib.ExitStack()

    def open(self) -> SqliteStore:
        store = SqliteStore(self.path)
        self._opened.callback(store.close)
        return store

    def close(self) -> None:
        self._opened.close()

    def damage_record(self, run_id: str, seq: int) -> None:
        where = "run = (SELECT run FROM runs WHERE run_id = ?) AND seq = ?"
        self.write(f"UPDATE records SET body = '{{\"value\":2}}' WHERE {where}", (run_id, seq))  # noqa: S608

    def delete_record(self, run_id: str, seq: int) -> None:
        self.write("DELETE FROM records WHERE run = (SELECT run FROM runs WHERE run_id = ?) AND seq = ?", (run_id, seq))

    def damage_run(self, run_id: str, **fields: Any) -> None:
        for name, value in fields.items():
            self.write(f"UPDATE runs SET {name} = ? WHERE run_id = ?", (value, run_id))  # noqa: S608

    def damage_mail(self, mail_id: int, **fields: Any) -> None:
        for name, value in fields.items():
            self.write(f"UPDATE mailbox SET {name} = ? WHERE mail = ?", (value, mail_id))  # noqa: S608

    def damage_blob(self, digest: bytes) -> None:
        cut = "substr(stored, 1, length(stored) - 1)"
        self.write(f"UPDATE blobs SET stored = CAST({cut} || x'3f' AS BLOB) WHERE digest = ?", (digest,))  # noqa: S608

    def damage_schedule(self, name: str, **fields: Any) -> None:
        for field, value in fields.items():
            self.write(f"UPDATE schedules SET {field} = ? WHERE name = ?", (value, name))  # noqa: S608

    def write(self, statement: str, arguments: tuple[Any, ...] = ()) -> None:
        """Change the database behind the store's back."""
        with foreign(self.path) as connection:
            connection.execute(statement, arguments)
            assert connection.changes() == 1


class PostgresPlace:
    def __init__(self, url: str) -> None:
        self.url = url
        self._opened = contextlib.ExitStack()

    def open(self) -> PostgresStore:
        store = PostgresStore(self.url, lease_seconds=LEASE_SECONDS)
        self._opened.callback(store.close)
        return store

    def close(self) -> None:
        self._opened.close()

    def let_pass(self, seconds: float) -> None:
        """Time by the database's clock, as far as leases and buckets can tell."""
        self.write("UPDATE workers SET beat_at = beat_at - %s", (seconds,), rows=None)
        self.write("UPDATE buckets SET full_at = full_at - %s", (round(seconds * 1e9),), rows=None)

    def damage_record(self, run_id: str, seq: int) -> None:
        where = "run = (SELECT run FROM runs WHERE run_id = %s) AND seq = %s"
        self.write(f"UPDATE records SET body = '{{\"value\":2}}' WHERE {where}", (run_id, seq))  # noqa: S608

    def delete_record(self, run_id: str, seq: int) -> None:
        where = "run = (SELECT run FROM runs WHERE run_id = %s) AND seq = %s"
        self.write(f"DELETE FROM records WHERE {where}", (run_id, seq))  # noqa: S608

    def damage_run(self, run_id: str, **fields: Any) -> None:
        for name, value in fields.items():
            self.write(f"UPDATE runs SET {name} = %s WHERE run_id = %s", (value, run_id))  # noqa: S608

    def damage_mail(self, mail_id: int, **fields: Any) -> None:
        for name, value in fields.items():
            self.write(f"UPDATE mailbox SET {name} = %s WHERE mail = %s", (value, mail_id))  # noqa: S608

    def damage_blob(self, digest: bytes) -> None:
        cut = "substring(stored FROM 1 FOR length(stored) - 1)"
        self.write(f"UPDATE blobs SET stored = {cut} || '\\x3f'::bytea WHERE digest = %s", (digest,))  # noqa: S608

    def damage_schedule(self, name: str, **fields: Any) -> None:
        for field, value in fields.items():
            self.write(f"UPDATE schedules SET {field} = %s WHERE name = %s", (value, name))  # noqa: S608

    def write(self, statement: str, arguments: tuple[Any, ...] = (), *, rows: int | None = 1) -> None:
        """Change the database behind the store's back."""
        location = read_location(self.url)
        with psycopg.connect(location.url, autocommit=True) as connection:
            connection.execute(f"SET search_path TO {location.schema}")
            changed = connection.execute(statement, arguments)
            assert rows is None or changed.rowcount == rows


@contextlib.contextmanager
def foreign(path: Path) -> Iterator[apsw.Connection]:
    """A plain connection of somebody else."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        connection.set_busy_timeout(10_000)
        yield connection
    finally:
        connection.close()
