"""The one place where the SQLite store writes: all of a block or nothing, marked before it is acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import apsw

from perdure.store.sqlite.connect import explain, rollback
from perdure.store.sqlite.log import LogRoom
from perdure.store.sqlite.statements import Q, count_commits

if TYPE_CHECKING:
    import threading
    from pathlib import Path
    from types import TracebackType

    from perdure.errors import PerdureError
    from perdure.store.sqlite.fork import Forks
    from perdure.store.sqlite.presence import Mark

_FOREIGN = (apsw.Error, OSError, UnicodeDecodeError)


class Pen:
    """The writing connection of a store, for one thread at a time; after an I/O error it writes no more."""

    def __init__(self, path: Path, connection: apsw.Connection, mark: Mark, fork: Forks, lock: threading.RLock) -> None:
        self.path = path
        self.connection = connection
        self.mark = mark
        self.log_room = LogRoom(path.with_name(f"{path.name}-wal"))
        self.fork = fork
        self.lock = lock
        self.broken: PerdureError | None = None
        self.commits = 0
        """How many the database will remember after the open transaction; 0 where that has to be asked."""
        self._power = True

    def begin(self, *, power: bool) -> None:
        """Open a transaction whose commit is synced, or not."""
        self.fork.refuse()
        if self.broken is not None:
            raise self.broken
        self.commits = 0
        self.sync_on_commit(power)
        self.connection.execute(Q["begin"])
        if power:
            self.log_room.make()

    def sync_on_commit(self, power: bool) -> None:  # noqa: FBT001 - named at the only call
        """Let commits wait for the device from now on, or not."""
        if power != self._power:
            self.connection.pragma("synchronous", "full" if power else "normal")
            self._power = power

    def abandon(self, error: BaseException) -> None:
        """Take everything back that the open transaction did."""
        rollback(self.connection)
        if isinstance(error, apsw.IOError):
            self.broken = explain(error, self.path)


class Transaction:
    """One block of writing, as a context manager; what SQLite says against it is raised in words of ours."""

    __slots__ = ("_counted", "_pen", "_power")

    def __init__(self, pen: Pen, *, power: bool, counted: bool) -> None:
        self._pen = pen
        self._power = power
        self._counted = counted

    def __enter__(self) -> apsw.Connection:
        pen = self._pen
        pen.lock.acquire()
        try:
            pen.begin(power=self._power)
        except BaseException as error:
            try:
                self._fail(error)
            finally:
                pen.lock.release()
            raise
        return pen.connection

    def __exit__(
        self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None
    ) -> Literal[False]:
        pen = self._pen
        try:
            if error is not None:
                self._fail(error)
                return False
            try:
                commits = (pen.commits or count_commits(pen.connection)) if self._counted else 0
                pen.connection.execute(Q["commit"])
                pen.mark.advance(commits, synced=self._power)
            except BaseException as refusal:
                self._fail(refusal)
                raise
            return False
        finally:
            pen.lock.release()

    def _fail(self, error: BaseException) -> None:
        self._pen.abandon(error)
        if isinstance(error, _FOREIGN):
            raise explain(error, self._pen.path) from error
