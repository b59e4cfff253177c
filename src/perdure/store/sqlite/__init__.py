"""The default store: one SQLite file in WAL mode, beside its mark and its locks."""

from perdure.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
