"""`sleep` and `sleep_until`: durable timers. A run that sleeps needs no process; whoever runs it next goes on."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from perdure import clock
from perdure.bodies import Opened
from perdure.engine.drive import Pause, drive, drive_async
from perdure.engine.scope import current_frame
from perdure.engine.wait import Place, Resolution, WaitSpec, waited
from perdure.errors import UsageError
from perdure.policy import Duration, seconds_of
from perdure.telemetry.text import utc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Generator

    from perdure.engine.active import Waiting
    from perdure.engine.call import Prepared
    from perdure.engine.scope import Frame


class Slept:
    """What a sync agent gets of a sleep that is over: nothing, which may also be awaited."""

    def __await__(self) -> Generator[Any, None, None]:
        """Nothing is left to wait for."""
        return
        yield


def sleep(duration: Duration) -> Awaitable[None]:
    """Pause the run: seconds, a timedelta, or a text such as "8h". In an async agent, await it.

    The time counts from the first call, whatever dies in between; the run leaves memory meanwhile.
    """
    seconds = seconds_of(duration, what="duration")
    frame = current_frame()
    if frame is None or frame.active is None or frame.body:
        return _plain(seconds, frame)
    return waited(_SLEEP, Timer(seconds=seconds), seconds, finish=_nothing)  # type: ignore[no-any-return]


def sleep_until(instant: datetime) -> Awaitable[None]:
    """Pause the run until this instant, which must name its time zone. In an async agent, await it."""
    if not isinstance(instant, datetime) or instant.tzinfo is None:
        raise UsageError(
            f"sleep_until({instant!r}): an instant needs a time zone.",
            safe="nothing was recorded.",
            hint="datetime(2030, 1, 31, 12, tzinfo=UTC), or perdure.now() + timedelta(days=1)",
        )
    try:
        due = instant.astimezone(UTC)
    except OverflowError:  # an offset from UTC can push the ends of the calendar out of it
        due = instant.replace(tzinfo=UTC)
    seconds_of(max(0.0, due.timestamp() - clock.wall_seconds()), what="the time until then, in seconds")
    frame = current_frame()
    if frame is None or frame.active is None or frame.body:
        return _plain(max(0.0, due.timestamp() - clock.wall_seconds()), frame)
    return waited(_SLEEP_UNTIL, Timer(due_at=due.timestamp()), due, finish=_nothing)  # type: ignore[no-any-return]


class Timer:
    """A wait that only time ends."""

    def __init__(self, *, seconds: float = 0.0, due_at: float = 0.0) -> None:
        self._seconds = seconds
        self._due_at = due_at

    def open(self, prepared: Prepared[WaitSpec]) -> Opened:
        """The time it ends, fixed once."""
        due_at = self._due_at or clock.wall_seconds() + self._seconds
        return Opened(reason="time", shown=prepared.shown(), due_at=max(due_at, 0.001))

    def look(self, place: Place) -> Resolution | None:
        """Whether that time has come."""
        return Resolution() if place.is_due else None

    def standing(self, place: Place) -> Waiting:
        """Sleeping."""
        until = utc(place.opened.due_at)
        return place.waiting(f"sleeps until {until}", "start again then; or leave the process that started it running")


def _sleep(seconds: float) -> None:
    """The parameters that identify a sleep."""


def _sleep_until(instant: datetime) -> None:
    """The parameters that identify a sleep to a fixed time."""


_SLEEP = WaitSpec(_sleep, name="sleep")
_SLEEP_UNTIL = WaitSpec(_sleep_until, name="sleep_until")


def _nothing(_prepared: Prepared[WaitSpec], _value: object) -> Slept:
    return Slept()


def _plain(seconds: float, frame: Frame | None) -> Awaitable[None]:
    """Outside a run, and inside the body of a step, a sleep is only that; a plain function cannot await it."""
    is_blocking = frame is not None and frame.blocking
    if not is_blocking and asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public form raises
        return drive_async(_pause(seconds))
    drive(_pause(seconds))
    return Slept()


def _pause(seconds: float) -> Generator[Pause, Any, None]:
    yield Pause(seconds)
