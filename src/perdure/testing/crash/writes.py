"""Inside a process under test: points around everything that either store writes because a run does.

`prepare` is called before the code under test is loaded, in the process that forks the others; without orders the
points cost next to nothing.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from typing import TYPE_CHECKING, Any, Final

from perdure.engine import session as sessions
from perdure.store.sqlite.store import SqliteStore
from perdure.store.sqlite.transaction import Transaction
from perdure.testing.crash.points import record_point
from perdure.testing.crash.trap import trap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from perdure.records import Append

VERBS: Final = (
    "join",
    "create_run",
    "claim_run",
    "append_all",
    "post",
    "debounce_run",
    "change_schedule",
    "declare_queue",
    "repair_run",
    "import_run",
)
"""The verbs of a store that write because the run does; beats and upkeep come at times of their own."""


def prepare() -> None:
    """Put the points on both stores; on the one on a server where its driver is installed."""
    for verb in VERBS:
        _watch_verb(SqliteStore, verb)
    _watch_sqlite_transactions()
    _watch_opening()
    with contextlib.suppress(ImportError):
        _watch_postgres()


def _watch_verb(store: type, verb: str) -> None:
    original: Callable[..., Any] = getattr(store, verb)

    @functools.wraps(original)
    def watched(self: Any, *args: Any, **kwargs: Any) -> Any:
        if trap.orders is None or (verb == "join" and self._worker is not None):
            return original(self, *args, **kwargs)
        if verb == "create_run":
            trap.see(args[0])
        whats = _records_of(args[0]) if verb == "append_all" else [("", verb, "")]
        with _within([] if verb == "join" and store is not SqliteStore else whats):
            _reach("before", whats)
            answer = original(self, *args, **kwargs)
        if verb == "claim_run":
            trap.see(answer)
        _reach("after", whats)
        return answer

    setattr(store, verb, watched)


def _records_of(batch: Sequence[Append]) -> list[tuple[str, str, str]]:
    """The kind, name and key of every record that is about to be appended."""
    return [
        (record.kind, record.name, trap.key_of(append.run, record.key)) for append in batch for record in append.records
    ]


@contextlib.contextmanager
def _within(whats: list[tuple[str, str, str]]) -> Iterator[None]:
    """What this thread writes meanwhile."""
    outer = getattr(trap.here, "whats", None)
    trap.here.whats = whats
    try:
        yield
    finally:
        trap.here.whats = outer


def _reach(window: str, whats: list[tuple[str, str, str]]) -> None:
    moments = []
    for kind, name, key in whats:
        moment = record_point(kind, name, key, window) if kind else (name, window, key)
        if moment is not None:
            moments.append(moment)
    trap.reach(*moments)


def _reach_inside() -> None:
    """A transaction of this thread is about to be committed."""
    whats = getattr(trap.here, "whats", None)
    if whats:
        _reach("inside", whats)


def _watch_sqlite_transactions() -> None:
    original_enter, original_leave = Transaction.__enter__, Transaction.__exit__

    def enter(self: Transaction) -> Any:
        connection = original_enter(self)
        trap.writing.add(threading.get_ident())
        return connection

    def leave(self: Transaction, kind: Any, error: Any, trace: Any) -> Any:
        if error is None:
            _reach_inside()
        try:
            return original_leave(self, kind, error, trace)
        finally:
            trap.writing.discard(threading.get_ident())

    Transaction.__enter__ = enter  # type: ignore[method-assign]
    Transaction.__exit__ = leave  # type: ignore[method-assign]


def _watch_opening() -> None:
    original: Callable[..., Any] = vars(sessions)["open_settings"]

    def opened(*args: Any, **kwargs: Any) -> Any:
        trap.reach(("open_store", "before", ""))
        store = original(*args, **kwargs)
        trap.reach(("open_store", "after", ""))
        return store

    vars(sessions)["open_settings"] = opened


def _watch_postgres() -> None:
    """The same for a server; a statement that commits itself is `inside` once it is sent and not yet answered."""
    from perdure.store.postgres.connect import Connection
    from perdure.store.postgres.store import PostgresStore
    from perdure.store.postgres.wire import Statement

    for verb in VERBS:
        _watch_verb(PostgresStore, verb)
    original_transaction, original_wait = Connection.transaction, Connection.wait
    original_answer, original_prepare = Connection.answer, Statement._prepare  # noqa: SLF001 - what is sent before

    @contextlib.contextmanager
    def transaction(self: Connection, *args: Any, **kwargs: Any) -> Iterator[Any]:
        with original_transaction(self, *args, **kwargs) as begun:
            with _unseen():
                yield begun
            if not _is_unseen():
                _reach_inside()

    def wait(self: Connection, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return original_wait(self, gen if _is_unseen() else _sent(gen), *args, **kwargs)

    def answer(self: Connection) -> Any:
        if not _is_unseen():
            self.pgconn.flush()
            _reach_inside()
        return original_answer(self)

    def prepare_statement(self: Statement, connection: Any) -> None:
        with _unseen():
            original_prepare(self, connection)

    Connection.transaction = transaction  # type: ignore[assignment,method-assign]
    Connection.wait = wait  # type: ignore[method-assign]
    Connection.answer = answer  # type: ignore[method-assign]
    Statement._prepare = prepare_statement  # type: ignore[method-assign]  # noqa: SLF001


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """What this thread sends meanwhile commits nothing by itself."""
    outer, trap.here.is_unseen = getattr(trap.here, "is_unseen", False), True
    try:
        yield
    finally:
        trap.here.is_unseen = outer


def _is_unseen() -> bool:
    return not getattr(trap.here, "whats", None) or getattr(trap.here, "is_unseen", False)


def _sent(gen: Any) -> Any:
    """The same exchange; between its question and its answer lies a point."""
    try:
        wanted = next(gen)
        _reach_inside()
        while True:
            wanted = gen.send((yield wanted))
    except StopIteration as stopped:
        return stopped.value
