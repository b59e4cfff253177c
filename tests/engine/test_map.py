"""A map keeps its place: results are committed in batches, read back lazily, and never computed again."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
import threading
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, assert_type

import pytest

import perdure
from perdure import clock, events
from perdure.engine.session import close_sessions, session
from perdure.errors import AttemptsExhausted, JournalDiverged, PerdureError, RunCancelled, UnstorableValue, UsageError
from perdure.events import Observable
from perdure.records import Kind
from perdure.store.protocol import Finding
from tests.engine.journals import bodies_of, calls_of, records_of, run_of, state_of
from tests.engine.world import world


@perdure.step
def double(number: int) -> int:
    world.note(f"double {number}")
    world.moment(f"double {number}")
    return number * 2


@perdure.step
async def double_later(number: int) -> int:
    world.note(f"double {number}")
    await asyncio.sleep(0)
    world.moment(f"double {number}")
    return number * 2


@perdure.agent
def doubled(count: int, batch: int, concurrency: int = 1) -> list[int]:
    return list(perdure.map(double, range(count), batch=batch, seconds=60, concurrency=concurrency))


@perdure.agent
async def doubled_later(count: int, batch: int, concurrency: int = 1) -> list[int]:
    return list(await perdure.map(double_later, range(count), batch=batch, seconds=60, concurrency=concurrency))


AGENTS = [doubled, doubled_later]


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 95])
def test_results_come_back_in_the_order_of_the_items(agent: Any, concurrency: int, count: int) -> None:
    assert perdure.run(agent, count, 10, concurrency) == [number * 2 for number in range(count)]
    assert sorted(world.lines) == sorted(f"double {number}" for number in range(count))


def test_items_are_committed_in_batches_and_the_map_is_one_step() -> None:
    perdure.run(doubled, 25, 10, run_id="r")
    assert [(body.first, body.count) for body in bodies_of("r", Kind.BATCH)] == [(0, 10), (10, 10), (20, 5)]
    assert calls_of("r") == [("step", "main.0", "map(double)")]
    assert run_of("r").steps == 1


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_killed_map_repeats_at_most_one_batch(agent: Any, concurrency: int) -> None:
    world.killed_at("double 57", lambda: perdure.run(agent, 100, 10, concurrency, run_id="r"))
    assert perdure.run(agent, 100, 10, concurrency, run_id="r") == [number * 2 for number in range(100)]
    repeated = len(world.lines) - 100
    assert 0 <= repeated <= 10
    assert {world.count(f"double {number}") for number in range(47)} == {1}


def test_a_lone_walk_resumes_at_the_first_item_that_is_not_committed() -> None:
    world.killed_at("double 57", lambda: perdure.run(doubled, 100, 10, run_id="r"))
    done = sum(body.count for body in bodies_of("r", Kind.BATCH))
    assert done == 50
    perdure.run(doubled, 100, 10, run_id="r")
    assert world.lines[58:] == [f"double {number}" for number in range(50, 100)]


def test_a_completed_map_is_replayed_without_touching_source_or_function() -> None:
    def items() -> Iterator[int]:
        world.note("source")
        yield from range(30)

    @perdure.step
    def after() -> int:
        world.moment("after")
        return 1

    @perdure.agent
    def agent() -> list[int]:
        mapped = perdure.map(double, items, batch=10)
        after()
        return list(mapped)

    world.killed_at("after", lambda: perdure.run(agent, run_id="r"))
    assert perdure.run(agent, run_id="r") == [number * 2 for number in range(30)]
    assert world.count("source") == 1
    assert len(world.lines) == 31


def test_another_batch_size_may_go_on_with_what_is_done() -> None:
    @perdure.agent
    def agent() -> list[int]:
        return list(perdure.map(double, range(40), batch=sizes.pop(0)))

    sizes = [10]
    world.killed_at("double 25", lambda: perdure.run(agent, run_id="r"))
    sizes = [7]
    assert perdure.run(agent, run_id="r") == [number * 2 for number in range(40)]
    assert [body.first for body in bodies_of("r", Kind.BATCH)] == [0, 10, 20, 27, 34]


def test_time_commits_what_is_done_before_the_batch_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    stopwatch = [0.0]
    monkeypatch.setattr(clock, "elapsed_seconds", lambda: stopwatch[0])

    @perdure.step
    def slow(number: int) -> int:
        stopwatch[0] += 0.4
        return number

    @perdure.agent
    def agent() -> int:
        return len(perdure.map(slow, range(7), batch=100, seconds=1.0))

    assert perdure.run(agent, run_id="r") == 7
    assert [body.count for body in bodies_of("r", Kind.BATCH)] == [3, 3, 1]


def test_large_results_are_committed_before_they_fill_memory() -> None:
    def large(number: int) -> str:
        return chr(97 + number) * (3 * 1024 * 1024)

    @perdure.agent
    def agent() -> list[int]:
        return [len(text) for text in perdure.map(large, range(5), batch=100, seconds=60)]

    assert perdure.run(agent, run_id="r") == [3 * 1024 * 1024] * 5
    assert [body.count for body in bodies_of("r", Kind.BATCH)] == [2, 2, 1]


@dataclass
class Quote:
    price: Decimal


def test_results_come_back_as_the_annotation_says() -> None:
    @perdure.step
    def quote(number: int) -> Quote:
        return Quote(Decimal(number))

    @perdure.agent
    def agent() -> str:
        return repr(list(perdure.map(quote, [1, 2])))

    assert perdure.run(agent) == repr([Quote(Decimal(1)), Quote(Decimal(2))])


@pytest.mark.parametrize("function", [lambda number: number + 1, str, abs, [10, 20, 30].__getitem__])
def test_any_function_of_one_argument_can_be_mapped(function: Any) -> None:
    @perdure.agent
    def agent() -> list[Any]:
        return list(perdure.map(function, range(3)))

    assert perdure.run(agent) == [function(number) for number in range(3)]


@dataclass
class Scale:
    factor: int

    @perdure.step
    def scaled(self, number: int) -> int:
        return self.factor * number

    @perdure.effect
    def weighed(self, number: int) -> int:
        return self.factor * number


def test_steps_and_effects_may_be_methods() -> None:
    @perdure.agent
    def agent() -> list[int]:
        scale = Scale(3)
        weighed: Any = scale.weighed
        return [*perdure.map(scale.scaled, range(3)), *perdure.map(weighed, range(3))]

    assert perdure.run(agent) == [0, 3, 6, 0, 3, 6]


def test_types_follow_the_function() -> None:
    async def later() -> None:
        assert_type(await perdure.map(double_later, [1]), perdure.Mapped[int])
        assert_type(await perdure.map(double_later, [1], on_error="collect"), perdure.Mapped[int | Exception])

    assert_type(perdure.map(double, [1]), perdure.Mapped[int])
    assert_type(perdure.map(double, [1], on_error="collect"), perdure.Mapped[int | Exception])
    asyncio.run(later())


def test_damaged_results_are_found(store: Path) -> None:
    perdure.run(doubled, 25, 10, run_id="r")
    close_sessions()
    with contextlib.closing(sqlite3.connect(store)) as connection, connection:
        connection.execute("UPDATE blobs SET stored = CAST('x' AS BLOB) WHERE digest = (SELECT min(digest) FROM blobs)")
    findings = [found for found in session().store.check() if isinstance(found, Finding)]
    assert "is damaged" in findings[0].what


def test_calls_before_between_and_after_maps_keep_their_places() -> None:
    @perdure.agent
    def agent() -> list[int]:
        first = double(1000)
        second = sum(perdure.map(double, range(15), batch=10))
        third = double(2000)
        fourth = sum(perdure.map(double, range(5), batch=10))
        return [first, second, third, fourth]

    world.killed_at("double 4", lambda: perdure.run(agent, run_id="r"), passes=1)
    assert perdure.run(agent, run_id="r") == [2000, 210, 4000, 20]
    assert [(name, key) for _, key, name in calls_of("r")] == [
        ("double", "main.0"),
        ("map(double)", "main.1"),
        ("double", "main.2"),
        ("map(double)", "main.3"),
    ]
    assert world.count("double 1000") == 1
    assert world.count("double 12") == 1


def test_a_map_the_code_no_longer_makes_parks_the_run() -> None:
    @perdure.agent
    def agent() -> int:
        return len(perdure.map(double, range(20), batch=10)) if present else 0

    present = True
    world.killed_at("double 15", lambda: perdure.run(agent, run_id="r"))
    present = False
    with pytest.raises(JournalDiverged, match=r"recorded: map\(double\)"):
        perdure.run(agent, run_id="r")
    assert state_of("r") == "waiting (parked)"


def test_another_function_at_the_place_of_a_map_parks_the_run() -> None:
    @perdure.step
    def triple(number: int) -> int:
        return number * 3

    @perdure.agent
    def agent() -> int:
        return len(perdure.map(functions.pop(0), range(20), batch=10))

    functions = [double]
    world.killed_at("double 15", lambda: perdure.run(agent, run_id="r"))
    functions = [triple]
    with pytest.raises(JournalDiverged, match=r"map\(double\)\n.*map\(triple\)"):
        perdure.run(agent, run_id="r")


class TestFailures:
    def test_an_item_that_fails_is_raised_after_what_is_done_was_committed(self) -> None:
        @perdure.step
        def picky(number: int) -> int:
            world.note(f"picky {number}")
            if number == 17 and world.count("picky 17") == 1:
                raise ValueError("not seventeen")
            return number

        @perdure.agent
        def agent() -> int:
            return sum(perdure.map(picky, range(30), batch=10))

        with pytest.raises(ValueError, match="not seventeen") as raised:
            perdure.run(agent, run_id="r")
        assert "failed at item 17: 17" in raised.value.__notes__[0]
        assert state_of("r") == "failed"
        assert sum(body.count for body in bodies_of("r", Kind.BATCH)) == 17
        assert perdure.run(agent, run_id="r") == sum(range(30))
        assert {world.count(f"picky {number}") for number in range(30) if number != 17} == {1}

    def test_a_failure_the_agent_handles_is_the_same_at_every_replay(self) -> None:
        @perdure.step
        def fails(number: int) -> int:
            world.note("fails")
            raise ValueError(f"item {number}")

        @perdure.agent
        def agent() -> list[str]:
            try:
                perdure.map(fails, [5, 6])
            except ValueError as error:
                caught = str(error)
            double(1)
            return [caught]

        world.killed_at("double 1", lambda: perdure.run(agent, run_id="r"))
        assert perdure.run(agent, run_id="r") == ["item 5"]
        assert world.count("fails") == 1

    @pytest.mark.parametrize("concurrency", [1, 3])
    def test_collected_failures_stand_in_the_place_of_results(self, concurrency: int) -> None:
        @perdure.step
        def odd_only(number: int) -> int:
            if number % 2 == 0:
                raise ValueError(f"{number} is even")
            return number

        @perdure.agent
        def agent() -> list[str]:
            mapped = perdure.map(odd_only, range(5), batch=3, concurrency=concurrency, on_error="collect")
            assert (len(mapped), mapped.failed) == (5, 3)
            assert [(index, str(error)) for index, error in mapped.failures()][1] == (2, "2 is even")
            return [repr(result) for result in mapped]

        expected = ["ValueError('0 is even')", "1", "ValueError('2 is even')", "3", "ValueError('4 is even')"]
        assert perdure.run(agent, run_id="r") == expected
        assert [body.failed for body in bodies_of("r", Kind.BATCH)] == [2, 1] or concurrency > 1

    def test_the_retry_policy_holds_for_each_item(self) -> None:
        @perdure.step(retry=perdure.Retry(attempts=3, delay_seconds=0))
        def flaky(number: int) -> int:
            world.note(f"flaky {number}")
            if world.count(f"flaky {number}") < 3:
                raise OSError("again")
            return perdure.current().attempt

        @perdure.agent
        def agent() -> list[int]:
            return list(perdure.map(flaky, range(3)))

        assert perdure.run(agent) == [3, 3, 3]
        assert len(world.lines) == 9

    def test_attempts_that_are_used_up_say_so(self) -> None:
        @perdure.step(retry=perdure.Retry(attempts=2, delay_seconds=0))
        def hopeless(number: int) -> int:
            raise OSError("no")

        @perdure.agent
        def agent() -> int:
            return len(perdure.map(hopeless, range(3)))

        with pytest.raises(AttemptsExhausted, match="failed 2 times; the last error was OSError: no"):
            perdure.run(agent)

    def test_a_result_that_cannot_be_stored_names_the_item(self) -> None:
        def opens(number: int) -> Any:
            return threading.Lock() if number == 3 else number

        @perdure.agent
        def agent() -> int:
            return len(perdure.map(opens, range(5)))

        with pytest.raises(UnstorableValue, match=r"opens: what it returned for item 3 \(3\) cannot be saved: .*lock"):
            perdure.run(agent, run_id="r")
        assert sum(body.count for body in bodies_of("r", Kind.BATCH)) == 3

    def test_of_several_failures_at_once_the_first_in_order_is_raised(self) -> None:
        gate = threading.Barrier(3, timeout=30)

        def fails(number: int) -> int:
            gate.wait()
            raise ValueError(f"item {number}")

        @perdure.agent
        def agent() -> int:
            return len(perdure.map(fails, range(3), concurrency=3))

        with pytest.raises(ValueError, match="item 0"):
            perdure.run(agent)


class TestConcurrency:
    def test_threads_execute_as_many_items_at_once_as_asked_for(self) -> None:
        gate = threading.Barrier(4, timeout=30)

        def meet(number: int) -> int:
            gate.wait()
            return number

        @perdure.agent
        def agent() -> list[int]:
            return list(perdure.map(meet, range(12), batch=8, concurrency=4))

        assert perdure.run(agent) == list(range(12))

    def test_tasks_execute_as_many_items_at_once_as_asked_for(self) -> None:
        @perdure.agent
        async def agent() -> list[int]:
            gate = asyncio.Barrier(4)

            async def meet(number: int) -> int:
                async with asyncio.timeout(30):
                    await gate.wait()
                return number

            return list(await perdure.map(meet, range(12), batch=8, concurrency=4))

        assert perdure.run(agent) == list(range(12))

    @pytest.mark.parametrize("batch", [5, 8])
    def test_never_more_than_a_batch_of_items_is_under_way(self, batch: int) -> None:
        """Item 0 ends last: everything else the bound allows is done before it, and nothing more is started."""
        others = threading.Semaphore(0)
        started: list[int] = []

        def patient(number: int) -> int:
            started.append(number)
            if number == 0:
                for _ in range(batch - 1):
                    assert others.acquire(timeout=30)
                started.append(-1)
            else:
                others.release()
            return number

        @perdure.agent
        def agent() -> int:
            return len(perdure.map(patient, range(50), batch=batch, seconds=600, concurrency=3))

        assert perdure.run(agent) == 50
        assert sorted(started[: started.index(-1)]) == list(range(batch))

    def test_lanes_are_no_strands_so_keys_do_not_depend_on_timing(self) -> None:
        perdure.run(doubled, 40, 10, 4, run_id="threads")
        perdure.run(doubled_later, 40, 10, 4, run_id="tasks")
        for run_id in ("threads", "tasks"):
            assert {key for _, key, _ in calls_of(run_id)} == {"main.0"}

    def test_maps_of_several_tasks_do_not_mix(self) -> None:
        @perdure.agent
        async def agent() -> list[int]:
            maps = (perdure.map(double_later, range(base, base + 20), batch=5) for base in (0, 100, 200))
            return [sum(mapped) for mapped in await asyncio.gather(*maps)]

        expected = [sum(number * 2 for number in range(base, base + 20)) for base in (0, 100, 200)]
        world.killed_at("double 113", lambda: perdure.run(agent, run_id="r"))
        assert perdure.run(agent, run_id="r") == expected

    def test_a_plain_function_may_be_mapped_in_an_async_agent(self) -> None:
        @perdure.agent
        async def agent() -> list[int]:
            return [*await perdure.map(double, range(3)), *await asyncio.to_thread(perdure.map, double, range(3))]

        assert perdure.run(agent) == [0, 2, 4, 0, 2, 4]

    def test_a_cancelled_map_leaves_a_run_that_goes_on(self) -> None:
        @perdure.agent
        async def agent(patience: float) -> int:
            async def slow(number: int) -> int:
                if number == 25 and not resumed:
                    await asyncio.sleep(600)
                return number

            async with asyncio.timeout(None) as limit:

                @perdure.subscribe
                def advanced(event: Observable) -> None:
                    if isinstance(event, events.MapAdvanced) and event.done >= 20:
                        limit.reschedule(0)

                return len(await perdure.map(slow, range(50), batch=10, concurrency=2))

        resumed = False
        with pytest.raises(TimeoutError):
            perdure.run(agent, 1.0, run_id="r")
        resumed = True
        assert sum(body.count for body in bodies_of("r", Kind.BATCH)) >= 20


class TestSignals:
    @pytest.mark.parametrize("concurrency", [1, 3])
    def test_a_cancelled_run_stops_between_items(self, concurrency: int) -> None:
        def work(number: int) -> int:
            world.note("work")
            if number == 10:
                handles[0].cancel()
            return number

        @perdure.agent
        def agent() -> int:
            ready.wait(30)
            return len(perdure.map(work, itertools.count(), batch=5, concurrency=concurrency))

        ready = threading.Event()
        handles = [perdure.start(agent, run_id="r")]
        ready.set()
        with pytest.raises(RunCancelled):
            handles[0].result(60)
        assert state_of("r") == "cancelled"
        assert len(world.lines) <= 10 + 5  # item 10 is under way, and no more than a batch with it

    def test_progress_of_a_batch_takes_the_count_of_deliveries_back(self) -> None:
        for place in (15, 35, 55, 75):
            world.killed_at(f"double {place}", lambda: perdure.run(doubled, 80, 10, run_id="r"))
        assert len(perdure.run(doubled, 80, 10, run_id="r")) == 80


class TestBounds:
    def test_memory_does_not_grow_with_the_number_of_items(self) -> None:
        """Twenty times as many items hold less than 256 KB more: 32 bytes for each batch, and what caches keep."""

        def text(number: int) -> str:
            return (
                f"the result of item {number}, which is about a hundred characters long, as results often are {number}"
            )

        @perdure.agent
        def agent(count: int) -> int:
            return sum(1 for _ in perdure.map(text, iter(range(count)), batch=100, seconds=60))

        def peak(count: int) -> int:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            assert perdure.run(agent, count) == count
            return tracemalloc.get_traced_memory()[1] - before

        tracemalloc.start()
        try:
            peak(1000)
            small, large = peak(1000), peak(20_000)
        finally:
            tracemalloc.stop()
        assert large - small < 256 * 1024, f"{small:,} bytes for 1,000 items, {large:,} for 20,000"

    def test_large_items_are_let_go_of_once_they_are_done(self) -> None:
        """A batch of 50 items of a megabyte each holds a few of them at once, not all."""

        def items() -> Iterator[bytes]:
            for number in range(50):
                yield bytes([number]) * 1_000_000

        @perdure.agent
        def agent() -> int:
            return sum(perdure.map(len, items, batch=50, seconds=60))

        tracemalloc.start()
        try:
            assert perdure.run(agent) == 50_000_000
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 15_000_000, f"{peak:,} bytes"

    def test_a_source_is_taken_from_only_as_far_as_needed(self) -> None:
        taken: list[int] = []

        def endless() -> Iterator[int]:
            for number in itertools.count():
                taken.append(number)
                yield number

        def stops(number: int) -> int:
            if number == 42:
                raise ValueError("enough")
            return number

        @perdure.agent
        def agent() -> int:
            return len(perdure.map(stops, endless, batch=10, concurrency=3))

        with pytest.raises(ValueError, match="enough"):
            perdure.run(agent)
        assert max(taken) <= 42 + 10

    def test_no_batch_is_larger_than_asked_for(self) -> None:
        perdure.run(doubled, 100, 7, 3, run_id="r")
        counts = [body.count for body in bodies_of("r", Kind.BATCH)]
        assert sum(counts) == 100
        assert max(counts) <= 7


def test_what_an_item_keeps_is_kept_with_its_batch(tmp_path: Path) -> None:
    def report(number: int) -> str:
        path = tmp_path / f"report-{number}.txt"
        path.write_text(f"report {number}")
        kept = perdure.artifact(path)
        world.note(f"report {number}")
        world.moment(f"report {number}")
        return kept.name

    @perdure.agent
    def agent() -> list[str]:
        return list(perdure.map(report, range(30), batch=10, seconds=60))

    world.killed_at("report 25", lambda: perdure.run(agent, run_id="r"))
    assert [kept.read() for kept in perdure.artifacts("r")] == [f"report {number}".encode() for number in range(20)]
    perdure.run(agent, run_id="r")
    assert [kept.name for kept in perdure.artifacts("r")] == [f"report-{number}.txt" for number in range(30)]
    assert not [found for found in session().store.check() if isinstance(found, Finding)]


def test_a_run_past_its_deadline_stops_between_items(manual_clock: Any) -> None:
    def slow(number: int) -> int:
        world.note("slow")
        manual_clock.pass_seconds(10)
        return number

    @perdure.agent
    def agent() -> int:
        return len(perdure.map(slow, range(100), batch=10))

    with pytest.raises(PerdureError):
        perdure.run(agent, run_id="r", deadline=35)
    assert len(world.lines) == 4


class TestOutsideARun:
    def test_a_map_is_a_plain_loop(self) -> None:
        mapped = perdure.map(double, range(4), concurrency=2)
        assert list(mapped) == [0, 2, 4, 6]
        assert len(mapped) == 4
        assert list(mapped) == [0, 2, 4, 6]

    def test_an_async_map_is_a_plain_loop(self) -> None:
        async def main() -> list[int]:
            return list(await perdure.map(double_later, range(4)))

        assert asyncio.run(main()) == [0, 2, 4, 6]

    def test_failures_are_raised_or_collected(self) -> None:
        def fails(number: int) -> int:
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            perdure.map(fails, [1])
        assert perdure.map(fails, [1], on_error="collect").failed == 1

    def test_inside_a_step_nothing_is_recorded(self) -> None:
        @perdure.step
        def outer() -> list[int]:
            return list(perdure.map(double, range(3)))

        @perdure.agent
        def agent() -> list[int]:
            return outer()

        assert perdure.run(agent, run_id="r") == [0, 2, 4]
        assert not records_of("r", Kind.BATCH)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"batch": 0}, "batch=0 must be a whole number of at least 1"),
    ({"batch": 1.5}, "batch=1.5 must be"),
    ({"batch": True}, "batch=True must be"),
    ({"concurrency": 0}, "concurrency=0 must be"),
    ({"concurrency": -3}, "concurrency=-3 must be"),
    ({"seconds": 0}, "seconds=0 must be above 0"),
    ({"seconds": float("nan")}, "seconds=nan must be above 0"),
    ({"seconds": float("inf")}, "seconds=inf must be above 0"),
    ({"seconds": "1"}, "seconds='1' must be above 0"),
    ({"on_error": "ignore"}, "on_error='ignore'"),
    ({"key": "id"}, "key='id'"),
    ({"name": ""}, "name='' is not usable"),
    ({"fn": 3}, "was given 3 to call"),
    ({"fn": None}, "was given None to call"),
    ({"items": 3}, "items=3 cannot be walked"),
    ({"items": None}, "items=None cannot be walked"),
    ({"items": "abc"}, "items='abc' is one text"),
    ({"items": b"abc"}, "is one text"),
]


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(("changes", "words"), BAD)
def test_what_cannot_work_is_refused_by_name_before_anything_is_done(
    changes: dict[str, Any], words: str, inside: bool
) -> None:
    arguments: dict[str, Any] = {"fn": double, "items": [1, 2]} | changes

    @perdure.agent
    def agent() -> None:
        perdure.map(**arguments)

    act = (lambda: perdure.run(agent)) if inside else (lambda: perdure.map(**arguments))
    with pytest.raises(UsageError) as refused:
        act()
    assert words in refused.value.message
    assert refused.value.hint
    assert not world.lines


def test_progress_is_published_after_each_commit(seen: list[Observable]) -> None:
    perdure.run(doubled, 25, 10, run_id="r")
    told = [event for event in seen if isinstance(event, events.MapAdvanced)]
    assert [(event.done, event.total, event.stage) for event in told] == [
        (10, 25, "advanced"),
        (20, 25, "advanced"),
        (25, 25, "advanced"),
        (25, 25, "ended"),
    ]


def test_a_resumed_map_says_how_much_was_done(seen: list[Observable]) -> None:
    world.killed_at("double 57", lambda: perdure.run(doubled, 100, 10, run_id="r"))
    perdure.run(doubled, 100, 10, run_id="r")
    told = [event for event in seen if isinstance(event, events.MapAdvanced)]
    assert (told[0].done, told[0].stage) == (50, "resumed")
