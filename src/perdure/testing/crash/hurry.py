"""Inside a process under test: nobody waits for a time to come. Where the run would, its clock moves on instead.

Skipped are the sleeps of a run, the delay before another attempt, and the time in which a request of a dead sender may
still land; that one only once the oracle says that nothing is on its way any more. What a body itself sleeps is real.
The clock stays ahead in every later process of the trial; durations and leases are measured on others, which stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from perdure import clock
from perdure.engine import settle
from perdure.engine.drive import Pause
from perdure.testing.crash.trap import trap

Until = Callable[[], float] | None
"""What tells when something comes by itself."""

_WORTH_SECONDS: Final = 0.05
"""A shorter pause is not worth moving the clock."""

_ahead: Final = [0.0]


def prepare() -> None:
    """Let the clock of this process be moved on."""
    original_wall: Callable[[], float] = clock.wall_seconds
    original_flight: Callable[..., float] = vars(settle)["seconds_in_flight"]

    def wall_seconds() -> float:
        return original_wall() + _ahead[0]

    def seconds_in_flight(**known: Any) -> float:
        if trap.orders is None:
            return original_flight(**known)
        trap.tell(verb="settle", trial=trap.orders.trial)
        return 0.0

    clock.wall_seconds = wall_seconds
    vars(settle)["seconds_in_flight"] = seconds_in_flight
    _watch_polls()
    _watch_pauses()


def begin(seconds: float) -> None:
    """The clock is ahead by so much, because earlier processes of the trial moved it."""
    _ahead[0] = seconds


def skip(seconds: float) -> None:
    """Let so much time be over."""
    if seconds > 0 and trap.orders is not None:
        _ahead[0] += seconds
        trap.tell(verb="skipped", trial=trap.orders.trial, seconds=_ahead[0])


def _watch_polls() -> None:
    """Go to where what is waited for comes by itself; everything else is waited for as ever."""
    original_poll, original_poll_async = clock.poll, clock.poll_async

    def poll(seconds: float, *, until: Until = None, woken: Any = None) -> None:
        if not _goes_to(until):
            original_poll(seconds, until=until, woken=woken)

    async def poll_async(seconds: float, *, until: Until = None) -> None:
        await original_poll_async(0.0 if _goes_to(until) else seconds, until=until)

    clock.poll = poll
    clock.poll_async = poll_async


def _goes_to(until: Until) -> bool:
    comes_at = until() if until is not None and trap.orders is not None else 0.0
    seconds = comes_at - clock.wall_seconds() if comes_at else 0.0
    skip(seconds)
    return seconds > 0


def _watch_pauses() -> None:
    original_now, original_later = Pause.now, Pause.later

    def now(self: Pause) -> None:
        if not _skipped(self):
            original_now(self)

    async def later(self: Pause) -> None:
        if not _skipped(self):
            await original_later(self)

    Pause.now = now  # type: ignore[method-assign]
    Pause.later = later  # type: ignore[method-assign]


def _skipped(pause: Pause) -> bool:
    seconds = pause._seconds  # noqa: SLF001 - what it would have waited for
    if trap.orders is None or seconds < _WORTH_SECONDS:
        return False
    skip(seconds)
    return True
