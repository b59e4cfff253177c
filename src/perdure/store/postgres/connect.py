"""Talking to a PostgreSQL server: lines that are opened anew when they break, and its errors in our words."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import errors as server

from perdure import clock
from perdure.errors import (
    InvalidSettings,
    PerdureError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    UsageError,
)
from perdure.store.sql import load_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TypeVar

    from perdure.store.postgres.location import Location

    T = TypeVar("T")

Q: Final = load_queries("perdure.store.postgres")
BROKEN: Final = (psycopg.OperationalError, psycopg.InterfaceError)
_AGAIN: Final = (server.SerializationFailure, server.DeadlockDetected)
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_CONNECT_SECONDS: Final = 5


class Line:
    """One connection, used by one thread at a time; a broken one is opened anew, for as long as is worth waiting."""

    def __init__(
        self,
        location: Location,
        *,
        seconds: float,
        synchronous: bool = True,
        greeting: Callable[[psycopg.Connection[Any]], object] | None = None,
    ) -> None:
        self.location = location
        self._greeting = greeting
        self.lock = threading.RLock()
        self._seconds = seconds
        self._synchronous = synchronous
        self._pid = os.getpid()
        self._connection: psycopg.Connection[Any] | None = None
        self._closed = False

    def fetch(self, name: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Every row a statement that only reads answers with; asked again where the line broke."""
        return self.again(lambda connection: fetch(connection, name, arguments))

    def again(self, act: Callable[[psycopg.Connection[Any]], T]) -> T:
        """Do what is harmless to do twice, until the server answers."""
        patience = Patience(self._seconds)
        while True:
            try:
                with self.use() as connection:
                    return act(connection)
            except (*BROKEN, *_AGAIN) as error:
                patience.pause(error, self.location)

    @contextlib.contextmanager
    def use(self) -> Iterator[psycopg.Connection[Any]]:
        """The connection, alone; errors of the server are psycopg's own, except where nothing more can be done."""
        self.refuse_fork()
        with self.lock:
            try:
                yield self._connected()
            except BROKEN:
                self._drop()
                raise
            except (psycopg.Error, ValueError, UnicodeError) as error:
                raise plain(error, self.location) from error
            finally:
                self._settle()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[psycopg.Connection[Any]]:
        """Several statements that land together."""
        with self.use() as connection, connection.transaction():
            yield connection

    def refuse_fork(self) -> None:
        """Let only the process that opened the line use it: two would mix up their questions and answers."""
        if os.getpid() != self._pid:
            raise UsageError(
                "This process was forked from one that has the store open.",
                safe="the parent's runs are untouched.",
                hint="call steps and agents in the parent, or start a new process instead of forking (spawn)",
            )

    def close(self) -> None:
        """Hang up."""
        with self.lock:
            self._closed = True
            self._drop()

    def _connected(self) -> psycopg.Connection[Any]:
        if self._closed:
            raise StoreUnavailable("The store was closed.", safe="what it acknowledged stands.", hint="open it again")
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.location, synchronous=self._synchronous)
            if self._greeting is not None:
                self._greeting(self._connection)
        return self._connection

    def _settle(self) -> None:
        """A connection whose transaction was left open by an error is of no use to the next caller."""
        connection = self._connection
        if connection is not None and not connection.closed and connection.info.transaction_status != 0:
            with contextlib.suppress(psycopg.Error):
                connection.rollback()
                return
            self._drop()

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                connection.close()


class Patience:
    """How long to wait for a server that is away, with growing pauses."""

    def __init__(self, seconds: float) -> None:
        self._until = clock.elapsed_seconds() + seconds
        self._pause = _FIRST_PAUSE_SECONDS

    def pause(self, error: BaseException, location: Location) -> None:
        """Wait a little; refuse where waiting cannot help, or has lasted long enough."""
        refusal = plain(error, location)
        is_away = isinstance(error, _AGAIN) or isinstance(refusal, StoreUnavailable)
        if not is_away or is_final(error) or clock.elapsed_seconds() + self._pause > self._until:
            raise refusal from error
        clock.sleep(self._pause)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)


def connect(location: Location, *, synchronous: bool) -> psycopg.Connection[Any]:
    """A connection that commits each statement by itself, sees our schema first, and waits for the disk or not."""
    connection: psycopg.Connection[Any] = psycopg.connect(
        location.url,
        autocommit=True,
        connect_timeout=_CONNECT_SECONDS,
        application_name="perdure",
        keepalives_idle=10,
        keepalives_interval=3,
        keepalives_count=3,
        tcp_user_timeout=15_000,
    )
    connection.prepare_threshold = 2
    commit = "on" if synchronous else "off"
    connection.execute(f"SET search_path TO {location.schema}")  # the name was checked, and cannot be bound
    connection.execute(f"SET synchronous_commit TO {commit}")
    return connection


def fetch(connection: psycopg.Connection[Any], name: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every row a named statement answers with; none where it is one that answers with nothing."""
    cursor = connection.execute(Q[name], arguments, binary=True)
    return cursor.fetchall() if cursor.description else []


def is_final(error: BaseException) -> bool:
    """Whether the server will say the same however often it is asked."""
    text = str(error)
    return isinstance(error, (server.InvalidPassword, server.InvalidAuthorizationSpecification)) or any(
        sign in text for sign in ("authentication failed", "does not exist", "no password supplied", "pg_hba.conf")
    )


def plain(error: BaseException, location: Location) -> PerdureError:
    """An error of the server or of the way to it, in our words."""
    if isinstance(error, PerdureError):
        return error
    said = " ".join(str(error).split())
    where = location.shown
    match error:
        case server.ReadOnlySqlTransaction():
            return StoreReadOnly(
                f"{where} only lets itself be read: {said}.",
                safe="what was acknowledged stands.",
                hint="name the primary server, not a replica",
            )
        case server.DiskFull() | server.OutOfMemory() | server.TooManyConnections():
            return StoreFull(
                f"{where} has no room: {said}.",
                safe="what was acknowledged stands.",
                hint="make room, then start again",
            )
        case server.InsufficientPrivilege():
            return StoreUnavailable(
                f"The role may not do this in {where}: {said}.",
                safe="nothing was changed.",
                hint="let a role that may make tables start something once, or GRANT this one what it lacks",
            )
        case server.UndefinedTable() | server.InvalidSchemaName():
            return StoreUnavailable(
                f"There is no store in {where} (schema {location.schema}).",
                safe="nothing was changed.",
                hint="start a run or a worker: it makes the tables",
            )
        case psycopg.ProgrammingError() if "invalid URI" in said or "invalid connection option" in said:
            return InvalidSettings(f"store {where}: {said}.", safe="nothing was started.", hint="mend the URL")
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return StoreUnavailable(
                f"{where} cannot be reached: {said.rstrip('.')}.",
                safe="what was acknowledged stands; nothing more is performed.",
                hint="see that the server runs and that the URL, the role and its password are right, then start again",
            )
        case _:
            return StoreUnavailable(
                f"{where}: {said}.", safe="what was acknowledged stands.", hint="perdure verify; perdure doctor"
            )
