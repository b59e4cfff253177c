"""`Schedule`: when an agent runs by itself; and, from its row and the time, what is due of it. Pure.

A schedule is words of a program until a worker that loads it declares it; from then on everybody goes by the row that
the store keeps, whatever their own code says, and the newest declaration counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timezone
from typing import Any, Final, Literal, get_args

import msgspec
from msgspec import Struct

from perdure import records
from perdure.cron import next_after, parse, zone_of
from perdure.errors import UsageError
from perdure.records import sealed_schedule

CatchUp = Literal["last", "all", "none"]

MOST_TICKS: Final = 100
"""After an outage `catch_up="all"` makes up for so many ticks, the newest."""

GRACE_SECONDS: Final = 60.0
"""A tick that is seen so late is not missed yet."""

_FIRST_SPAN_SECONDS: Final = 7200.0
_NAME_CHARACTERS: Final = 100
_SAFE: Final = "nothing was started."


class Schedule:
    """When an agent runs by itself: `Schedule("30 9 * * MON-FRI", timezone="Europe/Berlin")`.

    `catch_up` says what becomes of ticks while no worker was there: one run for the "last" of them, a run for each of
    "all", the newest 100 at most, or "none". An agent with several schedules gives each a `name`. Every run gets these
    `arguments`, and the instant of its tick as `tick` if the agent has a parameter of that name.
    """

    def __init__(
        self,
        cron: str,
        *,
        timezone: str = "UTC",
        catch_up: CatchUp = "last",
        name: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self.cron = parse(cron).expression
        zone_of(timezone)
        self.timezone = timezone
        self.catch_up = catch_up
        self.name = name
        self.arguments = {} if arguments is None else arguments
        if catch_up not in get_args(CatchUp):
            raise UsageError(
                f"Schedule({cron!r}, catch_up={catch_up!r:.80}).", safe=_SAFE, hint='catch_up="last", "all" or "none"'
            )
        is_text = isinstance(name, str) and name.isprintable() and name == name.strip() and "@" not in name
        if not is_text or len(name) > _NAME_CHARACTERS:
            raise UsageError(
                f"Schedule({cron!r}, name={name!r:.80}) is no name.",
                safe=_SAFE,
                hint=f'up to {_NAME_CHARACTERS} printable characters, without @: name="morning"',
            )
        if not isinstance(self.arguments, Mapping) or not all(isinstance(each, str) for each in self.arguments):
            raise UsageError(
                f"Schedule({cron!r}, arguments={arguments!r:.80}): arguments are given by name.",
                safe=_SAFE,
                hint='arguments={"region": "eu"}',
            )

    def __repr__(self) -> str:
        name = f", name={self.name!r}" if self.name else ""
        return f"Schedule({self.cron!r}, timezone={self.timezone!r}, catch_up={self.catch_up!r}{name})"


class Due(Struct, frozen=True):
    """What is to be done about a schedule now."""

    ticks: tuple[float, ...]
    """Each becomes a run, oldest first."""
    next_at: float
    """The first tick after these."""
    skipped_until: float = 0.0
    """Ticks before this one were missed and get no run; 0 where there are none."""


def due(row: records.Schedule, *, now: float) -> Due | None:
    """Which ticks become runs now, by the row's own terms; None where nothing is due."""
    if row.off_at or row.next_at > now:
        return None
    limit = MOST_TICKS if row.catch_up == "all" else 1
    newest = _newest(row, now=now, limit=limit)
    next_at = next_after(parse(row.cron), zone_of(row.timezone), now)
    if row.catch_up == "none" and now - newest[-1] > GRACE_SECONDS:
        return Due((), next_at, skipped_until=next_at)
    return Due(newest, next_at, skipped_until=newest[0] if newest[0] > row.next_at else 0.0)


def seen_to(row: records.Schedule, done: Due, *, run_id: str) -> records.Schedule:
    """The row once the ticks that were due have their runs, the last of which has this id."""
    changes: dict[str, Any] = {"next_at": done.next_at}
    if done.ticks:
        changes |= {"last_at": done.ticks[-1], "last_run": run_id}
    return sealed_schedule(msgspec.structs.replace(row, **changes))


def declared(wanted: records.Schedule, known: records.Schedule | None, *, now: float) -> records.Schedule | None:
    """The row that code asks for, given the one that is there; None where it says so already.

    Other times count from now on. Anything else leaves the next tick as it is, and what is switched off stays off.
    """
    if known is None or not records.is_whole_row(known):
        return sealed_schedule(msgspec.structs.replace(wanted, next_at=_first_after(wanted, now)))
    kept = {"next_at": known.next_at, "last_at": known.last_at, "last_run": known.last_run, "off_at": known.off_at}
    if (wanted.cron, wanted.timezone) != (known.cron, known.timezone):
        kept["next_at"] = _first_after(wanted, now)
    after = sealed_schedule(msgspec.structs.replace(wanted, **kept))
    return None if after == known else after


def switched(row: records.Schedule, *, off: bool, now: float) -> records.Schedule:
    """The row switched off, or on: ticks that passed meanwhile are not made up for."""
    if bool(row.off_at) == off:
        return row
    next_at = row.next_at if off else max(row.next_at, _first_after(row, now))
    return sealed_schedule(msgspec.structs.replace(row, off_at=now if off else 0.0, next_at=next_at))


def full_name(agent: str, name: str) -> str:
    """By which the store knows a schedule: two agents may each have one called "morning"."""
    return f"{agent}:{name}" if name else agent


def local_tick(row: records.Schedule, tick_at: float) -> datetime:
    """A tick as clocks in the schedule's zone show it, in a form that a record keeps as it is."""
    shown = datetime.fromtimestamp(tick_at, zone_of(row.timezone))
    offset = shown.utcoffset()
    return shown.astimezone(timezone(offset)) if offset else shown.astimezone(UTC)


def _first_after(row: records.Schedule, instant: float) -> float:
    return next_after(parse(row.cron), zone_of(row.timezone), instant)


def _newest(row: records.Schedule, *, now: float, limit: int) -> tuple[float, ...]:
    """The newest ticks that are due, oldest first; looked for backwards, so that a long outage costs no more."""
    cron, zone, span = parse(row.cron), zone_of(row.timezone), _FIRST_SPAN_SECONDS
    while True:
        begin, ticks = max(row.next_at, now - span), []
        tick = begin if begin == row.next_at else next_after(cron, zone, begin)
        while tick <= now:
            ticks.append(tick)
            tick = next_after(cron, zone, tick)
        if begin == row.next_at or len(ticks) >= limit:
            return tuple(ticks[-limit:])
        span *= 4
