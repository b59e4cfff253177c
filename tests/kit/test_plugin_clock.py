"""The clock of a test: what runs wait for comes at once, in its order, and nothing else makes time pass."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import perdure
from perdure.engine.agent import spec_of
from perdure.engine.session import session
from perdure.errors import AttemptsExhausted, DeadlineExceeded, RunWaits
from perdure.testing.clock import ManualClock
from perdure.testing.stores import StoreInUse
from perdure.worker.worker import Limits, Worker

STORES = pytest.mark.parametrize("perdure_store", ["memory", "sqlite", "postgresql"], indirect=True)
attempts: list[int] = []


@perdure.agent
def naps() -> timedelta:
    began = perdure.now()
    perdure.sleep("3d")
    return perdure.now() - began


@perdure.agent
async def naps_beside() -> list[timedelta]:
    began = perdure.now()

    async def nap(hours: int) -> timedelta:
        await perdure.sleep(hours * 3600)
        return perdure.now() - began

    return list(await asyncio.gather(*map(nap, (3, 1, 2))))


@perdure.agent
def naps_in_threads() -> list[timedelta]:
    began, found = perdure.now(), []

    def nap(hours: int) -> None:
        perdure.sleep(hours * 3600)
        found.append(perdure.now() - began)

    threads = [threading.Thread(target=nap, args=(hours,)) for hours in (3, 1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(found)


@perdure.agent
def napping_child(days: int) -> int:
    perdure.sleep(timedelta(days=days))
    return days


@perdure.agent
def naps_by_children() -> list[int]:
    handles = [perdure.start(napping_child, days) for days in (2, 1)]
    return [handle.result() for handle in handles]


@perdure.step(retry=perdure.Retry(attempts=5, delay_seconds=600, max_delay_seconds=3600))
def flaky(until: int) -> int:
    attempts.append(1)
    if len(attempts) < until:
        raise OSError("busy")
    return len(attempts)


@perdure.agent
def retries(until: int) -> int:
    return flaky(until)


@perdure.agent
async def asks() -> str:
    answer = await perdure.ask("Go on?", options=["yes", "no"], timeout="8h", default="no")
    return answer.choice


@perdure.step
def work() -> None:
    time.sleep(0.2)


@perdure.agent
def works_and_asks() -> str:
    work()
    return perdure.ask("Go on?", options=["yes", "no"], timeout="8h", default="no").choice


@perdure.agent(deadline="1h")
def has_a_deadline() -> None:
    perdure.sleep("2d")


@perdure.agent(schedule=perdure.Schedule(cron="0 6 * * *"))
def daily() -> str:
    return "done"


@STORES
@pytest.mark.parametrize("agent", [naps, naps_beside, naps_in_threads, naps_by_children])
def test_days_pass_at_once_and_exactly(clock: ManualClock, agent: Any) -> None:
    expected = {
        naps: (timedelta(days=3), timedelta(days=3)),
        naps_beside: ([timedelta(hours=hours) for hours in (3, 1, 2)], timedelta(hours=3)),
        naps_in_threads: ([timedelta(hours=hours) for hours in (1, 2, 3)], timedelta(hours=3)),
        naps_by_children: ([2, 1], timedelta(days=2)),
    }[agent]
    began = clock.now
    assert (perdure.run(agent), clock.now - began) == expected


@STORES
def test_runs_beside_the_test_skip_their_sleeps_too(clock: ManualClock) -> None:
    alone, beside = perdure.start(naps), perdure.start(naps_beside)
    assert alone.result(30) >= timedelta(days=3)
    assert len(beside.result(30)) == 3


def test_time_stands_still_while_a_run_works(clock: ManualClock) -> None:
    began = clock.now
    attempts.clear()
    assert perdure.run(retries, 1) == 1
    assert clock.now == began


def test_delays_of_retries_are_skipped_and_counted(clock: ManualClock) -> None:
    began = clock.now
    attempts.clear()
    assert perdure.run(retries, 3) == 3
    assert clock.now - began >= timedelta(minutes=10)
    attempts.clear()
    with pytest.raises(AttemptsExhausted):
        perdure.run(retries, 100)


@STORES
def test_question_without_an_answer_expires_when_the_test_says_so(clock: ManualClock) -> None:
    with pytest.raises(RunWaits):
        perdure.run(asks)
    clock.advance("7h")
    with pytest.raises(RunWaits):
        perdure.run(asks)
    clock.advance(timedelta(hours=1))
    assert perdure.run(asks) == "no"


@STORES
def test_run_that_was_started_has_moved_when_the_clock_has(clock: ManualClock) -> None:
    handle = perdure.start(works_and_asks)
    clock.advance("8h")
    assert handle.status() == "completed"
    assert handle.result() == "no"


def test_held_clock_lets_a_run_sleep(clock: ManualClock) -> None:
    with clock.held():
        handle = perdure.start(naps)
        clock.advance("2d")
        assert handle.status() == "waiting (time)"
        clock.advance("1d")
        assert handle.result(30) == timedelta(days=3)


def test_deadline_of_a_run_comes_before_what_it_sleeps_for(clock: ManualClock) -> None:
    began = clock.now
    with pytest.raises(DeadlineExceeded):
        perdure.run(has_a_deadline)
    assert clock.now - began == timedelta(hours=1)


@pytest.mark.parametrize("perdure_store", ["memory", "sqlite"], indirect=True)
def test_ticks_of_a_schedule_come_with_the_clock(clock: ManualClock, perdure_store: StoreInUse) -> None:
    spec = spec_of(daily)
    worker = Worker(session(), {spec.name: spec}, Limits())
    seen = threading.Event()
    forget = perdure.subscribe(lambda event: seen.set() if type(event).__name__ == "ScheduleDeclared" else None)
    thread = threading.Thread(target=worker.work)
    thread.start()
    try:
        assert seen.wait(30)
        assert perdure_store.runs() == []
        clock.advance("1d")
        ended = threading.Event()
        forget_ended = perdure.subscribe(lambda event: ended.set() if type(event).__name__ == "RunEnded" else None)
        assert ended.wait(30)
        forget_ended()
    finally:
        worker.drain()
        thread.join()
        forget()
    assert [run.state for run in perdure_store.runs()] == ["completed"]


def test_clock_goes_forwards_only(clock: ManualClock) -> None:
    with pytest.raises(perdure.PerdureError):
        clock.advance_to(clock.now - timedelta(seconds=1))
    there = clock.now + timedelta(days=400)
    clock.advance_to(there)
    assert clock.now == there


def test_instant_that_the_clock_cannot_go_to_is_refused_for_its_own_reason(clock: ManualClock) -> None:
    later = (clock.now + timedelta(days=400)).replace(tzinfo=None)
    with pytest.raises(perdure.PerdureError, match="names no time zone") as refused:
        clock.advance_to(later)
    _, written, _ = refused.value.hint.split("'")
    with pytest.raises(perdure.PerdureError, match="cannot go back to"):
        clock.advance_to(clock.now - timedelta(seconds=1))
    clock.advance_to(datetime.fromisoformat(written))
    assert clock.now == later.replace(tzinfo=UTC)


def test_time_is_real_again_afterwards(perdure_store: StoreInUse) -> None:
    from perdure import clock as readings

    before = readings.wall_seconds()
    with ManualClock().installed() as manual:
        manual.advance("1d")
        assert readings.wall_seconds() > before + 80_000
    assert readings.wall_seconds() < before + 80_000
