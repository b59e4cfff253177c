"""Inside a process under test: it knows every point that it passes, tells the oracle, and dies where it is told.

The points are put on the verbs of the store by `writes`, on the bodies of steps and effects by `bodies`.
"""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure import clock
from perdure.testing.crash.oracle import Line
from perdure.testing.crash.points import Point, main_run, run_label

if TYPE_CHECKING:
    from perdure.records import Run

_GATE_SECONDS: Final = 0.01
_WRITING_SECONDS: Final = 2.0


class Orders(Struct, frozen=True, kw_only=True):
    """What a process under test is told before it begins."""

    trial: str
    life: str
    port: int
    kill_at: str = ""
    freeze_at: str = ""
    hold_at: str = ""
    """Where one thread waits until the gate is there, while the rest of the process goes on."""
    gate: str = ""
    clock: str = ""
    """The file that the wall clock follows; none where it is empty."""
    traced: bool = False
    files: bool = False
    """Whether the files it writes are points too."""
    skipped_seconds: float = 0.0
    """By how much its clock is ahead from the start."""
    main: tuple[str, str] = ("", "")
    """The main run of the first process of the trial, after which every other is called; the first one finds it."""


class Trap:
    """The points of one process: counted, told, and one of them fatal."""

    def __init__(self) -> None:
        self.orders: Orders | None = None
        self.main: tuple[str, str] | None = None
        self.here = threading.local()
        self.writing: set[int] = set()
        """The threads that are in the middle of a write to an SQLite file."""
        self._lock = threading.RLock()
        self._occurrences: Counter[tuple[str, str, str]] = Counter()
        self._line: Line | None = None
        self._thawed = False
        """Whether it was frozen once: a write that is tried again comes to the same point again."""

    def arm(self, orders: Orders) -> None:
        """From here on, in this very process."""
        self.orders = orders
        self.main = orders.main if orders.main != ("", "") else None
        self._line = Line(orders.port)
        self.tell(verb="hello", trial=orders.trial, life=orders.life, pid=os.getpid(), traced=orders.traced)

    def tell(self, **word: Any) -> Any:
        """Tell the oracle something, and wait until it has heard."""
        if self._line is None or self.orders is None:
            return None
        with self._lock:
            return self._line.ask(word)

    def reach(self, *moments: tuple[str, str, str]) -> None:
        """Come so far (name, window, key); the process goes no further if this is where it is to die."""
        orders = self.orders
        if orders is None or not moments:
            return
        with self._lock:
            points = [self._numbered(*moment) for moment in moments]
            if orders.traced:
                rows = [(point.name, point.window, point.key, point.occurrence) for point in points]
                self.tell(verb="passed", trial=orders.trial, life=orders.life, points=rows)
            reached = {text for point in points for text in (point.text, point.short)}
            if orders.kill_at in reached:
                self._land(orders.kill_at)
                stop(signal.SIGKILL)
            freezes = orders.freeze_at in reached and not self._thawed
            self._thawed |= freezes
        if freezes:
            self._land(orders.freeze_at)
            self._let_others_write()
            stop(signal.SIGSTOP)
        if orders.hold_at in reached:
            self._land(orders.hold_at)
            _wait_for(orders.gate)

    def see(self, run: Run) -> None:
        """The first run that this process has to do with is its main one."""
        if self.main is None and self.orders is not None:
            self.main = main_run(run)
            self.tell(verb="main", trial=self.orders.trial, life=self.orders.life, main=self.main)

    def key_of(self, run: Run, key: str) -> str:
        """The key of a call, told from those of other runs."""
        self.see(run)
        return f"{run_label(run, self.main or ('', ''))}{key}"

    def _numbered(self, name: str, window: str, key: str) -> Point:
        self._occurrences[name, window, key] += 1
        return Point(name, window, key, self._occurrences[name, window, key])

    def _let_others_write(self) -> None:
        """Wait for threads in the middle of a write: frozen there, they would keep an SQLite file locked for all."""
        until = clock.elapsed_seconds() + _WRITING_SECONDS
        while self.writing - {threading.get_ident()} and clock.elapsed_seconds() < until:
            clock.sleep(_WRITING_SECONDS / 1000)

    def _land(self, point: str) -> None:
        if self.orders is not None:
            self.tell(verb="landed", trial=self.orders.trial, life=self.orders.life, point=point)


trap: Final = Trap()


def stop(how: signal.Signals) -> None:
    """Be killed, or frozen, as any process can be; the signal is meant for this thread, which goes no step further."""
    signal.pthread_kill(threading.get_ident(), how)
    if how == signal.SIGKILL:
        signal.pause()


def _wait_for(gate: str) -> None:
    """Wait until a file is there."""
    while not os.path.exists(gate):  # noqa: PTH110 - asked a hundred times a second
        clock.sleep(_GATE_SECONDS)
