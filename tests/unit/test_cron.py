"""Cron expressions: every way to write one, the next tick, what changed clocks do to it, and what is refused."""

from __future__ import annotations

import itertools
import random
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo

import cronsim
import pytest

from perdure.cron import next_after, parse, zone_of
from perdure.errors import UsageError
from tests.sampling import seeds

BERLIN, NEW_YORK, HAVANA = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York"), ZoneInfo("America/Havana")
LORD_HOWE, APIA, KOLKATA = ZoneInfo("Australia/Lord_Howe"), ZoneInfo("Pacific/Apia"), ZoneInfo("Asia/Kolkata")
ZONES = (BERLIN, NEW_YORK, HAVANA, LORD_HOWE, APIA, KOLKATA)
CHANGES = {
    BERLIN: ((2026, 3, 29), (2026, 10, 25)),
    NEW_YORK: ((2026, 3, 8), (2026, 11, 1)),
    HAVANA: ((2025, 3, 9), (2025, 11, 2)),
    LORD_HOWE: ((2026, 4, 5), (2026, 10, 4)),
    APIA: ((2011, 12, 30),),
    KOLKATA: ((2026, 3, 29),),
}
"""Days on which clocks are changed: by an hour, at midnight, by half an hour, by a whole day, never."""


def ticks(expression: str, zone: tzinfo, after: str, count: int) -> list[str]:
    """So many ticks as clocks in the zone show them."""
    cron, instant, shown = parse(expression), datetime.fromisoformat(after).replace(tzinfo=zone).timestamp(), []
    for _ in range(count):
        instant = next_after(cron, zone, instant)
        shown.append(datetime.fromtimestamp(instant, zone).strftime("%m-%d %H:%M %Z"))
    return shown


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("* * * * *", ["2026-01-01 00:01", "2026-01-01 00:02"]),
        ("*/20 * * * *", ["2026-01-01 00:20", "2026-01-01 00:40"]),
        ("5,35 8-9 * * *", ["2026-01-01 08:05", "2026-01-01 08:35"]),
        ("0 22/1 * * *", ["2026-01-01 22:00", "2026-01-01 23:00"]),
        ("0 0-10/5 * * *", ["2026-01-01 05:00", "2026-01-01 10:00"]),
        ("30 9 * * mon-fri", ["2026-01-01 09:30", "2026-01-02 09:30"]),
        ("0 12 * * SAT,7", ["2026-01-03 12:00", "2026-01-04 12:00"]),
        ("0 0 1 JAN *", ["2027-01-01 00:00", "2028-01-01 00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00", "2032-02-29 00:00"]),
        ("0 0 29 2 */7", ["2032-02-29 00:00", "2060-02-29 00:00"]),
        ("0 0 13 * FRI", ["2026-01-02 00:00", "2026-01-09 00:00"]),
        ("0 0 */13 * FRI", ["2026-02-27 00:00", "2026-03-27 00:00"]),
        ("0 0 30 1-2 *", ["2026-01-30 00:00", "2027-01-30 00:00"]),
        ("@hourly", ["2026-01-01 01:00", "2026-01-01 02:00"]),
        ("@daily", ["2026-01-02 00:00", "2026-01-03 00:00"]),
        ("@weekly", ["2026-01-04 00:00", "2026-01-11 00:00"]),
        (" @Monthly ", ["2026-02-01 00:00", "2026-03-01 00:00"]),
        ("@yearly", ["2027-01-01 00:00", "2028-01-01 00:00"]),
    ],
)
def test_next_ticks_are_those_that_the_fields_let_through(expression: str, expected: list[str]) -> None:
    cron, instant, found = parse(expression), datetime(2026, 1, 1, tzinfo=UTC).timestamp(), []
    for _ in expected:
        instant = next_after(cron, UTC, instant)
        found.append(f"{datetime.fromtimestamp(instant, UTC):%Y-%m-%d %H:%M}")
    assert found == expected


def test_tick_is_always_later_than_the_instant_and_at_a_whole_minute() -> None:
    cron = parse("30 9 * * *")
    at = datetime(2026, 1, 1, 9, 30, tzinfo=UTC).timestamp()
    assert next_after(cron, UTC, at - 0.001) == at
    assert next_after(cron, UTC, at) == at + 86400
    assert next_after(cron, UTC, at + 0.001) == at + 86400


class TestClocksAreChanged:
    def test_time_that_does_not_exist_is_at_the_first_moment_after_the_gap(self) -> None:
        assert ticks("30 2 * * *", BERLIN, "2026-03-28T12:00", 2) == ["03-29 03:00 CEST", "03-30 02:30 CEST"]

    def test_all_times_inside_a_gap_are_one_tick(self) -> None:
        shown = ticks("0,20,40 2-3 * * *", BERLIN, "2026-03-28T12:00", 4)
        assert shown == ["03-29 03:00 CEST", "03-29 03:20 CEST", "03-29 03:40 CEST", "03-30 02:00 CEST"]

    def test_time_that_exists_twice_is_at_its_first_occurrence_alone(self) -> None:
        assert ticks("30 2 * * *", BERLIN, "2026-10-24T12:00", 2) == ["10-25 02:30 CEST", "10-26 02:30 CET"]

    def test_expression_of_every_hour_goes_on_through_a_repeated_hour_and_over_a_missing_one(self) -> None:
        repeated = ticks("30 * * * *", BERLIN, "2026-10-25T01:00", 4)
        assert repeated == ["10-25 01:30 CEST", "10-25 02:30 CEST", "10-25 02:30 CET", "10-25 03:30 CET"]
        assert ticks("30 * * * *", BERLIN, "2026-03-29T01:00", 2) == ["03-29 01:30 CET", "03-29 03:30 CEST"]

    def test_midnight_that_does_not_exist_does_not_lose_its_day(self) -> None:
        assert ticks("@daily", HAVANA, "2025-03-08T12:00", 2) == ["03-09 01:00 CDT", "03-10 00:00 CDT"]

    def test_midnight_that_exists_twice_is_one_tick(self) -> None:
        assert ticks("@daily", HAVANA, "2025-11-01T12:00", 2) == ["11-02 00:00 CDT", "11-03 00:00 CST"]

    def test_day_that_a_zone_skipped_is_made_up_for_at_the_beginning_of_the_next(self) -> None:
        assert ticks("0 9 * * *", APIA, "2011-12-29T12:00", 2) == ["12-31 00:00 +14", "12-31 09:00 +14"]

    @seeds(60, sampled=18)
    def test_ticks_are_those_of_somebody_who_watches_the_clock_on_the_wall(self, seed: int) -> None:
        chance = random.Random(seed)
        expression = random_expression(chance, days=False)
        zone = ZONES[seed % len(ZONES)]
        first = datetime(*chance.choice(CHANGES[zone]), tzinfo=UTC) - timedelta(hours=30)
        instant, found = first.timestamp(), []
        until = instant + 72 * 3600
        while (instant := next_after(parse(expression), zone, instant)) <= until:
            found.append(instant)
        assert found == watched(expression, zone, first.timestamp(), until), (expression, zone)


@seeds(250, sampled=50)
def test_ticks_agree_with_another_implementation(seed: int) -> None:
    chance = random.Random(seed)
    expression = random_expression(chance)
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(minutes=chance.randrange(5 * 366 * 1440))
    for zone in (UTC, *ZONES) if reads_clocks_alike(expression) else (UTC,):
        others = itertools.islice(cronsim.CronSim(expression, start.astimezone(zone)), 25)
        instant = start.timestamp()
        for other in others:
            instant = next_after(parse(expression), zone, instant)
            assert instant == other.timestamp(), (expression, zone, other)


@seeds(200, sampled=40)
def test_what_the_other_implementation_refuses_is_refused(seed: int) -> None:
    chance = random.Random(seed)
    parts = random_expression(chance).split()
    parts[chance.randrange(5)] = chance.choice(
        ["60", "-1", "*/0", "1-", "-", "a", "1,,2", "9-1", "", "*/", "1/2/3", "1-2-3"]
    )
    expression = " ".join(parts)
    with pytest.raises(cronsim.CronSimError):
        cronsim.CronSim(expression, datetime(2026, 1, 1, tzinfo=UTC))
    with pytest.raises(UsageError):
        parse(expression)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("0 * * * * *", "has 6 fields"),
        ("@reboot", "is not known"),
        ("60 * * * *", "minute '60' is not 0 to 59"),
        ("* 24 * * *", "hour '24' is not 0 to 23"),
        ("* * 0 * *", "day of month '0' is not 1 to 31"),
        ("* * L * *", "day of month 'L' is not 1 to 31"),
        ("* * * 13 *", "month '13' is not 1 to 12, or JAN to DEC"),
        ("* * * * 8", "day of week '8' is not 0 to 7, or SUN to SAT"),
        ("* * * * MONDAY", "day of week 'MONDAY'"),
        ("* * ? * *", "day of month '?'"),
        ("*/0 * * * *", "minute '*/0' has no step"),
        ("* 22-2 * * *", "hour '22-2' goes backwards"),
        ("0 0 30 2 *", "day of month '30' never comes: no such day is in FEB"),
        ("0 0 31 4,6,9,11 *", "day of month '31' never comes: no such day is in APR, JUN, SEP, NOV"),
        ("0 0 30 FEB */2", "day of month '30' never comes"),
        ("٣ * * * *", "minute '٣'"),
        ("9" * 5000 + " * * * *", "minute"),
    ],
)
def test_what_could_never_run_is_refused_with_the_field_named(expression: str, words: str) -> None:
    with pytest.raises(UsageError) as refusal:
        parse(expression)
    assert words in refusal.value.message
    assert refusal.value.safe
    assert refusal.value.hint


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(UsageError):
        parse(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["Europe/Atlantis", "", "../etc/passwd", "/etc/localtime", "Europe", 3])
def test_zone_that_is_not_known_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="is not known here"):
        zone_of(name)


def test_known_zones_are_found() -> None:
    assert zone_of("UTC") is UTC
    assert zone_of("Europe/Berlin") == BERLIN


def random_expression(chance: random.Random, *, days: bool = True) -> str:
    """Any expression that has a tick now and then."""

    def field(least: int, most: int, names: str = "") -> str:
        named = names.split()

        def value() -> tuple[int, str]:
            number = chance.randint(least, most)
            place = number - least
            return number, named[place] if place < len(named) and chance.random() < 0.5 else str(number)

        def term() -> str:
            kind = chance.choice(("star", "one", "one", "range", "star step", "range step", "one step"))
            (one, first), (two, last) = sorted((value(), value()))
            if one == two:  # the other one takes a range of one value for a beginning without an end
                kind = kind.replace("range", "one")
            step = chance.randint(1, most - least + 3)
            words = {
                "star": "*",
                "one": first,
                "range": f"{first}-{last}",
                "star step": f"*/{step}",
                "range step": f"{first}-{last}/{step}",
                "one step": f"{first}/{step}",
            }
            return words[kind]

        return ",".join(term() for _ in range(chance.choice((1, 1, 1, 2, 3))))

    months, weekdays = "JAN FEB MAR APR MAY JUN JUL AUG SEP OCT NOV DEC", "SUN MON TUE WED THU FRI SAT"
    of_day = [field(0, 59), field(0, 23)]
    return " ".join(
        [*of_day, field(1, 28), field(1, 12, months), field(0, 7, weekdays)] if days else [*of_day, "* * *"]
    )


def reads_clocks_alike(expression: str) -> bool:
    """The other one goes by how hours and minutes are written, this one by whether all hours are meant."""
    minute, hour, *_ = expression.split()
    if hour.startswith("*"):
        return len(parse(expression).hours) == 24
    return not minute.startswith("*") and len(parse(expression).hours) < 24


def watched(expression: str, zone: tzinfo, after: float, until: float) -> list[float]:
    """Look at the clock on the wall every minute, and remember what it jumps over and what it has shown before."""
    cron, found, seen = parse(expression), [], set()
    wanted = {(hour, minute) for hour in cron.hours for minute in cron.minutes}
    before = datetime.fromtimestamp(after - 86400, zone).replace(tzinfo=None)
    for instant in range(int(after) - 86400 + 60, int(until) + 1, 60):
        shown = datetime.fromtimestamp(instant, zone).replace(tzinfo=None)
        passed = [
            before + timedelta(minutes=number) for number in range(1, int((shown - before).total_seconds()) // 60)
        ]
        is_named = (shown.hour, shown.minute) in wanted
        if len(cron.hours) < 24:
            is_named = (is_named and shown not in seen) or any((at.hour, at.minute) in wanted for at in passed)
        if is_named and instant > after:
            found.append(float(instant))
        seen.add(shown)
        before = shown
    return found
