"""The one place where the SQLite store writes: all of a block or nothing, marked before it is acknowledged."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import apsw

from perdure.store.sqlite.connect import explain, rollback
from perdure.store.sqlite.log import LogRoom
from perdure.store.sqlite.statements import Q, count_commits, read_base

if TYPE_CHECKING:
    import threading
    from pathlib import Path
    from types import TracebackType

    from perdure.errors import PerdureError
    from perdure.store.sqlite.fork import Forks
    from perdure.store.sqlite.presence import Mark

_UNKNOWN: Final = -1
_FOREIGN: Final = (apsw.Error, OSError, UnicodeDecodeError)


class Pen:
    """The writing connection of a store, for one thread at a time; after an I/O error it writes no more."""

    def __init__(self, path: Path, connection: apsw.Connection, mark: Mark, fork: Forks, lock: threading.RLock) -> None:
        self.path = path
        self.connection = connection
        self.cursor = connection.cursor()
        """For statements that every step needs: to make a cursor for each takes as long as to execute a small one."""
        self.mark = mark
        self.log_room = LogRoom(path.with_name(f"{path.name}-wal"))
        self.fork = fork
        self.lock = lock
        self.broken: PerdureError | None = None
        self.newest = 0
        """The number of the record that the open transaction appended last; 0 where it appended none."""
        self._base = 0
        self._base_version = _UNKNOWN
        """The version of the database to which that base belongs: it changes with every commit of anybody."""
        self._power = True

    def begin(self, *, power: bool) -> None:
        """Open a transaction whose commit is synced, or not."""
        self.fork.refuse()
        if self.broken is not None:
            raise self.broken
        self.newest = 0
        self.sync_on_commit(power)
        self.cursor.execute(Q["begin"])
        if power:
            self.log_room.make()

    def sync_on_commit(self, power: bool) -> None:  # noqa: FBT001 - named at the only call
        """Let commits wait for the device from now on, or not."""
        if power != self._power:
            self.connection.pragma("synchronous", "full" if power else "normal")
            self._power = power

    def commit(self, *, counted: bool) -> None:
        """Make the open transaction last, and mark it."""
        commits = self._count() if counted else 0
        self.cursor.execute(Q["commit"])
        if self.newest:  # who appends to journals leaves the base alone
            self._base_version = self.connection.data_version()
        self.mark.advance(commits, synced=self._power)

    def _count(self) -> int:
        """How many commits the database will remember after the open transaction.

        To ask for that takes a tenth of a step, so a step whose process saw all that others committed does not.
        """
        if not self.newest:
            return count_commits(self.connection)
        if self.connection.data_version() != self._base_version:
            self._base = read_base(self.connection)
        return self._base + self.newest

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
                pen.commit(counted=self._counted)
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
