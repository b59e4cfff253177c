"""Cron expressions: reading one, and the next tick after an instant in a time zone; pure, no clock is read here.

Five fields: minute, hour, day of month, month, day of week; or @hourly, @daily, @weekly, @monthly, @yearly. Where both
days are restricted, either is enough; a day field that begins with a star must hold together with the other.

An expression that runs in every hour has a tick whenever clocks show one of its minutes, also in an hour that is
repeated. Any other names times of the day: one that does not exist, because clocks are set forward over it, is at the
first moment after the gap; one that exists twice is at its first occurrence.
"""

from __future__ import annotations

import bisect
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

_SAFE: Final = "nothing was started."
_HINT: Final = '"minute hour day month weekday", such as "30 9 * * MON-FRI" or "*/15 * * * *"; or "@daily"'
_SHORT: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_LONGEST_MONTHS: Final = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_HOURS: Final = frozenset(range(24))
_SUNDAY: Final = 7
_MINUTE: Final = 60
_HORIZON_YEARS: Final = 41
"""29 February on one day of the week comes back after 40 years at the latest."""


class Field(Struct, frozen=True):
    """One of the five: what it is called, what it may hold, and names for that."""

    name: str
    least: int
    most: int
    names: tuple[str, ...] = ()


_FIELDS: Final = (
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of month", 1, 31),
    Field("month", 1, 12, ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")),
    Field("day of week", 0, 7, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")),
)


class Cron(Struct, frozen=True):
    """An expression that was read: what each field lets through."""

    expression: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    """0 is Sunday."""
    needs_both_days: bool

    def is_on(self, day: date) -> bool:
        """Whether there are ticks on this day."""
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % _SUNDAY in self.weekdays
        return (of_month and of_week) if self.needs_both_days else (of_month or of_week)


def parse(expression: str) -> Cron:
    """Read an expression; raises `UsageError` naming the field that is wrong."""
    if not isinstance(expression, str):
        raise UsageError(f"{expression!r:.80} is no cron expression.", safe=_SAFE, hint=_HINT)
    written = expression.strip()
    parts = _SHORT.get(written.lower(), written).upper().split()
    if len(parts) != len(_FIELDS):
        what = "is not known" if written.startswith("@") else f"has {len(parts)} fields, not 5"
        raise UsageError(f"The cron expression {written[:80]!r} {what}.", safe=_SAFE, hint=_HINT)
    sets = [_values(field, part, written) for field, part in zip(_FIELDS, parts, strict=True)]
    minutes, hours, days, months, weekdays = sets
    needs_both = parts[2].startswith("*") or parts[4].startswith("*")
    if needs_both and min(days) > max(_LONGEST_MONTHS[month] for month in months):
        named = ", ".join(_FIELDS[3].names[month - 1] for month in sorted(months))
        raise _wrong(_FIELDS[2], parts[2], written, f"never comes: no such day is in {named}")
    return Cron(
        written,
        tuple(sorted(minutes)),
        tuple(sorted(hours)),
        frozenset(days),
        frozenset(months),
        frozenset(day % _SUNDAY for day in weekdays),
        needs_both,
    )


def zone_of(name: str) -> tzinfo:
    """The time zone with this IANA name; UTC is known everywhere, the others come with the system or with `tzdata`."""
    if name == "UTC":
        return UTC
    import zoneinfo  # only schedules need it, and it is felt at import

    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise UsageError(
            f"timezone={name!r:.80} is not known here.",
            safe=_SAFE,
            hint='an IANA name such as "Europe/Berlin"; where the system has none of them: pip install tzdata',
        ) from None


def next_after(cron: Cron, zone: tzinfo, instant: float) -> float:
    """The first tick that is later than this instant; both are seconds since 1970."""
    following = _by_elapsed_time if frozenset(cron.hours) == _HOURS else _by_time_of_day
    return following(cron, zone, instant)


def _by_elapsed_time(cron: Cron, zone: tzinfo, instant: float) -> float:
    """Every hour has the same minutes, so the next one is at most an hour away, or at the beginning of another day."""
    minutes = frozenset(cron.minutes)
    tick = (int(instant // _MINUTE) + 1) * _MINUTE
    while True:
        local = datetime.fromtimestamp(tick, zone)
        if not cron.is_on(local.date()):
            tick = max(tick + _MINUTE, _moment(_midnight(next(_days(cron, local.date() + timedelta(1)))), zone))
        elif local.minute in minutes:
            return float(tick)
        else:
            tick += _MINUTE


def _by_time_of_day(cron: Cron, zone: tzinfo, instant: float) -> float:
    """Times of one day are in the order of their instants, whatever the clocks do, so they can be bisected."""
    places = range(len(cron.hours) * len(cron.minutes))
    for day in _days(cron, datetime.fromtimestamp(instant, zone).date() - timedelta(1)):
        midnight = _midnight(day)

        def moment(place: int, midnight: datetime = midnight) -> int:
            hour, minute = divmod(place, len(cron.minutes))
            return _moment(midnight.replace(hour=cron.hours[hour], minute=cron.minutes[minute]), zone)

        place = bisect.bisect_right(places, instant, key=moment)
        if place < len(places):
            return float(moment(place))
    raise AssertionError(cron.expression)  # an expression without ticks is not parsed


def _days(cron: Cron, first: date) -> Iterator[date]:
    """The days with ticks, from this one on."""
    day, last = first, first.year + _HORIZON_YEARS
    while day.year <= last:
        if day.month not in cron.months:
            day = (day.replace(day=1) + timedelta(32)).replace(day=1)
            continue
        if cron.is_on(day):
            yield day
        day += timedelta(1)


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day)  # noqa: DTZ001 - what a clock on the wall shows


def _moment(shown: datetime, zone: tzinfo) -> int:
    """When clocks in the zone first show this, or, where they never do, the first moment after the gap."""
    early = int(shown.replace(tzinfo=zone).timestamp())
    if _shown_at(early, zone) == shown:
        return early
    before, after = int(shown.replace(tzinfo=zone, fold=1).timestamp()), early
    offset = _offset_at(after, zone)
    gap = range(before, after)
    return before + bisect.bisect_left(gap, x=True, key=lambda at: _offset_at(at, zone) == offset)


def _shown_at(instant: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(instant, zone).replace(tzinfo=None, fold=0)


def _offset_at(instant: int, zone: tzinfo) -> timedelta | None:
    return datetime.fromtimestamp(instant, zone).utcoffset()


def _values(field: Field, text: str, expression: str) -> set[int]:
    """What a field lets through: a list of stars, numbers and ranges, each with a step or without."""
    values: set[int] = set()
    for term in text.split(","):
        body, has_step, step = term.partition("/")
        first, is_range, last = body.partition("-")
        if body == "*":
            least, most = field.least, field.most
        else:
            least = _number(field, first, expression)
            most = _number(field, last, expression) if is_range else (field.most if has_step else least)
        if least > most:
            raise _wrong(field, term, expression, f"goes backwards; write {first}-{_last_name(field)} and the rest")
        if has_step and not (step.isascii() and step.isdecimal() and int(step[:9])):
            raise _wrong(field, term, expression, "has no step of 1 or more after the slash")
        values.update(range(least, most + 1, int(step[:9]) if has_step else 1))
    return values


def _number(field: Field, text: str, expression: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.least
    if not (text.isascii() and text.isdecimal()) or not field.least <= int(text[:9]) <= field.most:
        names = f", or {field.names[0]} to {field.names[-1]}" if field.names else ""
        raise _wrong(field, text, expression, f"is not {field.least} to {field.most}{names}")
    return int(text[:9])


def _last_name(field: Field) -> str:
    return field.names[-1] if field.names else str(field.most)


def _wrong(field: Field, text: str, expression: str, what: str) -> UsageError:
    return UsageError(
        f"The cron expression {expression[:80]!r}: {field.name} {text[:40]!r} {what}.", safe=_SAFE, hint=_HINT
    )
