"""What is due of a schedule, and what a declaration changes: decided from the row and the time alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from perdure import records
from perdure.cron import next_after, parse
from perdure.errors import UsageError
from perdure.records import is_whole_row, sealed_schedule
from perdure.schedules import (
    GRACE_SECONDS,
    MOST_TICKS,
    Schedule,
    declared,
    due,
    full_name,
    local_tick,
    seen_to,
    switched,
)

DAY = 86400.0
NINE = datetime(2026, 3, 2, 9, 0, tzinfo=UTC).timestamp()
"""A tick of the row below."""


def row(**fields: Any) -> records.Schedule:
    bare = records.Schedule("shop.digest", "shop.digest", "0 9 * * *", "UTC", "last", "{}", next_at=NINE)
    return sealed_schedule(msgspec.structs.replace(bare, **fields))


class TestDue:
    def test_nothing_is_due_before_the_tick(self) -> None:
        assert due(row(), now=NINE - 0.001) is None

    @pytest.mark.parametrize("catch_up", ["last", "all", "none"])
    def test_tick_is_due_at_its_instant_whatever_becomes_of_missed_ones(self, catch_up: str) -> None:
        for late in (0.0, 0.3, GRACE_SECONDS):
            found = due(row(catch_up=catch_up), now=NINE + late)
            assert found is not None
            assert (found.ticks, found.next_at, found.skipped_until) == ((NINE,), NINE + DAY, 0.0)

    def test_last_makes_up_for_the_newest_missed_tick_alone(self) -> None:
        found = due(row(catch_up="last"), now=NINE + 3.5 * DAY)
        assert found is not None
        assert (found.ticks, found.next_at, found.skipped_until) == ((NINE + 3 * DAY,), NINE + 4 * DAY, NINE + 3 * DAY)

    def test_all_makes_up_for_every_missed_tick_oldest_first(self) -> None:
        found = due(row(catch_up="all"), now=NINE + 3.5 * DAY)
        assert found is not None
        assert found.ticks == tuple(NINE + number * DAY for number in range(4))
        assert (found.next_at, found.skipped_until) == (NINE + 4 * DAY, 0.0)

    def test_all_is_bounded_to_the_newest(self) -> None:
        found = due(row(catch_up="all"), now=NINE + 250.5 * DAY)
        assert found is not None
        assert len(found.ticks) == MOST_TICKS
        assert found.ticks[-1] == NINE + 250 * DAY
        assert found.skipped_until == found.ticks[0] == NINE + 151 * DAY

    def test_none_skips_what_is_older_than_the_grace(self) -> None:
        found = due(row(catch_up="none"), now=NINE + GRACE_SECONDS + 1)
        assert found is not None
        assert (found.ticks, found.next_at, found.skipped_until) == ((), NINE + DAY, NINE + DAY)

    def test_none_starts_a_tick_that_is_fresh_after_an_outage(self) -> None:
        found = due(row(catch_up="none"), now=NINE + 2 * DAY + 1)
        assert found is not None
        assert (found.ticks, found.skipped_until) == ((NINE + 2 * DAY,), NINE + 2 * DAY)

    def test_what_is_switched_off_is_not_due(self) -> None:
        assert due(row(off_at=1.0), now=NINE + DAY) is None

    @pytest.mark.parametrize("expression", ["* * * * *", "*/7 * * * *", "0 0 29 2 *", "30 2 * * *", "0 0 1 */3 *"])
    @pytest.mark.parametrize("days", [0.01, 1, 40, 3000])
    def test_newest_ticks_are_those_of_somebody_who_counts_them_all(self, expression: str, days: float) -> None:
        cron = parse(expression)
        first = next_after(cron, UTC, NINE)
        now = first + min(days, 40 if expression.startswith("*") else 3000) * DAY
        every, tick = [], first
        while tick <= now:
            every.append(tick)
            tick = next_after(cron, UTC, tick)
        for catch_up, limit in (("last", 1), ("all", MOST_TICKS)):
            found = due(row(cron=expression, catch_up=catch_up, next_at=first), now=now)
            assert found is not None
            assert found.ticks == tuple(every[-limit:])
            assert found.next_at == tick

    def test_row_moves_on_and_remembers_its_last_run(self) -> None:
        found = due(row(), now=NINE)
        assert found is not None
        after = seen_to(row(), found, run_id="x")
        assert (after.next_at, after.last_at, after.last_run) == (NINE + DAY, NINE, "x")
        assert is_whole_row(after)
        skipped = due(row(catch_up="none", last_at=1.0, last_run="y"), now=NINE + DAY / 2)
        assert skipped is not None
        assert seen_to(row(last_at=1.0, last_run="y"), skipped, run_id="").last_run == "y"


class TestDeclared:
    def test_new_schedule_begins_with_the_next_tick(self) -> None:
        after = declared(row(next_at=0.0), None, now=NINE + 1)
        assert after is not None
        assert after.next_at == NINE + DAY
        assert is_whole_row(after)

    def test_what_is_said_already_changes_nothing(self) -> None:
        assert declared(row(next_at=0.0), row(next_at=5.0, last_at=3.0, last_run="x", off_at=9.0), now=NINE) is None

    def test_other_times_count_from_now_on_and_an_operator_is_not_overruled(self) -> None:
        known = row(last_at=3.0, last_run="x", off_at=9.0)
        for changes in ({"cron": "0 10 * * *"}, {"timezone": "Europe/Berlin"}):
            after = declared(row(next_at=0.0, **changes), known, now=NINE + 7200)
            assert after is not None
            assert after.next_at > NINE + 7200
            assert (after.last_at, after.last_run, after.off_at) == (3.0, "x", 9.0)

    def test_anything_else_leaves_the_next_tick_as_it_is(self) -> None:
        after = declared(row(next_at=0.0, catch_up="all", arguments='{"a":1}'), row(), now=NINE + 99 * DAY)
        assert after is not None
        assert (after.next_at, after.catch_up, after.arguments) == (NINE, "all", '{"a":1}')

    def test_damaged_row_is_declared_anew(self) -> None:
        broken = msgspec.structs.replace(row(), next_at=1e12)
        after = declared(row(next_at=0.0), broken, now=NINE)
        assert after is not None
        assert after.next_at == NINE + DAY


class TestSwitched:
    def test_what_passed_while_it_was_off_is_not_made_up_for(self) -> None:
        off = switched(row(), off=True, now=NINE - 60)
        assert (off.off_at, off.next_at) == (NINE - 60, NINE)
        on = switched(off, off=False, now=NINE + 2 * DAY + 60)
        assert (on.off_at, on.next_at) == (0.0, NINE + 3 * DAY)
        assert is_whole_row(off)
        assert is_whole_row(on)

    def test_switching_twice_is_switching_once(self) -> None:
        off = switched(row(), off=True, now=NINE - 60)
        assert switched(off, off=True, now=NINE) is off
        assert switched(row(), off=False, now=NINE + 99 * DAY) == row()


def test_tick_is_what_clocks_in_the_zone_show() -> None:
    shown = local_tick(row(timezone="Europe/Berlin"), NINE)
    assert shown.isoformat() == "2026-03-02T10:00:00+01:00"
    assert shown.timestamp() == NINE
    assert shown.utcoffset() == timedelta(hours=1)
    assert local_tick(row(), NINE).isoformat() == "2026-03-02T09:00:00+00:00"


def test_schedules_of_two_agents_may_share_a_name() -> None:
    assert full_name("a", "morning") != full_name("b", "morning")
    assert full_name("a", "") == "a"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"cron": "61 * * * *"}, "minute '61'"),
        ({"timezone": "Mars/Olympus"}, "is not known here"),
        ({"catch_up": "some"}, "catch_up='some'"),
        ({"name": "a@b"}, "is no name"),
        ({"name": "x" * 101}, "is no name"),
        ({"name": 4}, "is no name"),
        ({"arguments": [1]}, "arguments are given by name"),
        ({"arguments": {1: 2}}, "arguments are given by name"),
    ],
)
def test_unusable_schedule_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as refusal:
        Schedule(**{"cron": "0 9 * * *", **given})
    assert words in refusal.value.message
    assert refusal.value.hint
    assert refusal.value.safe
