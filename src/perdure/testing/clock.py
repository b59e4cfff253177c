"""A clock in the hands of a test: it stands still, and goes on where every run waits for a time, or the test says so.

The engine, its threads and its event loops are the real ones. A run that sleeps for three days wakes in milliseconds,
because the clock is put to the moment it waits for as soon as no run of this process works. A wait for a person or a
signal is not skipped: a test says how long nobody comes (`advance`).
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import weakref
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure import clock
from perdure.engine.active import Active
from perdure.engine.runner import runner_of
from perdure.engine.scope import current_frame
from perdure.engine.session import open_sessions
from perdure.engine.stillness import Standing, Watch
from perdure.errors import PerdureError, UsageError
from perdure.policy import Duration, seconds_of

if TYPE_CHECKING:
    from perdure.engine.scope import Frame

_REAL_SECONDS: Final = 0.001
"""How long a poll really takes: what it watches is other threads, which need real time."""

_FRESH_SECONDS: Final = 0.5
"""Whoever polls does so again in less; what has not polled for so long does not wait any more."""

_WAKE_SECONDS: Final = 0.2
"""So long, at most, nobody is left behind by the clock whose time has just come."""

_CALM_SECONDS: Final = 0.04
"""So long nothing moves before time is skipped."""

_SETTLE_SECONDS: Final = 10.0


class Due(Struct, frozen=True):
    """Somebody who waits for a moment, when that was last seen, and how far its run had come then."""

    at: float
    seen_at: float
    active: Active | None
    movements: int


class ManualClock:
    """Time that passes only when the test says so, or when all that is left to do is to wait for it."""

    def __init__(self) -> None:
        self._wall = float(math.floor(clock.wall_seconds()))
        self._boot = clock.boot_seconds()
        self._skips = True
        self._lock = threading.RLock()
        self._dues: dict[object, Due] = {}
        self._gone_at = 0.0
        self._calm: tuple[list[tuple[int, int]], float] = ([], 0.0)
        self._asleep: weakref.WeakKeyDictionary[Active, int] = weakref.WeakKeyDictionary()
        self._watches: weakref.WeakKeyDictionary[Active, Watch] = weakref.WeakKeyDictionary()
        self._real_sleep = clock.sleep

    @property
    def now(self) -> datetime:
        """The time, UTC."""
        return datetime.fromtimestamp(self._wall, UTC)

    def advance(self, duration: Duration) -> None:
        """Let so much time pass: seconds, a timedelta, or a text such as "3d"; what it wakes has moved when it returns.

        Runs that were started before (`perdure.start`) first come as far as they can, and go on by themselves after it;
        others when they are run again.
        """
        seconds = seconds_of(duration, what="duration")
        self._settle()
        with self._lock:
            self._go_to(self._wall + seconds)
        self._settle()

    def advance_to(self, instant: datetime) -> None:
        """Let time pass until this instant, which must name its time zone."""
        if instant.utcoffset() is None:
            raise UsageError(
                f"The clock cannot go to {instant}: that names no time zone, and is another instant in each.",
                safe="it stands where it was.",
                hint=f"name it, UTC for example: datetime.fromisoformat('{instant.isoformat()}+00:00')",
            )
        if instant.timestamp() < self._wall:
            raise UsageError(
                f"The clock cannot go back to {instant}: it shows {self.now}.",
                safe="it stands where it was.",
                hint="name a later instant: clock.now + timedelta(days=1)",
            )
        self.advance(instant.timestamp() - self._wall)

    def come_to_rest(self, *, seconds: float) -> None:
        """Let started runs come as far as they can without the test, for so many real seconds at most."""
        self._settle(seconds, is_at_rest=self._is_at_rest)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Skip nothing meanwhile: a run that sleeps goes on only when the test advances the clock."""
        before, self._skips = self._skips, False
        try:
            yield
        finally:
            self._skips = before

    @contextlib.contextmanager
    def installed(self) -> Iterator[ManualClock]:
        """Everybody in this process goes by this clock meanwhile."""
        ours: dict[str, Callable[..., Any]] = {
            "wall_seconds": lambda: self._wall,
            "boot_seconds": lambda: self._boot,
            "heed_time": lambda *_args, **_kwargs: None,
            "skew_seconds": lambda: 0.0,
            "pause": self._pause,
            "pause_async": self._pause_async,
            "poll": self._poll,
            "poll_async": self._poll_async,
        }
        before = {name: getattr(clock, name) for name in ours}
        vars(clock).update(ours)
        try:
            yield self
        finally:
            vars(clock).update(before)

    def _pause(self, seconds: float) -> None:
        due_at = self._wall + max(0.0, seconds)
        with self._resting():
            while self._wall < due_at:
                self._poll(seconds, until=lambda: due_at)

    async def _pause_async(self, seconds: float) -> None:
        due_at = self._wall + max(0.0, seconds)
        with self._resting():
            await asyncio.sleep(0)
            while self._wall < due_at:
                await self._poll_async(seconds, until=lambda: due_at)

    def _poll(
        self, seconds: float, *, until: Callable[[], float] | None = None, woken: threading.Event | None = None
    ) -> None:
        if self._has_skipped(until):
            return
        if woken is None:
            self._real_sleep(min(seconds, _REAL_SECONDS))
        else:
            woken.wait(min(seconds, _REAL_SECONDS))

    async def _poll_async(self, seconds: float, *, until: Callable[[], float] | None = None) -> None:
        if not self._has_skipped(until):
            await asyncio.sleep(min(seconds, _REAL_SECONDS))

    def _has_skipped(self, until: Callable[[], float] | None) -> bool:
        """Put the clock to the first of all the moments that are waited for, where nothing else is left to do."""
        due_at = until() if until is not None else 0.0
        with self._lock:
            self._dues.pop(_who(), None)
            if not due_at:
                return False
            if due_at > self._wall and self._skips:
                self._dues[_who()] = Due(due_at, clock.elapsed_seconds(), active := _active(), _movements(active))
                if not self._is_anybody_waking() and not self._is_anybody_moving() and self._is_calm():
                    self._go_to(min(due.at for due in self._dues.values() if due.at > self._wall))
            return due_at <= self._wall

    def _is_anybody_waking(self) -> bool:
        """Whether somebody whose time has come has not been given the processor since."""
        now = clock.elapsed_seconds()
        self._dues = {who: due for who, due in self._dues.items() if now - due.seen_at < _FRESH_SECONDS}
        come = [due for due in self._dues.values() if due.at <= self._wall]
        is_recent = now - self._gone_at < _WAKE_SECONDS
        return is_recent and any(_movements(due.active) == due.movements for due in come)

    def _is_calm(self) -> bool:
        """Whether nothing has moved for a moment: on a busy machine a run may stand still between two of its calls."""
        held = [active for opened in open_sessions() for active in opened.held()]
        seen, now = [(id(active), _movements(active)) for active in held], clock.elapsed_seconds()
        if seen != self._calm[0]:
            self._calm = (seen, now)
        return now - self._calm[1] >= _CALM_SECONDS

    def _go_to(self, wall: float) -> None:
        """Time passes at once, for leases too: nobody holds it against a process of this test that it gave no sign."""
        self._gone_at = clock.elapsed_seconds()
        self._calm = ([], self._gone_at)
        boot = self._boot + (wall - self._wall)
        for opened in open_sessions():
            opened.upkeep.acknowledge(boot)
        self._wall, self._boot = wall, boot
        for opened in open_sessions():
            with contextlib.suppress(PerdureError):
                if opened.needs_upkeep:
                    opened.store.beat(opened.store.join().worker_id)

    def _settle(self, seconds: float = _SETTLE_SECONDS, *, is_at_rest: Callable[[], bool] | None = None) -> None:
        """Wait until what the new time wakes has moved as far as it can."""
        until, is_over = clock.elapsed_seconds() + seconds, is_at_rest or self._is_settled
        while clock.elapsed_seconds() < until and not is_over():
            self._real_sleep(_REAL_SECONDS)

    def _is_settled(self) -> bool:
        if self._is_anybody_moving():
            return False
        with contextlib.suppress(PerdureError):
            return all(runner_of(opened).is_settled() for opened in open_sessions())
        return True

    def _is_at_rest(self) -> bool:
        """Whether nothing moves, and nothing is about to; no time passes between the two looks."""
        with self._lock:
            return self._is_settled() and not (self._skips and self._is_skipping())

    def _is_skipping(self) -> bool:
        """Whether somebody waits for a time alone, to which this clock is about to go, or has just gone."""
        if self._is_anybody_waking():
            return True
        comes_at = [runner_of(opened)._comes_at() for opened in open_sessions()]  # noqa: SLF001 - nobody else asks
        return any(at > self._wall for at in (*comes_at, *(due.at for due in self._dues.values())))

    def _is_anybody_moving(self) -> bool:
        """Whether a run of this process works, or is about to."""
        for opened in open_sessions():
            held = opened.held()
            if any(active is None or self._is_moving(active) for active in held) or runner_of(opened).has_queued():
                return True
        return False

    def _is_moving(self, active: Active) -> bool:
        if active.performing > self._asleep.get(active, 0):
            return True
        watch = self._watches.setdefault(active, Watch())
        return active.standing(watch) is not Standing.BLOCKED

    @contextlib.contextmanager
    def _resting(self) -> Iterator[None]:
        """The strand that pauses here does not work meanwhile, even in the middle of a body."""
        frame: Frame | None = current_frame()
        active = None if frame is None else frame.active
        if frame is None or active is None:
            yield
            return
        is_body, strand = bool(frame.body), frame.scope.strand
        with self._lock:
            self._asleep[active] = self._asleep.get(active, 0) + is_body
            active.waiting.add(strand)
        try:
            yield
        finally:
            with self._lock:
                self._asleep[active] -= is_body
                active.waiting.discard(strand)


def _active() -> Active | None:
    frame = current_frame()
    return None if frame is None else frame.active


def _movements(active: Active | None) -> int:
    return 0 if active is None else active.movements


def _who() -> object:
    """Whoever waits here: a task, or a thread."""
    loop = asyncio._get_running_loop()  # noqa: SLF001 - the public form raises where no loop runs
    task = None if loop is None else asyncio.current_task(loop)
    return threading.get_ident() if task is None else id(task)
