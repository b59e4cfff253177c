"""A sleeping run needs no process; its time counts from the first call, whatever dies in between."""

from __future__ import annotations

import asyncio
import gc
import math
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

import perdure
from perdure import clock
from perdure.engine.active import Active
from perdure.engine.session import close_sessions, session
from perdure.errors import RunHeld, RunPaused, UsageError
from perdure.events import RunEnded, RunResumed, WaitOpened
from perdure.records import Kind
from perdure.store.sqlite import SqliteStore
from tests.engine.journals import bodies_of, records_of, run_of, runs
from tests.engine.manual_clock import ManualClock
from tests.engine.world import world
from tests.waits.desk import PATIENCE_SECONDS, UNWRITTEN, WRITTEN, Bell, killed, opened, threads_end

Agent = Callable[..., Any]
DAY = 24 * 3600.0
naps: dict[str, Any] = {}


@perdure.step
def work(label: str) -> str:
    world.note(label)
    return label


@perdure.agent
def sleeper() -> str:
    work("before")
    perdure.sleep(naps["duration"])
    world.note(f"woke at {clock.wall_seconds()}")
    return work("after")


@perdure.agent
async def sleeper_async() -> str:
    work("before")
    await perdure.sleep(naps["duration"])
    world.note(f"woke at {clock.wall_seconds()}")
    return work("after")


@perdure.agent
def sleeper_until() -> str:
    work("before")
    perdure.sleep_until(naps["instant"])
    world.note(f"woke at {clock.wall_seconds()}")
    return work("after")


@perdure.agent
async def sleeper_until_async() -> str:
    work("before")
    await perdure.sleep_until(naps["instant"])
    world.note(f"woke at {clock.wall_seconds()}")
    return work("after")


every = pytest.mark.parametrize(
    "agent",
    [sleeper, sleeper_async, sleeper_until, sleeper_until_async],
    ids=["sleep", "async sleep", "sleep_until", "async sleep_until"],
)
both = pytest.mark.parametrize("agent", [sleeper, sleeper_async], ids=["sync", "async"])


def woken_at() -> float:
    return float(world.lines[1].removeprefix("woke at "))


def nap(seconds: float) -> None:
    """How long, or until when, the agents sleep; an instant is a round number, so that both end at the same time."""
    naps.update(duration=seconds, instant=clock.instant(math.floor(clock.wall_seconds()) + seconds))


class TestDurability:
    @every
    @pytest.mark.parametrize("side", WRITTEN)
    def test_killed_while_it_sleeps_the_time_counts_from_the_first_call(
        self, agent: Agent, side: str, manual_clock: ManualClock
    ) -> None:
        nap(3 * DAY)
        begun = manual_clock.wall
        killed(f"{side}:wait:main.1#1", lambda: perdure.run(agent, run_id="r"))
        manual_clock.pass_seconds(3 * DAY - 10)
        with Bell(RunEnded) as bell:
            handle = perdure.start(agent, run_id="r")
            assert bell.wait().reason == "time"
            assert world.lines == ["before"]
            assert opened()[0].due_at == pytest.approx(begun + 3 * DAY, abs=1)
            manual_clock.pass_seconds(11)
            assert handle.result(PATIENCE_SECONDS) == "after"
        assert len(opened()) == 1
        assert world.count("before") == world.count("after") == 1

    @both
    @pytest.mark.parametrize("side", UNWRITTEN)
    def test_killed_before_the_sleep_is_recorded_it_begins_when_it_is(
        self, agent: Agent, side: str, manual_clock: ManualClock
    ) -> None:
        nap(DAY)
        killed(f"{side}:wait:main.1#1", lambda: perdure.run(agent, run_id="r"))
        manual_clock.pass_seconds(DAY)
        killed("after:wait:main.1#1", lambda: perdure.run(agent, run_id="r"))
        (sleep,) = opened()
        assert sleep.due_at == pytest.approx(manual_clock.wall + DAY, abs=0.01)

    @every
    def test_once_it_is_due_whoever_runs_it_next_goes_on(self, agent: Agent, manual_clock: ManualClock) -> None:
        nap(30 * DAY)
        killed("after:wait:main.1#1", lambda: perdure.run(agent, run_id="r"))
        manual_clock.pass_seconds(40 * DAY)
        assert perdure.run(agent, run_id="r") == "after"
        assert [line.split()[0] for line in world.lines] == ["before", "woke", "after"]

    @pytest.mark.parametrize("agent", [sleeper, sleeper_until])
    def test_days_later_it_wakes_to_the_second(self, agent: Agent, manual_clock: ManualClock) -> None:
        nap(12 * DAY)
        due = (manual_clock.wall if agent is sleeper else math.floor(manual_clock.wall)) + 12 * DAY

        def most_of_the_time_passes() -> None:
            if manual_clock.wall < due - 10:
                manual_clock.pass_seconds(min(DAY, due - 10 - manual_clock.wall))

        manual_clock.on_sleep = most_of_the_time_passes
        assert perdure.run(agent, run_id="r") == "after"
        assert 0 <= woken_at() - due <= 1

    @both
    @pytest.mark.parametrize("side", [*UNWRITTEN, *WRITTEN])
    def test_killed_while_the_end_of_the_sleep_is_recorded_it_ends_once(
        self, agent: Agent, side: str, manual_clock: ManualClock
    ) -> None:
        nap(DAY)
        killed("after:wait:main.1#1", lambda: perdure.run(agent, run_id="r"))
        manual_clock.pass_seconds(DAY)
        killed(f"{side}:answer:main.1#1", lambda: perdure.run(agent, run_id="r"))
        assert perdure.run(agent, run_id="r") == "after"
        assert (len(opened()), len(bodies_of("r", Kind.ANSWER))) == (1, 1)
        assert world.count("before") == world.count("after") == 1

    def test_a_week_later_the_same_command_continues_the_sleeper(self, manual_clock: ManualClock) -> None:
        nap(7 * DAY)
        with Bell(RunEnded) as bell:
            perdure.start(sleeper)
            assert bell.wait().reason == "time"
        assert world.elsewhere(lambda: None) == 0  # lets go of the store, as the end of the process would
        manual_clock.pass_seconds(7 * DAY)
        assert perdure.run(sleeper) == "after"
        assert len(runs()) == 1
        assert world.count("before") == 1

    def test_a_clock_set_back_does_not_record_another_sleep(self, manual_clock: ManualClock) -> None:
        nap(DAY)
        killed("after:wait:main.1#1", lambda: perdure.run(sleeper, run_id="r"))
        manual_clock.wall -= DAY
        killed("after:ended:#1", lambda: perdure.run(sleeper, run_id="r"))
        manual_clock.pass_seconds(2 * DAY)
        assert perdure.run(sleeper, run_id="r") == "after"
        assert len(opened()) == 1

    def test_a_caller_that_waits_is_not_told_again_that_the_run_goes_on(self, manual_clock: ManualClock) -> None:
        nap(10)
        with Bell(RunResumed, RunEnded) as bell:
            assert perdure.run(sleeper, run_id="r") == "after"
            assert [bell.wait().state, bell.wait().state] == ["waiting", "completed"]


class TestShortSleeps:
    @both
    def test_a_sleep_of_zero_is_recorded_and_over(self, agent: Agent) -> None:
        nap(0)
        assert perdure.run(agent, run_id="r") == "after"
        assert [record.kind for record in records_of("r")] == [
            "started", "delivery", "step", "wait", "answer", "step", "ended",
        ]  # fmt: skip

    @every
    def test_a_moment_keeps_the_run_where_it_is(self, agent: Agent) -> None:
        nap(0.05)
        assert perdure.run(agent, run_id="r") == "after"
        assert len(bodies_of("r", Kind.DELIVERY)) == 1

    @pytest.mark.parametrize("agent", [sleeper_until, sleeper_until_async])
    @pytest.mark.parametrize(
        "instant",
        [
            datetime(2001, 1, 1, tzinfo=UTC),
            datetime(1970, 1, 1, tzinfo=UTC),
            datetime(1900, 1, 1, tzinfo=UTC),
            datetime.min.replace(tzinfo=UTC),
        ],
    )
    def test_an_instant_that_has_passed_is_over_at_once(self, agent: Agent, instant: datetime) -> None:
        naps["instant"] = instant
        assert perdure.run(agent, run_id="r") == "after"

    def test_the_same_instant_in_another_zone_is_the_same_sleep(self) -> None:
        naps["instant"] = datetime(2001, 1, 1, 12, tzinfo=UTC)
        killed("after:wait:main.1#1", lambda: perdure.run(sleeper_until, run_id="r"))
        naps["instant"] = datetime(2001, 1, 1, 14, tzinfo=timezone(timedelta(hours=2)))
        assert perdure.run(sleeper_until, run_id="r") == "after"


class TestPlain:
    def test_outside_a_run_it_only_sleeps(self, manual_clock: ManualClock) -> None:
        perdure.sleep("90s")
        perdure.sleep_until(clock.instant(manual_clock.wall + 60))
        assert manual_clock.slept == [90.0, pytest.approx(60.0)]
        assert runs() == []

    def test_outside_a_run_it_can_be_awaited(self) -> None:
        async def nap() -> str:
            await perdure.sleep(0.001)
            await perdure.sleep_until(clock.instant(clock.wall_seconds() + 0.001))
            return "woke"

        assert asyncio.run(nap()) == "woke"

    def test_inside_the_body_of_a_step_it_only_sleeps(self) -> None:
        @perdure.step
        def slow() -> str:
            perdure.sleep(0.001)
            return "slow"

        @perdure.step
        async def slow_async() -> str:
            await perdure.sleep(0.001)
            return "slow"

        @perdure.agent
        async def agent() -> list[str]:
            return [slow(), await slow_async()]

        assert perdure.run(agent, run_id="r") == ["slow", "slow"]
        assert opened() == []

    def test_what_a_sync_sleep_returns_may_be_awaited(self) -> None:
        async def awaited() -> None:
            await perdure.sleep(0)

        asyncio.run(awaited())
        assert asyncio.run(_awaits(perdure.sleep(0))) is None


def is_within(thread: threading.Thread, function: str) -> bool:
    """Whether a thread executes this function now."""
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - the only way to see another thread's place
    while frame is not None and frame.f_code.co_name != function:
        frame = frame.f_back
    return frame is not None


async def _awaits(slept: Any) -> Any:
    return await slept


class TestBranches:
    def test_all_branches_sleep_and_the_run_leaves_memory_until_the_first_is_due(
        self, manual_clock: ManualClock
    ) -> None:
        async def branch(hours: int) -> str:
            await perdure.sleep(f"{hours}h")
            return work(f"slept {hours}h")

        @perdure.agent
        async def agent() -> list[str]:
            return list(await asyncio.gather(branch(3), branch(1), branch(2)))

        begun = manual_clock.wall
        with Bell(RunEnded) as bell:
            handle = perdure.start(agent, run_id="r")
            for hour in (1, 2, 3):
                assert bell.wait().reason == "time"
                assert run_of("r").wake_at == pytest.approx(begun + hour * 3600, abs=1)
                manual_clock.wall = begun + hour * 3600 + 1
            assert handle.result(PATIENCE_SECONDS) == ["slept 3h", "slept 1h", "slept 2h"]
        assert world.lines == ["slept 1h", "slept 2h", "slept 3h"]
        assert len(opened()) == 3

    def test_a_task_group_sleeps_as_one(self, manual_clock: ManualClock) -> None:
        async def branch(hours: int) -> None:
            await perdure.sleep(f"{hours}h")
            work(f"slept {hours}h")

        @perdure.agent
        async def agent() -> str:
            async with asyncio.TaskGroup() as group:
                group.create_task(branch(1))
                group.create_task(branch(1))
            return "all"

        killed("after:ended:#1", lambda: perdure.run(agent, run_id="r"))
        manual_clock.pass_seconds(3600)
        assert perdure.run(agent, run_id="r") == "all"
        assert world.lines == ["slept 1h"] * 2

    def test_threads_sleep_as_one(self, manual_clock: ManualClock) -> None:
        def branch(hours: int) -> str:
            both_begun.wait(PATIENCE_SECONDS)
            perdure.sleep(f"{hours}h")
            return work(f"slept {hours}h")

        both_begun = threading.Barrier(2)

        @perdure.agent
        def agent() -> list[str]:
            with ThreadPoolExecutor(2) as pool:
                return list(pool.map(branch, [1, 1]))

        killed("after:ended:#1", lambda: perdure.run(agent, run_id="r"))
        assert len(opened()) == 2
        manual_clock.pass_seconds(3600)
        assert perdure.run(agent, run_id="r") == ["slept 1h"] * 2
        assert world.lines == ["slept 1h"] * 2

    @pytest.mark.parametrize("threads", [True, False], ids=["threads", "tasks"])
    def test_a_branch_that_still_works_keeps_the_run_in_memory(self, threads: bool) -> None:
        begun, go_on = threading.Event(), threading.Event()

        @perdure.step
        def busy() -> str:
            begun.set()
            assert go_on.wait(PATIENCE_SECONDS)
            return work("worked")

        def asleep() -> str:
            assert begun.wait(PATIENCE_SECONDS)
            perdure.sleep("9w")
            return "woke"

        @perdure.agent
        def in_threads() -> list[str]:
            with ThreadPoolExecutor(2) as pool:
                return [future.result() for future in [pool.submit(asleep), pool.submit(busy)]]

        @perdure.agent
        async def in_tasks() -> list[str]:
            return list(await asyncio.gather(asyncio.to_thread(asleep), asyncio.to_thread(busy)))

        with Bell(WaitOpened, RunEnded) as bell:
            handle = perdure.start(in_threads if threads else in_tasks, run_id="r")
            assert isinstance(bell.wait(), WaitOpened)
            assert handle.status() == "running"
            with pytest.raises(RunHeld):
                perdure.run(in_threads if threads else in_tasks, run_id="r")
            go_on.set()
            assert bell.wait().reason == "time"
        assert world.lines == ["worked"]


class TestBadInput:
    @pytest.mark.parametrize(
        "duration",
        [
            -1,
            float("nan"),
            float("inf"),
            True,
            None,
            "",
            "soon",
            "8",
            "-8h",
            10**400,
            timedelta(days=-1),
            timedelta.max,
            [5],
            b"8h",
        ],
        ids=lambda duration: repr(duration)[:20],
    )
    @pytest.mark.parametrize("inside", [True, False], ids=["inside a run", "outside"])
    def test_no_duration(self, duration: Any, inside: bool) -> None:
        naps["duration"] = duration
        with pytest.raises(UsageError, match="duration=") as refused:
            perdure.run(sleeper, run_id="r") if inside else perdure.sleep(duration)
        assert refused.value.safe == "nothing was recorded."
        assert refused.value.hint
        assert not inside or opened() == []

    @pytest.mark.parametrize(
        "instant",
        [
            datetime(2030, 1, 1),  # noqa: DTZ001
            datetime(9999, 12, 31, tzinfo=UTC),
            datetime.max.replace(tzinfo=timezone(timedelta(hours=-12))),
            "2030-01-01",
            1_900_000_000,
            None,
            datetime(2030, 1, 1, tzinfo=UTC).date(),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("inside", [True, False], ids=["inside a run", "outside"])
    def test_no_instant(self, instant: Any, inside: bool) -> None:
        naps["instant"] = instant
        with pytest.raises(UsageError) as refused:
            perdure.run(sleeper_until, run_id="r") if inside else perdure.sleep_until(instant)
        assert refused.value.safe == "nothing was recorded."
        assert refused.value.hint
        assert not inside or opened() == []


class TestHandles:
    def test_a_sleeper_that_is_paused_stays_so_until_it_is_let_go_on(self, manual_clock: ManualClock) -> None:
        nap(DAY)
        with Bell(RunEnded) as bell:
            handle = perdure.start(sleeper, run_id="r")
            assert bell.wait().reason == "time"
            perdure.pause("r", by="ops")
            assert bell.wait().reason == "parked"
            manual_clock.pass_seconds(2 * DAY)
            with pytest.raises(RunPaused):
                perdure.run(sleeper, run_id="r")
            perdure.unpause("r")
            assert handle.result(PATIENCE_SECONDS) == "after"
        assert world.count("before") == 1

    def test_a_process_that_lets_go_of_its_store_is_not_disturbed_by_who_looks_for_sleepers(self) -> None:
        nap(DAY)
        with Bell(RunEnded) as bell:
            perdure.start(sleeper, run_id="r")
            bell.wait()
        threads_end()
        (waker,) = [thread for thread in threading.enumerate() if thread.name == "perdure-waker"]
        opened_store = session().store
        assert isinstance(opened_store, SqliteStore)
        closer = threading.Thread(target=close_sessions)
        with opened_store._reading:  # noqa: SLF001 - what is read is held up, so that the look is certain to be under way
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not is_within(waker, "list_due"):
                assert time.monotonic() < deadline
            closer.start()
            while not is_within(closer, "close"):
                assert time.monotonic() < deadline
        closer.join(PATIENCE_SECONDS)
        gc.collect()
        waker.join(PATIENCE_SECONDS)
        assert not waker.is_alive()
        assert not closer.is_alive()

    @pytest.mark.parametrize("many", [pytest.param(1000, marks=pytest.mark.exhaustive), 200])
    def test_a_crowd_of_sleepers_has_no_thread_and_no_memory_and_all_wake(self, many: int) -> None:
        woke: dict[int, float] = {}

        @perdure.agent(durability="process")
        def crowd(number: int) -> int:
            perdure.sleep(3)
            woke[number] = clock.wall_seconds()
            return number

        with Bell(RunEnded) as bell:
            begun = time.monotonic()
            handles = [perdure.start(crowd, number, run_id=f"crowd-{number}") for number in range(many)]
            for _ in range(many):
                bell.wait()
            threads_end()
            asleep = [run for run in runs() if run.state == "waiting"]
            threads = [thread.name for thread in threading.enumerate()]
            assert len(threads) < 60, threads
            gc.collect()
            loaded = {found.row.run_id for found in gc.get_objects() if isinstance(found, Active)}
            assert loaded.isdisjoint(run.run_id for run in asleep if run_of(run.run_id).state == "waiting")
            assert [handle.result(PATIENCE_SECONDS) for handle in handles] == list(range(many))
            took = time.monotonic() - begun
        due = {number: opened(f"crowd-{number}")[0].due_at for number in range(many)}
        late = sorted(woke[number] - due[number] for number in range(many))
        assert late[0] >= 0
        print(
            f"\n{many} sleepers: {len(asleep)} asleep at once, {len(threads)} threads, {len(loaded)} in memory,"
            f" late by {late[many // 2]:.2f} s at the median and {late[-1]:.2f} s at most, {took:.1f} s in all"
        )
