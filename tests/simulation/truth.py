"""What the store really holds, read past every line: by the witness while it is written, by the judge at the end."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from perdure.records import Mail, Record, Run
from perdure.store.memory import MemoryStore, Shelf
from perdure.store.protocol import Store
from perdure.store.sqlite import SqliteStore


class Truth(Protocol):
    """A store from above."""

    def open(self) -> Store:
        """A store for one more process."""

    def row(self, run_id: str) -> Run | None:
        """A run's row."""

    def rows(self) -> list[Run]:
        """Every run's."""

    def records(self, run_id: str, *, since: int = 0) -> list[Record]:
        """A run's journal, or what was added to it."""

    def mail(self, run_id: str) -> list[Mail]:
        """What others wrote to it."""

    def bury(self, store: Store, worker_id: str) -> None:
        """A process died, and the system lets go of what it held: everybody on this machine sees that."""

    def close(self) -> None:
        """It is over."""


class InMemory:
    """The truth of memory stores: the shelf they share."""

    def __init__(self) -> None:
        self._shelf = Shelf()
        self._reader = MemoryStore(self._shelf)

    def open(self) -> Store:
        return MemoryStore(self._shelf)

    def row(self, run_id: str) -> Run | None:
        return self._shelf.runs.get(run_id)

    def rows(self) -> list[Run]:
        return list(self._shelf.runs.values())

    def records(self, run_id: str, *, since: int = 0) -> list[Record]:
        return self._shelf.journals.get(run_id, [])[since:]

    def mail(self, run_id: str) -> list[Mail]:
        return [mail for mail in self._shelf.mail.values() if mail.run_id == run_id]

    def bury(self, store: Store, worker_id: str) -> None:
        self._shelf.workers.pop(worker_id, None)

    def close(self) -> None:
        """Nothing is left."""


class InFile:
    """The truth of SQLite stores: a file, read through a line of our own."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "perdure.db"
        self._reader = SqliteStore(self._path)
        self._opened: list[SqliteStore] = []

    def open(self) -> Store:
        store = SqliteStore(self._path)
        self._opened.append(store)
        return store

    def row(self, run_id: str) -> Run | None:
        return self._reader.read_run(run_id)

    def rows(self) -> list[Run]:
        return self._reader.list_runs()

    def records(self, run_id: str, *, since: int = 0) -> list[Record]:
        return self._reader.load_journal(run_id)[since:] if self._reader.read_run(run_id) else []

    def mail(self, run_id: str) -> list[Mail]:
        return self._reader.read_mail(run_id)

    def bury(self, store: Store, worker_id: str) -> None:
        if isinstance(store, SqliteStore) and store._life is not None:  # noqa: SLF001 - the kernel would do it
            store._life.end(forgotten=False)  # noqa: SLF001

    def close(self) -> None:
        for store in (*self._opened, self._reader):
            store.close()
