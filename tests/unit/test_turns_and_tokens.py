"""The decisions about queues: bucket arithmetic, turns, the order of lines."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from perdure.errors import UsageError
from perdure.records import Queue, Run
from perdure.store.protocol import EVERY
from perdure.store.queues import (
    Line,
    Load,
    Room,
    asked,
    bucket_of,
    drawn,
    fitting,
    full_queues,
    line_of,
    merged,
    nanoseconds,
    readied,
    readied_all,
    rooms_of,
)

SECOND = 1_000_000_000
rates = st.sampled_from([0.01, 0.5, 1.0, 100 / 60, 3.0, 7.0, 1000 / 3600, 999.0, 100_000.0])


def run(run_id: str = "run-1", **fields: Any) -> Run:
    return Run(run_id, run_id, fields.pop("agent", "agent"), b"", "power", fields.pop("at", 0.0), 0.0, **fields)


class TestDrawn:
    @given(
        rate=rates,
        burst=st.integers(1, 20),
        story=st.lists(st.tuples(st.integers(0, 3 * SECOND), st.integers(1, 20)), min_size=1, max_size=60),
    )
    def test_no_more_comes_out_in_any_time_than_the_burst_and_what_the_rate_brings(
        self, rate: float, burst: int, story: list[tuple[int, int]]
    ) -> None:
        full_at, now, taken = 0, 10**18, []
        for pause, tokens in story:
            now += pause
            full_at, seconds = drawn(full_at, min(tokens, burst), now=now, rate=rate, burst=burst)
            if not seconds:
                taken.append((now, min(tokens, burst)))
        for place, (begin, _) in enumerate(taken):
            total = 0
            for end, tokens in taken[place:]:
                total += tokens
                assert total <= burst + Fraction(rate) * Fraction(end - begin, SECOND) + Fraction(1, 10**6)

    @given(rate=rates, burst=st.integers(1, 20), tokens=st.integers(1, 20))
    def test_who_waits_as_long_as_told_gets_what_was_asked_for(self, rate: float, burst: int, tokens: int) -> None:
        now, tokens = 10**18, min(tokens, burst)
        full_at, _ = drawn(0, burst, now=now, rate=rate, burst=burst)
        full_at, seconds = drawn(full_at, tokens, now=now, rate=rate, burst=burst)
        assert seconds > 0
        waited = now + round(seconds * SECOND)
        assert drawn(full_at, tokens, now=waited, rate=rate, burst=burst)[1] == 0
        assert drawn(full_at, tokens, now=waited - 1000, rate=rate, burst=burst)[1] > 0

    @given(rate=rates, burst=st.integers(1, 20))
    def test_who_always_waits_as_long_as_told_never_gets_ahead_of_the_rate(self, rate: float, burst: int) -> None:
        full_at, begin = 0, 10**18
        now, taken = begin, 0
        while taken < 300:
            full_at, seconds = drawn(full_at, 1, now=now, rate=rate, burst=burst)
            now += round(seconds * SECOND)
            taken += not seconds
        assert taken <= burst + Fraction(rate) * Fraction(now - begin, SECOND) + Fraction(1, 10**9)

    @pytest.mark.parametrize(("rate", "seconds"), [(100 / 60, 0.6), (0.5, 2.0), (10.0, 0.1), (1000 / 3600, 3.6)])
    def test_nothing_is_rounded_away_in_ten_thousand_takes(self, rate: float, seconds: float) -> None:
        full_at = now = 1_700_000_000 * SECOND
        for _ in range(10_000):
            now += round(seconds * SECOND)
            full_at, wait = drawn(full_at, 1, now=now, rate=rate, burst=1)
            assert wait == 0
        assert drawn(full_at, 1, now=now, rate=rate, burst=1)[1] == seconds

    def test_clock_that_is_set_back_makes_nobody_wait_longer_than_it_takes_to_fill(self) -> None:
        full_at, _ = drawn(0, 1, now=10**18, rate=1.0, burst=2)
        assert drawn(full_at, 1, now=10**18 - 3600 * SECOND, rate=1.0, burst=2)[1] == 1.0

    @pytest.mark.parametrize("tokens", [0, -1, 4])
    def test_what_can_never_be_taken_is_refused(self, tokens: int) -> None:
        with pytest.raises(UsageError, match="bucket that holds 3"):
            drawn(0, tokens, now=10**18, rate=1.0, burst=3)

    def test_no_burst_is_one(self) -> None:
        full_at, seconds = drawn(0, 1, now=10**18, rate=1.0, burst=0)
        assert seconds == 0
        assert drawn(full_at, 1, now=10**18, rate=1.0, burst=0)[1] == 1.0

    def test_instants_are_as_fine_as_a_clock_tells(self) -> None:
        assert nanoseconds(1_700_000_000.6) - nanoseconds(1_700_000_000.0) == 600_000_000


class TestRooms:
    def test_room_is_what_could_be_let_in(self) -> None:
        loads = [
            Load(Queue("free"), 100, 0),
            Load(Queue("places", concurrency=5), 3, 0),
            Load(Queue("over", concurrency=5), 9, 0),
            Load(Queue("tokens", rate=1.0, burst=4), 0, 10**18 + SECOND + 1),
            Load(Queue("empty", rate=1.0, burst=4), 0, 10**18 + 99 * SECOND),
        ]
        rooms = rooms_of(loads, now=10**18)
        assert {name: (room.places, room.tokens) for name, room in rooms.items()} == {
            "free": (EVERY, EVERY),
            "places": (2, EVERY),
            "over": (-4, EVERY),
            "tokens": (EVERY, 2),
            "empty": (EVERY, 0),
        }
        assert full_queues(rooms) == ["over"]

    def test_what_fits_is_taken_in_order_and_only_new_runs_need_tokens(self) -> None:
        rooms = {"mail": Room(places=2, tokens=1)}
        runs = [run("a", queue="mail"), run("b", queue="mail"), run("c", queue="mail", epoch=1), run("d")]
        assert [each.run_id for each in fitting(runs, rooms, limit=10)] == ["a", "c", "d"]
        assert fitting([run("e", queue="mail", epoch=1)], rooms, limit=10) == []

    def test_own_bucket_is_no_shared_one(self) -> None:
        assert bucket_of(Queue("mail")) != bucket_of(Queue("web", bucket="mail"))
        assert bucket_of(Queue("mail", bucket="x")) == bucket_of(Queue("web", bucket="x"))


class TestOrder:
    def test_worker_without_a_version_sees_only_what_is_not_pinned(self) -> None:
        wanted = asked(["agent"], [], "")
        assert wanted.means(Line("mail", "agent", ""))
        assert not wanted.means(Line("mail", "agent", "v1"))
        assert not wanted.means(Line("mail", "other", ""))

    def test_lines_take_turns_and_priority_goes_first(self) -> None:
        lines = {
            Line("a", "x", ""): [run("a1", priority=1), run("a2"), run("a3")],
            Line("b", "x", ""): [run("b1"), run("b2")],
        }
        order = [each.run_id for each in merged(lines, now=0.0)]
        assert order[0] == "a1"
        assert {order[1], order[2]} == {"a2", "b1"}
        assert {order[3], order[4]} == {"a3", "b2"}

    @given(st.floats(0, 2e9))
    def test_every_moment_has_an_order_and_no_lines_have_none(self, now: float) -> None:
        assert merged({}, now=now) == []
        assert len(merged({Line("a", "x", ""): [run()], Line("b", "x", ""): []}, now=now)) == 1

    def test_each_of_several_lines_begins_about_as_often(self) -> None:
        lines = {Line(name, "x", ""): [run(name)] for name in "abcd"}
        begun = [merged(lines, now=1_700_000_000 + number * 0.25)[0].run_id for number in range(400)]
        assert all(begun.count(name) > 60 for name in "abcd")

    @given(
        st.lists(st.tuples(st.sampled_from(["ada", "bob"]), st.integers(0, 1)), max_size=12),
        st.integers(0, 3) | st.none(),
        st.integers(0, 5) | st.none(),
    )
    def test_several_at_once_get_the_turns_they_would_get_one_by_one(
        self, coming: list[tuple[str, int]], first: int | None, own: int | None
    ) -> None:
        runs = [run(str(place), tenant=tenant, priority=priority) for place, (tenant, priority) in enumerate(coming)]
        together = readied_all(runs, [(first, own if each.tenant == "ada" else None) for each in runs])
        firsts: dict[int, list[int]] = {priority: [] if first is None else [first] for priority in (0, 1)}
        owns: dict[tuple[str, int], int | None] = {("ada", priority): own for priority in (0, 1)}
        for each, got in zip(runs, together, strict=True):
            known = firsts[each.priority]
            alone = readied(each, first=min(known, default=None), own=owns.get((each.tenant, each.priority)))
            assert got == alone
            known.append(alone.turn)
            owns[each.tenant, each.priority] = alone.turn

    def test_a_line_is_of_a_queue_an_agent_and_a_version(self) -> None:
        assert line_of(run(queue="mail", version="v1")) == Line("mail", "agent", "v1")
