"""Kills its own process, with a real SIGKILL, at a chosen moment of its work on the store or on the outside.

A moment is named `side:what#occurrence`. What is the record being written (`step:main.7`), or the verb where none is
known yet (`claim_run`). Such a name means the same moment in every run of a deterministic agent, however its commits
are grouped. Sides of a write: before, inside (nothing committed yet), unmarked (committed), marked, after
(acknowledged).

CRASH_AT names the moment to die at, or is its number in this process; CRASH_FREEZE_AT names one to freeze at instead;
CRASH_HOLD_AT names one that the thread which comes there never leaves, while the others go on; CRASH_MOMENTS names a
file that collects every moment passed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from perdure.records import Append
from perdure.store.protocol import Outcome
from perdure.store.sqlite.presence import Mark
from perdure.store.sqlite.store import SqliteStore

AT: Final = "CRASH_AT"
FREEZE_AT: Final = "CRASH_FREEZE_AT"
HOLD_AT: Final = "CRASH_HOLD_AT"
MOMENTS: Final = "CRASH_MOMENTS"

_lock = threading.Lock()
_occurrences: Counter[str] = Counter()
_here = threading.local()
_passed = 0


def arm() -> None:
    """Put a moment on every side of every write of this process."""
    _watch_appends()
    _watch_transactions()
    _watch_marks()
    _watch_fence()


def moment(side: str, *whats: str) -> None:
    """This process has come so far; it goes no further if this is where it is to die."""
    global _passed  # noqa: PLW0603 - one process, one count
    with _lock:
        _passed += 1
        names = [_numbered(f"{side}:{what}") for what in whats]
        _collect(names)
        if os.environ.get(AT) in {*names, str(_passed)}:
            _stop(signal.SIGKILL)
    if os.environ.get(FREEZE_AT) in names:
        _stop(signal.SIGSTOP)
    if os.environ.get(HOLD_AT) in names:
        threading.Event().wait()


def _numbered(name: str) -> str:
    _occurrences[name] += 1
    return f"{name}#{_occurrences[name]}"


def _stop(how: signal.Signals) -> None:
    os.kill(os.getpid(), how)
    if how == signal.SIGKILL:
        signal.pause()  # the signal may reach another thread first; this one does nothing more


def _collect(names: list[str]) -> None:
    path = os.environ.get(MOMENTS)
    if path:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(descriptor, "".join(f"{name}\n" for name in names).encode())
        os.close(descriptor)


def _watch_appends() -> None:
    """Know which records a transaction will hold before it begins."""
    original: Callable[..., list[Outcome]] = SqliteStore.append_all

    def append_all(self: SqliteStore, batch: Sequence[Append], *, power: bool) -> list[Outcome]:
        _here.records = [f"{record.kind}:{record.key}" for append in batch for record in append.records]
        try:
            return original(self, batch, power=power)
        finally:
            _here.records = []

    SqliteStore.append_all = append_all  # type: ignore[method-assign]


def _watch_transactions() -> None:
    original: Callable[..., contextlib.AbstractContextManager[Any]] = SqliteStore._transaction  # noqa: SLF001

    @contextlib.contextmanager
    def transaction(self: SqliteStore, *args: Any, **kwargs: Any) -> Iterator[Any]:
        verb = sys._getframe(2).f_code.co_name  # noqa: SLF001 - behind the context manager stands the verb
        whats = getattr(_here, "records", []) or [verb]
        moment("before", *whats)
        _here.whats = whats
        try:
            with original(self, *args, **kwargs) as connection:
                yield connection
                moment("inside", *whats)
        finally:
            _here.whats = []
        moment("after", *whats)

    SqliteStore._transaction = transaction  # type: ignore[assignment,method-assign]  # noqa: SLF001


def _watch_marks() -> None:
    original: Callable[..., None] = Mark.advance

    def advance(self: Mark, *args: Any, **kwargs: Any) -> None:
        whats = getattr(_here, "whats", []) or ["mark"]
        moment("unmarked", *whats)
        original(self, *args, **kwargs)
        moment("marked", *whats)

    Mark.advance = advance  # type: ignore[method-assign]


def _watch_fence() -> None:
    """The look at the fence that an effect takes after its intent is committed and before its body begins."""
    original: Callable[..., bool] = SqliteStore.holds

    def holds(self: SqliteStore, run_id: str, epoch: int) -> bool:
        moment("unfenced", "holds")
        answer = original(self, run_id, epoch)
        moment("fenced", "holds")
        return answer

    SqliteStore.holds = holds  # type: ignore[method-assign]
