"""Counts the write transactions a process commits, whichever SQLite binding it uses; never used while timing."""

from __future__ import annotations

import sqlite3
import threading
from typing import Any

import apsw


class CommitCounter:
    """Counts commits of every connection opened after it was made, through `apsw` or through `sqlite3`."""

    def __init__(self) -> None:
        """Watch both bindings from now on."""
        self.commits = 0
        self._lock = threading.Lock()
        apsw.connection_hooks.append(self._watch_apsw)
        self._watch_sqlite3()

    def _add(self) -> None:
        with self._lock:
            self.commits += 1

    def _watch_apsw(self, connection: apsw.Connection) -> None:
        def committed() -> bool:
            self._add()
            return False

        connection.set_commit_hook(committed, id=self)

    def _watch_sqlite3(self) -> None:
        connect = sqlite3.connect

        def traced(statement: str) -> None:
            if statement.strip().upper().startswith(("COMMIT", "END")):
                self._add()

        # The parameters are whatever the caller of sqlite3.connect passes.
        def watched(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*args, **kwargs)
            connection.set_trace_callback(traced)
            return connection

        sqlite3.connect = sqlite3.dbapi2.connect = watched  # type: ignore[assignment]
