"""Attempts, delays and timeouts; a failed attempt counts across a crash."""

from __future__ import annotations

import asyncio
import threading
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import perdure
from perdure import policy
from perdure.errors import AttemptsExhausted, DeadlineExceeded, UsageError
from perdure.records import Kind
from tests.engine.journals import bodies_of, calls_of, state_of
from tests.engine.manual_clock import ManualClock
from tests.engine.world import world

NO_DELAY = perdure.Retry(attempts=3, delay_seconds=0)


def _attempt(fails: int) -> int:
    """Note an attempt outside; the first so many raise."""
    world.note("attempt")
    attempt = perdure.current().attempt
    if world.count("attempt") <= fails:
        raise ValueError(f"attempt {attempt} failed")
    return attempt


@perdure.step(retry=NO_DELAY)
def flaky(fails: int) -> int:
    return _attempt(fails)


@perdure.step(retry=NO_DELAY)
async def flaky_async(fails: int) -> int:
    await asyncio.sleep(0)
    return _attempt(fails)


@perdure.agent
def agent(fails: int) -> int:
    return flaky(fails)


@perdure.agent
async def agent_async(fails: int) -> int:
    return await flaky_async(fails)


@pytest.mark.parametrize("chosen", [agent, agent_async])
def test_a_failure_is_attempted_again_and_every_attempt_is_recorded(chosen: Any) -> None:
    assert perdure.run(chosen, 2, run_id="r") == 3
    assert [kind for kind, _, _ in calls_of("r")] == ["attempt", "attempt", "step"]
    assert [body.failure.message for body in bodies_of("r", Kind.ATTEMPT)] == ["attempt 1 failed", "attempt 2 failed"]
    assert bodies_of("r", Kind.STEP)[0].attempt == 3


@pytest.mark.parametrize("chosen", [agent, agent_async])
def test_when_every_attempt_failed_the_agent_gets_attempts_exhausted(chosen: Any) -> None:
    with pytest.raises(AttemptsExhausted, match=r"failed 3 times; the last error was ValueError: attempt 3 failed"):
        perdure.run(chosen, 9, run_id="r")
    assert world.count("attempt") == 3
    assert state_of("r") == "failed"


def test_only_listed_exceptions_are_attempted_again() -> None:
    @perdure.step(retry=perdure.Retry(attempts=3, delay_seconds=0, on=(OSError,)))
    def picky() -> int:
        return _attempt(9)

    @perdure.agent
    def agent() -> int:
        return picky()

    with pytest.raises(ValueError, match=r"^attempt 1 failed$"):
        perdure.run(agent)
    assert world.count("attempt") == 1


def test_delays_grow_by_the_factor_up_to_the_limit(manual_clock: ManualClock) -> None:
    @perdure.step(
        retry=perdure.Retry(attempts=5, delay_seconds=1, factor=3, max_delay_seconds=10, jitter=0),
    )
    def slow() -> int:
        return _attempt(4)

    @perdure.agent
    def agent() -> int:
        return slow()

    assert perdure.run(agent) == 5
    assert manual_clock.slept == [1, 3, 9, 10]


@example(fraction=0.0, jitter=0.0, delay=5e-324, failed=1025)
@given(
    fraction=st.floats(0, 1, exclude_max=True),
    jitter=st.floats(0, 1),
    delay=st.floats(0, 100),
    failed=st.integers(1, 5000),
)
def test_jitter_stays_within_its_share_and_no_delay_is_negative_or_endless(
    fraction: float, jitter: float, delay: float, failed: int
) -> None:
    retry = perdure.Retry(attempts=9, delay_seconds=delay, factor=2, max_delay_seconds=60, jitter=jitter)
    plain = float(min(Fraction(delay) * 2 ** (failed - 1), 60))
    found = policy.delay_seconds(retry, failed_attempts=failed, fraction=fraction)
    assert plain * (1 - jitter) - 1e-9 <= found <= plain * (1 + jitter) + 1e-9
    assert found >= 0


def test_an_attempt_that_failed_before_a_crash_counts_after_it() -> None:
    @perdure.step(retry=NO_DELAY)
    def dies_at_its_second_attempt() -> int:
        world.note("attempt")
        if world.count("attempt") == 2:
            world.moment("second attempt")
        raise ValueError("always")

    @perdure.agent
    def agent() -> int:
        return dies_at_its_second_attempt()

    world.killed_at("second attempt", lambda: perdure.run(agent, run_id="r"))
    with pytest.raises(AttemptsExhausted, match="failed 3 times"):
        perdure.run(agent, run_id="r")
    # Attempt 1 failed, attempt 2 died with its process and is made again, attempt 3 is the last.
    assert world.count("attempt") == 4
    assert [body.attempt for body in bodies_of("r", Kind.ATTEMPT)] == [1, 2]


def test_the_rest_of_a_delay_is_waited_for_after_a_crash(manual_clock: ManualClock) -> None:
    @perdure.step(retry=perdure.Retry(attempts=2, delay_seconds=100, jitter=0, max_delay_seconds=1000))
    def step() -> int:
        return _attempt(1)

    @perdure.agent
    def agent() -> int:
        return step()

    def killed_in_the_delay() -> None:
        manual_clock.on_sleep = lambda: world.moment("delay")
        perdure.run(agent, run_id="r")

    world.killed_at("delay", killed_in_the_delay)
    manual_clock.pass_seconds(30)
    assert perdure.run(agent, run_id="r") == 2
    assert manual_clock.slept == [pytest.approx(70)]


def test_a_timeout_ends_an_async_body_and_is_attempted_again() -> None:
    ended: list[str] = []

    @perdure.step(retry=perdure.Retry(attempts=2, delay_seconds=0), timeout=0.05)
    async def slow() -> str:
        if perdure.current().attempt == 2:
            return "second"
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return "never"

    @perdure.agent
    async def agent() -> str:
        return await slow()

    assert perdure.run(agent, run_id="r") == "second"
    assert ended == ["cancelled"]
    assert "longer than its timeout of 0.05 s" in bodies_of("r", Kind.ATTEMPT)[0].failure.message


def test_a_timeout_leaves_a_sync_body_behind_and_goes_on() -> None:
    release = threading.Event()
    ended = threading.Event()

    @perdure.step(timeout=0.05)
    def slow() -> str:
        release.wait(30)
        ended.set()
        return "late"

    @perdure.agent
    def agent() -> str:
        try:
            return slow()
        except TimeoutError as error:
            return type(error).__name__

    assert perdure.run(agent, run_id="r") == "DeadlineExceeded"
    assert not ended.is_set()
    release.set()
    assert ended.wait(30)
    assert [kind for kind, _, _ in calls_of("r")] == ["step"]


def test_a_sync_body_within_its_timeout_keeps_its_place_in_the_run() -> None:
    @perdure.step(timeout=30)
    def quick() -> list[str]:
        return [perdure.current().run_id, str(perdure.current().attempt)]

    @perdure.agent
    def agent() -> list[str]:
        return quick()

    assert perdure.run(agent, run_id="r") == ["r", "1"]


def test_a_deadline_is_a_timeout_error_now_and_at_the_replay() -> None:
    @perdure.step(timeout=0.02)
    async def slow() -> None:
        await asyncio.Event().wait()

    @perdure.agent
    async def agent() -> list[str]:
        try:
            await slow()
        except TimeoutError as error:
            found = [type(error).__name__, str(error)]
        world.moment("before the end")
        return found

    world.killed_at("before the end", lambda: perdure.run(agent, run_id="r"))
    assert issubclass(DeadlineExceeded, TimeoutError)
    assert perdure.run(agent, run_id="r") == ["DeadlineExceeded", "slow took longer than its timeout of 0.02 s."]


def test_a_timeout_the_body_raises_itself_is_not_taken_for_the_deadline() -> None:
    @perdure.step(timeout=30)
    async def impatient() -> None:
        raise TimeoutError("its own")

    @perdure.agent
    async def agent() -> None:
        await impatient()

    with pytest.raises(TimeoutError, match="its own") as caught:
        perdure.run(agent)
    assert type(caught.value) is TimeoutError


@pytest.mark.parametrize(
    "options",
    [
        {"attempts": 0},
        {"delay_seconds": -1},
        {"factor": 0.5},
        {"jitter": 1.5},
        {"max_delay_seconds": -1},
        {"on": (str,)},
        {"on": ValueError},
        {"on": (KeyboardInterrupt,)},
    ],
)
def test_a_policy_that_could_not_act_as_written_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))) as caught:
        perdure.Retry(**options)
    assert "Retry(" in caught.value.hint


@pytest.mark.parametrize("timeout", [0, -1])
def test_a_timeout_that_leaves_no_time_is_refused_when_it_is_decorated(timeout: float) -> None:
    with pytest.raises(UsageError, match="must be above 0 seconds"):
        perdure.step(timeout=timeout)(_attempt)
