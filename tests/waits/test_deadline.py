"""Deadlines: of a run, counted from its acceptance whatever dies in between; and of the attempts of one call."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import Any

import pytest

import perdure
from perdure.engine.child import child_id
from perdure.errors import AttemptsExhausted, DeadlineExceeded, RunWaits, UsageError
from perdure.records import Kind
from tests.engine.journals import bodies_of, records_of, run_of, runs, state_of
from tests.engine.manual_clock import ManualClock
from tests.engine.world import world
from tests.waits.watching import watching

PATIENCE = 60.0
HOUR = 3600.0


@perdure.step
def work(label: str) -> str:
    world.note(label)
    world.moment(label)
    return label


@perdure.effect
def send(to: str) -> str:
    world.note(f"sent to {to}")
    return to


@perdure.agent
def sleeps() -> str:
    work("first")
    perdure.sleep("2h")
    return send("ada")


@perdure.agent
async def sleeps_async() -> str:
    work("first")
    await perdure.sleep("2h")
    return send("ada")


@perdure.agent
def asks() -> str:
    work("first")
    perdure.ask("Send?", options=["yes"])
    return send("ada")


@perdure.agent
async def asks_async() -> str:
    work("first")
    await perdure.ask("Send?", options=["yes"])
    return send("ada")


BOTH = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


def _late(match: str = "is past its deadline") -> Any:
    return pytest.raises(DeadlineExceeded, match=match)


@BOTH
def test_no_effect_begins_once_the_deadline_is_over(is_async: bool, manual_clock: ManualClock) -> None:
    @perdure.step
    def slow() -> str:
        manual_clock.pass_seconds(2 * HOUR)
        return "slow"

    @perdure.agent
    def agent() -> str:
        return slow() + send("ada")

    @perdure.agent
    async def agent_async() -> str:
        return slow() + send("ada")

    chosen: Any = agent_async if is_async else agent
    with _late() as late:
        perdure.run(chosen, run_id="r", deadline="1h")
    assert (late.value.exit_code, state_of("r"), world.lines) == (1, "failed", [])
    assert "fresh=True" in late.value.hint
    assert [record.name for record in records_of("r", Kind.STEP)] == ["slow"]
    assert records_of("r", Kind.INTENT) == []


@BOTH
def test_an_agent_cannot_catch_its_deadline_and_go_on(is_async: bool, manual_clock: ManualClock) -> None:
    @perdure.agent
    def stubborn() -> str:
        manual_clock.pass_seconds(2 * HOUR)
        try:
            return work("a")
        except Exception:  # noqa: BLE001 - as agent frameworks do
            return work("b")

    @perdure.agent
    async def stubborn_async() -> str:
        manual_clock.pass_seconds(2 * HOUR)
        try:
            return work("a")
        finally:
            send("ada")

    with _late():
        perdure.run(stubborn_async if is_async else stubborn, run_id="r", deadline=HOUR)
    assert (state_of("r"), world.lines) == ("failed", [])


def test_a_deadline_that_passes_while_a_run_is_replayed_is_heeded_there(manual_clock: ManualClock) -> None:
    @perdure.agent
    def agent() -> None:
        manual_clock.pass_seconds(2 * HOUR if world.lines else 0.0)
        world.note(f"given {work('a')}")
        world.moment("given")

    world.killed_at("given", lambda: perdure.run(agent, run_id="r", deadline=HOUR))
    with _late():
        perdure.run(agent, run_id="r")
    assert (state_of("r"), world.lines) == ("failed", ["a", "given a"])


def test_within_its_deadline_a_run_is_not_disturbed(manual_clock: ManualClock) -> None:
    assert perdure.run(sleeps, run_id="r", deadline="3h") == "ada"
    assert world.lines == ["first", "sent to ada"]


@pytest.mark.parametrize("chosen", [sleeps, sleeps_async])
def test_a_run_that_sleeps_past_its_deadline_fails_when_that_comes(
    chosen: Any, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = manual_clock.wall
    _async_time_is_manual(manual_clock, monkeypatch)
    with _late():
        perdure.run(chosen, run_id="r", deadline="1h")
    assert (state_of("r"), world.lines) == ("failed", ["first"])
    assert HOUR <= manual_clock.wall - begun < 1.5 * HOUR


def _async_time_is_manual(manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what the engine awaits pass at once, too."""
    original = asyncio.sleep

    async def sleep(seconds: float, *args: Any) -> Any:
        if seconds > 0.1:
            manual_clock.pass_seconds(100 * seconds)
        return await original(0, *args)

    monkeypatch.setattr(asyncio, "sleep", sleep)


@pytest.mark.parametrize("chosen", [asks, asks_async])
def test_a_handle_of_a_run_that_asks_past_its_deadline_hears_of_it(chosen: Any, manual_clock: ManualClock) -> None:
    with watching() as watch:
        handle = perdure.start(chosen, run_id="r", deadline="1h")
        watch.until_ended("r", "waiting (human)")
        assert run_of("r").wake_at == pytest.approx(run_of("r").created_at + HOUR)
        manual_clock.pass_seconds(HOUR)
        with _late():
            handle.result(PATIENCE)
    assert (state_of("r"), world.lines) == ("failed", ["first"])
    with pytest.raises(UsageError, match="it no longer asks"):
        perdure.answer("r", "yes")


@pytest.mark.parametrize("chosen", [asks, asks_async])
def test_an_answer_does_not_help_a_run_that_is_started_again_too_late(chosen: Any, manual_clock: ManualClock) -> None:
    with pytest.raises(RunWaits):
        perdure.run(chosen, run_id="r", deadline="1h")
    perdure.answer("r", "yes")
    manual_clock.pass_seconds(HOUR + 1)
    with _late():
        perdure.run(chosen, run_id="r")
    assert (state_of("r"), world.lines) == ("failed", ["first"])


@pytest.mark.parametrize("chosen", [asks, asks_async])
def test_the_deadline_counts_from_the_acceptance_across_a_kill(chosen: Any, manual_clock: ManualClock) -> None:
    world.killed_at("first", lambda: perdure.run(chosen, run_id="r", deadline="1h"))
    manual_clock.pass_seconds(HOUR / 2)
    with pytest.raises(RunWaits):
        perdure.run(chosen, run_id="r", deadline="9h")
    manual_clock.pass_seconds(HOUR / 2)
    for _ in range(2):
        with _late():
            perdure.run(chosen, run_id="r", deadline="9h")
        assert state_of("r") == "failed"
    assert world.lines == ["first", "first"]


def test_a_run_that_is_late_can_be_started_over(manual_clock: ManualClock) -> None:
    with pytest.raises(RunWaits):
        perdure.run(asks, deadline="1h")
    manual_clock.pass_seconds(HOUR)
    with _late():
        perdure.run(asks)
    with pytest.raises(RunWaits):
        perdure.run(asks, fresh=True)
    assert len(runs()) == 2


def test_a_deadline_of_the_agent_holds_for_every_run_unless_the_run_has_its_own(manual_clock: ManualClock) -> None:
    @perdure.agent(deadline="1h")
    def limited() -> str:
        manual_clock.pass_seconds(2 * HOUR)
        return send("ada")

    with _late():
        perdure.run(limited, run_id="r")
    assert perdure.run(limited, run_id="s", deadline=timedelta(hours=3)) == "ada"
    assert world.lines == ["sent to ada"]


@pytest.mark.parametrize("deadline", [0, -1, float("nan"), float("inf"), "soon", "", "0s", True, [1]])
def test_a_deadline_that_is_none_is_refused(deadline: Any) -> None:
    for start in (perdure.run, perdure.start):
        with pytest.raises(UsageError, match="deadline"):
            start(asks, deadline=deadline)
    with pytest.raises(UsageError, match="deadline"):
        perdure.agent(deadline=deadline)(lambda: None)
    assert runs() == []


def test_an_async_body_that_hangs_past_its_deadline_is_cut_off() -> None:
    perdure.configure(cancel_grace_seconds=0.0)
    begun = threading.Event()

    @perdure.agent
    async def stuck() -> str:
        begun.set()
        await asyncio.Event().wait()
        return send("ada")

    handle = perdure.start(stuck, run_id="r", deadline=0.2)
    assert begun.wait(PATIENCE)
    with _late():
        handle.result(PATIENCE)
    assert (state_of("r"), world.lines) == ("failed", [])


def test_a_run_that_waits_between_two_attempts_past_its_deadline_attempts_no_more(manual_clock: ManualClock) -> None:
    @perdure.step(retry=perdure.Retry(attempts=9, delay_seconds=2 * HOUR, max_delay_seconds=9 * HOUR))
    def flaky() -> str:
        world.note("attempt")
        raise OSError("down")

    @perdure.agent
    def agent() -> str:
        return flaky()

    with _late():
        perdure.run(agent, run_id="r", deadline="1h")
    assert world.lines == ["attempt"]


def test_a_child_past_its_deadline_fails_its_parent_with_that(manual_clock: ManualClock) -> None:
    @perdure.agent(deadline="1h")
    def limited() -> str:
        manual_clock.pass_seconds(2 * HOUR)
        return send("ada")

    @perdure.agent
    def parent() -> str:
        try:
            return perdure.start(limited).result()
        except DeadlineExceeded:
            return work("without it")

    assert perdure.run(parent, run_id="r") == "without it"
    assert state_of(child_id("r", "main.0")) == "failed"
    assert world.lines == ["without it"]


def test_a_parent_with_a_deadline_whose_child_asks_is_not_waited_for_until_then(manual_clock: ManualClock) -> None:
    @perdure.agent
    def parent() -> str:
        return perdure.start(asks).result()

    with pytest.raises(RunWaits):
        perdure.run(parent, run_id="r", deadline="1h")
    assert state_of("r") == "waiting (child)"
    manual_clock.pass_seconds(HOUR)
    with _late():
        perdure.run(parent, run_id="r")
    assert world.lines == ["first"]


# ------------------------------------------------------------------------------------------- the attempts of one call

LIMITED = perdure.Retry(attempts=9, delay_seconds=60, factor=1, jitter=0, deadline_seconds=150)


def _flaky(manual_clock: ManualClock, *, is_effect: bool, is_async: bool) -> Any:
    """An agent with one call, whose every attempt fails for sure."""

    def attempt() -> str:
        world.note("attempt")
        world.moment("attempt")
        raise ConnectionRefusedError("nobody there")

    async def attempt_async() -> str:
        return attempt()

    decorate: Any = perdure.effect(retry=LIMITED) if is_effect else perdure.step(retry=LIMITED)
    call = decorate(attempt_async if is_async else attempt)

    @perdure.agent
    def agent() -> str:
        return call()  # type: ignore[no-any-return]

    @perdure.agent
    async def agent_async() -> str:
        return await call()  # type: ignore[no-any-return]

    return agent_async if is_async else agent


KINDS = pytest.mark.parametrize("is_effect", [False, True], ids=["step", "effect"])


@KINDS
def test_no_attempt_begins_after_the_deadline_of_the_call(is_effect: bool, manual_clock: ManualClock) -> None:
    agent = _flaky(manual_clock, is_effect=is_effect, is_async=False)
    with pytest.raises(AttemptsExhausted, match="failed 3 times"):
        perdure.run(agent, run_id="r")
    assert world.count("attempt") == 3
    assert manual_clock.slept == [60, 60]


@KINDS
@BOTH
def test_the_deadline_of_a_call_counts_from_its_first_attempt_across_a_kill(
    is_effect: bool, is_async: bool, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    _async_time_is_manual(manual_clock, monkeypatch)
    agent = _flaky(manual_clock, is_effect=is_effect, is_async=is_async)
    original = manual_clock.on_sleep
    manual_clock.on_sleep = lambda: world.moment("between attempts")

    async def killed(seconds: float, *args: Any) -> Any:
        world.moment("between attempts")

    if is_async:
        monkeypatch.setattr(asyncio, "sleep", killed)
    world.killed_at("between attempts", lambda: perdure.run(agent, run_id="r"))
    manual_clock.on_sleep = original
    _async_time_is_manual(manual_clock, monkeypatch)
    assert world.count("attempt") == 1
    manual_clock.pass_seconds(HOUR)
    with pytest.raises(AttemptsExhausted, match="nobody there"):
        perdure.run(agent, run_id="r")
    assert world.count("attempt") == 1
    assert state_of("r") == "failed"


@KINDS
def test_a_call_killed_within_its_deadline_is_attempted_again(is_effect: bool, manual_clock: ManualClock) -> None:
    agent = _flaky(manual_clock, is_effect=is_effect, is_async=False)
    manual_clock.on_sleep = lambda: world.moment("between attempts")
    world.killed_at("between attempts", lambda: perdure.run(agent, run_id="r"))
    with pytest.raises(AttemptsExhausted, match="failed 3 times"):
        perdure.run(agent, run_id="r")
    assert world.count("attempt") == 3
    assert sum(manual_clock.slept) == pytest.approx(120)


def test_a_failed_run_that_is_started_again_has_the_whole_time_for_its_call(manual_clock: ManualClock) -> None:
    agent = _flaky(manual_clock, is_effect=False, is_async=False)
    for number in (1, 2):
        with pytest.raises(AttemptsExhausted):
            perdure.run(agent, run_id="r")
        assert world.count("attempt") == 3 * number
        manual_clock.pass_seconds(HOUR)
    assert [body.attempt for body in bodies_of("r", Kind.ATTEMPT)] == [1, 2, 1, 2]


@pytest.mark.parametrize("seconds", [0, -1, float("nan")])
def test_a_deadline_of_a_call_that_leaves_no_time_is_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match="leaves no time"):
        perdure.Retry(deadline_seconds=seconds)


def test_a_parent_that_is_late_ends_the_child_that_still_asks(manual_clock: ManualClock) -> None:
    @perdure.agent
    def parent() -> str:
        return perdure.start(asks).result()

    with pytest.raises(RunWaits):
        perdure.run(parent, run_id="p", deadline=100)
    manual_clock.pass_seconds(101)
    with pytest.raises(DeadlineExceeded):
        perdure.run(parent, run_id="p")
    assert state_of("p") == "failed"
    assert state_of(child_id("p", "main.0")) == "cancelled"


def test_a_run_that_restarts_gives_the_next_one_as_much_time_as_it_had(manual_clock: ManualClock) -> None:
    @perdure.agent
    def endless(number: int) -> str:
        manual_clock.pass_seconds(60)
        work(f"round {number}")
        if number < 3:
            perdure.restart_with(number + 1)
        manual_clock.pass_seconds(60)
        return work("never")

    with pytest.raises(DeadlineExceeded):
        perdure.run(endless, 1, run_id="r", deadline=100)
    assert world.lines == ["round 1", "round 2", "round 3"]
