"""A failed run is resumable: the call that failed is attempted anew, everything completed stands."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import perdure
from perdure.errors import AttemptsExhausted, StepFailed
from tests.engine.journals import runs, state_of
from tests.engine.world import world

broken: set[str] = set()


class Translated(Exception):
    pass


@pytest.fixture(autouse=True)
def nothing_broken() -> None:
    broken.clear()


@perdure.step
def work(label: str) -> str:
    world.note(label)
    if label in broken:
        raise ValueError(f"{label} is broken")
    return label


@perdure.step
async def work_async(label: str) -> str:
    return work(label)


@perdure.step(retry=perdure.Retry(attempts=2, delay_seconds=0))
def stubborn(label: str) -> str:
    return work(label)


@perdure.effect(certain=(ValueError,))
def send(label: str) -> str:
    return work(label)


def resumed(agent: object, *, after: list[str], expected: object) -> None:
    """The run failed, what broke it is mended: the same command goes on, and only this happens."""
    before = world.lines
    broken.clear()
    assert perdure.run(agent, run_id="r") == expected  # type: ignore[call-overload]
    assert world.lines == before + after
    assert state_of("r") == "completed"


def test_the_failed_call_is_attempted_anew_and_everything_completed_stands() -> None:
    @perdure.agent
    def agent() -> str:
        return work("first") + work("second") + work("third")

    broken.add("second")
    for _ in range(2):
        with pytest.raises(ValueError, match="second is broken"):
            perdure.run(agent, run_id="r")
        assert state_of("r") == "failed"
    assert world.lines == ["first", "second", "second"]
    resumed(agent, after=["second", "third"], expected="firstsecondthird")


def test_the_same_command_without_an_id_resumes_the_failed_run() -> None:
    @perdure.agent
    def agent() -> str:
        return work("first") + work("second")

    broken.add("second")
    with pytest.raises(ValueError, match="broken"):
        perdure.run(agent)
    broken.clear()
    assert perdure.run(agent) == "firstsecond"
    assert world.lines == ["first", "second", "second"]
    assert len(runs()) == 1


def test_a_failed_run_older_than_a_completed_one_is_left_alone() -> None:
    @perdure.agent
    def agent() -> str:
        return work("only")

    broken.add("only")
    with pytest.raises(ValueError, match="broken"):
        perdure.run(agent)
    broken.clear()
    perdure.run(agent, fresh=True)
    perdure.run(agent)
    assert [run.state for run in runs()] == ["completed", "completed", "failed"]


def test_a_caught_failure_stays_when_another_call_fails_the_run() -> None:
    @perdure.agent
    def agent() -> str:
        try:
            found = work("caught")
        except ValueError:
            found = work("fallback")
        return found + work("last")

    broken.update({"caught", "last"})
    with pytest.raises(ValueError, match="last is broken"):
        perdure.run(agent, run_id="r")
    resumed(agent, after=["last"], expected="fallbacklast")


def test_a_caught_failure_stays_when_its_handler_fails_the_run() -> None:
    @perdure.agent
    def agent() -> str:
        try:
            return work("caught")
        except ValueError:
            return work("fallback")

    broken.update({"caught", "fallback"})
    with pytest.raises(ValueError, match="fallback is broken"):
        perdure.run(agent, run_id="r")
    resumed(agent, after=["fallback"], expected="fallback")


@pytest.mark.parametrize("how", ["from", "context", "none"])
def test_a_failure_the_agent_translates_is_attempted_anew(how: str) -> None:
    @perdure.agent
    def agent() -> str:
        try:
            return work("only")
        except ValueError as error:
            if how == "from":
                raise Translated("in other words") from error
            if how == "none":
                raise Translated("in other words") from None
            raise Translated("in other words")  # noqa: B904 - the implicit chain is the point

    broken.add("only")
    with pytest.raises(Translated):
        perdure.run(agent, run_id="r")
    resumed(agent, after=["only"], expected="only")


def test_every_failure_of_a_task_group_is_attempted_anew() -> None:
    @perdure.agent
    async def agent() -> list[str]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(work_async(label)) for label in ("a", "b", "c")]
        return [task.result() for task in tasks]

    broken.update({"a", "c"})
    with pytest.raises(ExceptionGroup):
        perdure.run(agent, run_id="r")
    before = sorted(world.lines)
    broken.clear()
    assert perdure.run(agent, run_id="r") == ["a", "b", "c"]
    assert before.count("b") <= 1
    assert world.count("b") == 1
    assert world.count("a") == 2


def test_a_call_that_ran_out_of_attempts_has_all_of_them_again() -> None:
    @perdure.agent
    def agent() -> str:
        return stubborn("only")

    broken.add("only")
    with pytest.raises(AttemptsExhausted):
        perdure.run(agent, run_id="r")
    with pytest.raises(AttemptsExhausted):
        perdure.run(agent, run_id="r")
    assert world.lines == ["only"] * 4
    resumed(agent, after=["only"], expected="only")


def test_an_effect_that_certainly_did_not_happen_is_performed_at_the_resume() -> None:
    @perdure.agent
    def agent() -> str:
        return send("mail")

    broken.add("mail")
    with pytest.raises(ValueError, match="broken"):
        perdure.run(agent, run_id="r")
    resumed(agent, after=["mail"], expected="mail")


def test_an_effect_that_ran_out_of_attempts_has_all_of_them_again_under_new_numbers() -> None:
    @perdure.effect(certain=(ValueError,), retry=perdure.Retry(attempts=2, delay_seconds=0))
    def stubborn_send(label: str) -> str:
        world.note(f"attempt {perdure.current().attempt}")
        return work(label)

    @perdure.agent
    def agent() -> str:
        return stubborn_send("mail")

    broken.add("mail")
    for _ in range(2):
        with pytest.raises(AttemptsExhausted):
            perdure.run(agent, run_id="r")
    assert [line for line in world.lines if line.startswith("attempt")] == [f"attempt {n}" for n in (1, 2, 3, 4)]
    resumed(agent, after=["attempt 5", "mail"], expected="mail")


def test_an_agent_that_fails_by_itself_replays_its_steps_and_goes_on_once_it_is_mended() -> None:
    @perdure.agent
    def agent() -> str:
        found = work("first")
        if "agent" in broken:
            raise RuntimeError("a mistake in the agent")
        return found + work("second")

    broken.add("agent")
    with pytest.raises(RuntimeError, match="a mistake"):
        perdure.run(agent, run_id="r")
    resumed(agent, after=["second"], expected="firstsecond")


def test_a_failure_before_a_crash_is_not_attempted_anew_because_it_did_not_end_the_run() -> None:
    @perdure.agent
    def agent() -> str:
        try:
            return work("caught")
        except ValueError:
            world.moment("caught")
            return "handled"

    broken.add("caught")
    world.killed_at("caught", lambda: perdure.run(agent, run_id="r"))
    resumed(agent, after=[], expected="handled")


def _in_a_strand(label: str) -> str:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, label).result()


@perdure.agent
def _in_an_agent(label: str) -> str:
    return work(label)


def _in_a_loop(label: str) -> str:
    return asyncio.run(_awaited(label))


@pytest.mark.parametrize("second", [work, _in_an_agent, _in_a_loop], ids=["step", "agent", "loop"])
@pytest.mark.parametrize(
    "clean_up", [send, _in_an_agent, _in_a_strand, str], ids=["effect", "agent", "strand", "nothing"]
)
def test_what_handled_the_failure_stands_and_the_resumed_run_goes_on_beyond_it(
    second: Callable[[str], str], clean_up: Callable[[str], str]
) -> None:
    @perdure.agent
    def agent() -> str:
        found = work("first")
        try:
            found += second("second")
        finally:
            clean_up("cleanup")
        world.moment("before the last")
        return found + work("last")

    broken.add("second")
    for _ in range(2):
        with pytest.raises(ValueError, match="second is broken"):
            perdure.run(agent, run_id="r")
    handled = [] if clean_up is str else ["cleanup"]
    assert world.lines == ["first", "second", *handled, "second", *handled]
    broken.clear()
    world.killed_at("before the last", lambda: perdure.run(agent, run_id="r"))
    assert world.lines[-1 - len(handled) :] == ["second", *handled]
    resumed(agent, after=["last"], expected="firstsecondlast")


def test_one_failure_after_the_other_is_handled_and_mended() -> None:
    @perdure.agent
    def agent() -> str:
        found = ""
        for label in ("a", "b", "c"):
            try:
                found += work(label)
            except ValueError:
                send(f"sorry for {label}")
                raise
        return found

    for label in ("a", "b", "c"):
        broken.add(label)
        with pytest.raises(ValueError, match=f"{label} is broken"):
            perdure.run(agent, run_id="r")
        broken.clear()
    assert world.lines == ["a", "sorry for a", "a", "b", "sorry for b", "b", "c", "sorry for c"]
    resumed(agent, after=["c"], expected="abc")


async def _awaited(label: str) -> str:
    return await work_async(label)


def test_siblings_of_a_failed_call_stand_whenever_they_completed() -> None:
    @perdure.agent
    async def agent() -> list[str]:
        tasks = [asyncio.create_task(work_async(label)) for label in ("a", "b")]
        await asyncio.wait(tasks)
        found = [work("between")]
        return found + [await task for task in tasks]

    broken.add("a")
    with pytest.raises(ValueError, match="a is broken"):
        perdure.run(agent, run_id="r")
    resumed(agent, after=["a"], expected=["between", "a", "b"])


def test_the_result_of_an_agent_that_cannot_be_stored_fails_the_run_and_can_be_mended() -> None:
    @perdure.agent
    def agent() -> object:
        found = work("only")
        return {found} if not broken else {"found": object()}

    broken.add("result")
    with pytest.raises(perdure.errors.UnstorableValue, match=r"The result of .*agent cannot be saved: result.found"):
        perdure.run(agent, run_id="r")
    resumed(agent, after=[], expected={"only"})


def test_a_failure_of_an_unknown_class_is_attempted_anew_too() -> None:
    def hidden() -> Exception:
        class Hidden(Exception):
            pass

        return Hidden("x")

    @perdure.step
    def raises_hidden() -> str:
        world.note("tried")
        if broken:
            raise hidden()
        return "mended"

    @perdure.agent
    def agent() -> str:
        return raises_hidden()

    broken.add("x")
    with pytest.raises(StepFailed):
        perdure.run(agent, run_id="r")
    resumed(agent, after=["tried"], expected="mended")
