"""Talking to a PostgreSQL server: lines that are opened anew when they break, or when nothing comes over them."""

from __future__ import annotations

import contextlib
import select
import threading
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import errors as server
from psycopg import generators

from perdure import clock, events
from perdure.errors import PerdureError, StoreUnavailable, UsageError
from perdure.store.postgres.refusal import AGAIN, BROKEN, is_final, plain
from perdure.store.sql import load_queries

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import TypeVar

    from psycopg.pq.abc import PGresult

    from perdure.store.postgres.location import Location

    T = TypeVar("T")
    V = TypeVar("V")

Q: Final = load_queries("postgres")
ANSWER_SECONDS: Final = 60.0
"""How long an answer may take before a line is taken for dead: what was asked is asked again on a new one."""

_IDLE: Final = int(psycopg.pq.TransactionStatus.IDLE)
_OK: Final = int(psycopg.pq.ConnStatus.OK)
_DONE: Final = (int(psycopg.pq.ExecStatus.COMMAND_OK), int(psycopg.pq.ExecStatus.TUPLES_OK))
_CONNECT_SECONDS: Final = 5.0
_FIRST_PAUSE_SECONDS: Final = 0.05
_LONGEST_PAUSE_SECONDS: Final = 1.0
_CLOSE_SECONDS: Final = 1.0
_TELL_SECONDS: Final = 1.0
"""A server that is away for less is not worth a line."""

_SILENCE_SECONDS: Final = 15
"""After so long without a packet from the other side, either side takes it for gone."""

_IDLE_SECONDS: Final = 5
"""After so long between two statements the server takes a transaction back: a frozen process would keep rows locked."""


class Line:
    """One connection, used by one thread at a time; a broken one is opened anew, for as long as is worth waiting."""

    def __init__(
        self,
        location: Location,
        *,
        seconds: float,
        synchronous: bool = True,
        answer_seconds: float = ANSWER_SECONDS,
        greeting: Callable[[psycopg.Connection[Any]], object] | None = None,
    ) -> None:
        self.location = location
        self._greeting = greeting
        self.lock = threading.RLock()
        self._seconds = seconds
        self._synchronous = synchronous
        self._answer_seconds = answer_seconds
        self._pid = clock.process_id()
        self._connection: Connection | None = None
        self._closed = False
        self._was_open = False
        self.returned_at = 0.0
        """When it was last opened anew after it had broken, on the boot clock; 0 where it never broke."""

    def fetch(self, name: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Every row a statement that only reads answers with; asked again where the line broke."""
        return self.again(lambda connection: fetch(connection, name, arguments))

    def again(self, act: Callable[[Connection], T], *, seconds: float | None = None) -> T:
        """Do what is harmless to do twice, until the server answers or so much time is over."""
        patience = Patience(self._seconds if seconds is None else seconds)
        while True:
            try:
                with self.use() as connection:
                    answer = act(connection)
            except (*BROKEN, *AGAIN) as error:
                patience.pause(error, self.location)
            else:
                patience.end(self.location)
                return answer

    def once(self, act: Callable[[Connection, V], T], value: V) -> T:
        """Do this as `use` would have it, for whoever has the lock: the short way, for what every step does."""
        if clock.process_id() != self._pid:
            self.refuse_fork()
        try:
            return act(self._connected(), value)
        except BROKEN:
            self._drop()
            raise
        except BaseException as error:
            self._settle()
            if isinstance(error, (psycopg.Error, ValueError, UnicodeError)):
                raise plain(error, self.location) from error
            raise

    @contextlib.contextmanager
    def use(self) -> Iterator[Connection]:
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
    def transaction(self) -> Iterator[Connection]:
        """Several statements that land together."""
        with self.use() as connection, connection.transaction():
            yield connection

    def refuse_fork(self) -> None:
        """Let only the process that opened the line use it: two would mix up their questions and answers."""
        if clock.process_id() != self._pid:
            raise UsageError(
                "This process was forked from one that has the store open.",
                safe="the parent's runs are untouched.",
                hint="call steps and agents in the parent, or start a new process instead of forking (spawn)",
            )

    def close(self) -> None:
        """Hang up; whoever still waits for an answer on this line is not waited for."""
        self._closed = True
        if self.lock.acquire(timeout=_CLOSE_SECONDS):
            try:
                self._drop()
            finally:
                self.lock.release()
        else:
            self.hang_up()

    def hang_up(self) -> None:
        """End the line under whoever waits on it; nobody can use it any more."""
        self._closed = True
        connection = self._connection
        if connection is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                connection.close()

    def _connected(self) -> Connection:
        connection = self._connection
        if connection is None or self._closed:
            connection = self._opened()
        return connection

    def _opened(self) -> Connection:
        self._refuse_closed()
        self._connection = connection = connect(
            self.location, synchronous=self._synchronous, answer_seconds=self._answer_seconds
        )
        if self._closed:  # by somebody else, meanwhile
            self._drop()
        self._refuse_closed()
        if self._greeting is not None:
            try:
                self._greeting(connection)
            except BaseException:
                self._drop()
                raise
        self.returned_at = clock.boot_seconds() if self._was_open else 0.0
        self._was_open = True
        return connection

    def _refuse_closed(self) -> None:
        if self._closed:
            raise StoreUnavailable("The store was closed.", safe="what it acknowledged stands.", hint="open it again")

    def _settle(self) -> None:
        """A connection that was closed, or whose transaction was left open by an error, is of no use to the next."""
        connection = self._connection
        if connection is None or connection.pgconn.transaction_status == _IDLE:
            return
        if not connection.closed:
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
    """How long to wait for a server that is away, with growing pauses; that it is waited for is said once."""

    def __init__(self, seconds: float) -> None:
        self._begun = clock.elapsed_seconds()
        self._seconds = seconds
        self._pause = _FIRST_PAUSE_SECONDS

    def pause(self, error: BaseException, location: Location) -> None:
        """Wait a little; refuse where waiting cannot help, or has lasted long enough."""
        refusal = plain(error, location)
        waited = clock.elapsed_seconds() - self._begun
        is_away = isinstance(error, AGAIN) or isinstance(refusal, StoreUnavailable)
        if not is_away or is_final(error) or waited + self._pause > self._seconds:
            raise refusal from error
        if waited > _TELL_SECONDS:
            _tell_away(location, refusal, seconds=self._seconds - waited)
        clock.sleep(self._pause * (0.5 + clock.new_fraction() / 2))  # many that wait must not come back as one
        self._pause = min(2 * self._pause, _LONGEST_PAUSE_SECONDS)

    def end(self, location: Location) -> None:
        """The server has answered."""
        if _away and _away.pop(location.shown, None) is not None:
            events.publish(events.StoreReached(location.shown))


_away: Final[dict[str, float]] = {}
"""The servers that this process waits for, and since when that was said."""


def _tell_away(location: Location, refusal: PerdureError, *, seconds: float) -> None:
    if _away.setdefault(location.shown, now := clock.boot_seconds()) == now:
        events.publish(events.StoreAwaited(location.shown, refusal.message, max(0.0, seconds)))


class Connection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that does not wait for an answer for ever: packets may be lost where nobody refuses them."""

    answer_seconds = ANSWER_SECONDS
    told: set[bytes]
    """The statements of ours that were prepared on it."""
    poll: Callable[[float], list[tuple[int, int]]]
    """Waits so many milliseconds for something to come."""

    def wait(self, gen: Generator[Any, Any, T], *args: Any, **kwargs: Any) -> T:  # noqa: ANN401 - as psycopg has them
        return super().wait(_bounded(gen, self.answer_seconds), *args, **kwargs)

    def answer(self) -> PGresult:
        """The answer to the statement that was just sent: the short way, for what every step does."""
        pgconn = self.pgconn
        if pgconn.flush():  # it is so long that the server has to read some of it first
            results: list[PGresult] = self.wait(generators.execute(pgconn))
            result: PGresult | None = results[-1]
        else:
            try:
                while pgconn.is_busy():
                    if not self.poll(self.answer_seconds * 1000):
                        raise psycopg.OperationalError(_silence(self.answer_seconds))
                    pgconn.consume_input()
            except BaseException:  # nobody will read the answer: it must not be taken for that of the next statement
                self.close()
                raise
            result = latest = pgconn.get_result()
            while latest is not None:
                result, latest = latest, pgconn.get_result()
        if result is not None and result.status in _DONE:
            return result
        if result is None or pgconn.status != _OK:  # then the answer is what libpq says of the end of the line
            raise psycopg.OperationalError(pgconn.get_error_message())
        raise server.error_from_result(result, encoding="utf-8")


def _bounded(gen: Generator[Any, Any, T], seconds: float) -> Generator[Any, Any, T]:
    """The same exchange with the server, given up once nothing has come for so long."""
    heard = clock.elapsed_seconds()
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted
            if ready:
                heard = clock.elapsed_seconds()
            elif clock.elapsed_seconds() - heard > seconds:
                raise psycopg.OperationalError(_silence(seconds))
            wanted = gen.send(ready)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def _silence(seconds: float) -> str:
    return f"nothing came from the server for {seconds:g} s"


def connect(location: Location, *, synchronous: bool, answer_seconds: float = ANSWER_SECONDS) -> Connection:
    """A connection that commits each statement by itself, sees our schema first, and waits for the disk or not.

    Both sides look whether the other is still there: a session whose process is gone holds no lock for long.
    """
    connection = Connection.connect(
        location.url,
        autocommit=True,
        connect_timeout=int(min(_CONNECT_SECONDS, max(2.0, answer_seconds))),
        application_name="perdure",
        keepalives_idle=_SILENCE_SECONDS // 3,
        keepalives_interval=_SILENCE_SECONDS // 3,
        keepalives_count=2,
        tcp_user_timeout=_SILENCE_SECONDS * 1000,
    )
    connection.answer_seconds = answer_seconds
    connection.told = set()
    poller = select.poll()
    poller.register(connection.pgconn.socket, select.POLLIN)
    connection.poll = poller.poll
    connection.prepare_threshold = 2
    commit = "on" if synchronous else "off"
    settings = [
        f"search_path TO {location.schema}",  # the name was checked, and cannot be bound
        f"synchronous_commit TO {commit}",
        f"idle_in_transaction_session_timeout TO {_IDLE_SECONDS * 1000}",
    ]
    if not location.portable:
        settings += [
            f"tcp_keepalives_idle TO {_SILENCE_SECONDS // 3}",
            f"tcp_keepalives_interval TO {_SILENCE_SECONDS // 3}",
            "tcp_keepalives_count TO 2",
            f"tcp_user_timeout TO {_SILENCE_SECONDS * 1000}",
        ]
    connection.execute("; ".join(f"SET {setting}" for setting in settings))
    return connection


def fetch(connection: psycopg.Connection[Any], name: str, arguments: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every row a named statement answers with; none where it is one that answers with nothing."""
    cursor = connection.execute(Q[name], arguments, binary=True)
    return cursor.fetchall() if cursor.description else []
