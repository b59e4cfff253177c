"""Bodies are opaque, agents inside runs are scopes of them, and another process is refused."""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.process
import os
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import pytest

import perdure
from perdure.errors import NotInRun, UsageError
from tests.engine.journals import calls_of, keys_of, runs, state_of
from tests.engine.world import world


@perdure.step
def step(label: str) -> str:
    world.note(label)
    return perdure.current().key


@perdure.effect
def effect(label: str) -> str:
    world.note(label)
    return perdure.current().key


def test_a_step_inside_a_step_body_is_a_plain_call() -> None:
    @perdure.step
    def outer() -> str:
        return step("inner")

    @perdure.agent
    def agent() -> str:
        return outer()

    perdure.run(agent, run_id="r")
    assert calls_of("r") == [("step", "main.0", "outer")]
    assert world.lines == ["inner"]


@pytest.mark.parametrize("decorate", [perdure.step, perdure.effect])
def test_an_effect_inside_a_body_is_refused_before_it_is_performed(decorate: Callable[..., Any]) -> None:
    refusals: list[UsageError] = []

    def outer() -> str:
        try:
            return effect("never")
        except UsageError as error:
            refusals.append(error)
            return "refused"

    outer = decorate(outer)

    @perdure.agent
    def agent() -> str:
        return outer()

    assert perdure.run(agent) == "refused"
    assert world.lines == []
    assert "effect effect" in refusals[0].message
    assert "body of outer" in refusals[0].message
    assert "from the agent" in refusals[0].hint


def test_an_effect_inside_a_task_or_thread_of_a_body_is_refused_too() -> None:
    @perdure.step
    async def outer() -> list[str]:
        found: list[str] = []
        for call in (_in_task, _in_thread):
            try:
                await call()
            except UsageError as error:
                found.append(type(error).__name__)
        return found

    async def _in_task() -> None:
        async def inner() -> None:
            effect("never")

        await asyncio.create_task(inner())

    async def _in_thread() -> None:
        await asyncio.to_thread(effect, "never")

    @perdure.agent
    async def agent() -> list[str]:
        return await outer()

    assert perdure.run(agent) == ["UsageError", "UsageError"]
    assert world.lines == []


def test_an_agent_called_inside_a_run_is_a_scope_of_that_run() -> None:
    @perdure.agent
    def inner(label: str) -> str:
        return step(label)

    @perdure.agent
    async def inner_async(label: str) -> str:
        return step(label)

    @perdure.agent
    async def agent() -> None:
        step("before")
        inner("a")
        await inner_async("b")
        inner("c")
        step("after")

    perdure.run(agent, run_id="r")
    where = "test_an_agent_called_inside_a_run_is_a_scope_of_that_run.<locals>"
    assert keys_of("r") == [
        "main.0",
        f"main/{where}.inner#0.0",
        f"main/{where}.inner_async#0.0",
        f"main/{where}.inner#1.0",
        "main.1",
    ]
    assert len(runs()) == 1


def test_an_agent_called_inside_a_body_is_a_plain_call() -> None:
    @perdure.agent
    def inner() -> str:
        return step("inner")

    @perdure.step
    def outer() -> str:
        return inner()

    @perdure.agent
    def agent() -> str:
        return outer()

    perdure.run(agent, run_id="r")
    assert calls_of("r") == [("step", "main.0", "outer")]
    assert len(runs()) == 1


def test_an_agent_called_outside_a_run_is_a_run() -> None:
    @perdure.agent
    def agent() -> str:
        return step("inside")

    @perdure.agent
    async def agent_async() -> str:
        return step("inside")

    agent()
    asyncio.run(agent_async())
    assert [run.state for run in runs()] == ["completed", "completed"]


def test_a_run_inside_a_run_is_refused() -> None:
    @perdure.agent
    def inner() -> None:
        step("never")

    @perdure.agent
    def agent() -> str:
        with pytest.raises(UsageError, match="inside a run") as caught:
            perdure.run(inner)
        return str(caught.value.hint)

    assert "call the agent itself" in perdure.run(agent)
    assert world.lines == []


def test_outside_a_run_steps_and_effects_are_plain_and_each_call_has_a_fresh_key() -> None:
    keys = {step("a"), step("a"), effect("b"), effect("b")}
    assert len(keys) == 4
    assert all(keys)
    assert world.lines == ["a", "a", "b", "b"]
    assert runs() == []


def test_inside_a_run_the_key_is_the_same_at_every_attempt_and_differs_between_calls_and_runs() -> None:
    seen: list[str] = []

    @perdure.step(retry=perdure.Retry(attempts=2, delay_seconds=0))
    def flaky() -> str:
        seen.append(perdure.current().key)
        if len(seen) == 1:
            raise ValueError("once")
        return seen[-1]

    @perdure.agent
    def agent(label: str) -> list[str]:
        return [flaky(), effect(label), effect(label)]

    first, second = perdure.run(agent, "a"), perdure.run(agent, "b")
    assert seen[0] == seen[1]
    assert len({*first, *second}) == 6


def test_the_key_cannot_be_read_in_the_agent_itself() -> None:
    @perdure.agent
    def agent() -> str:
        with pytest.raises(NotInRun):
            _ = perdure.current().key
        return perdure.current().run_id

    assert perdure.run(agent, run_id="r") == "r"


def test_generators_are_refused_when_they_are_decorated() -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    for function in (generator, async_generator):
        for decorate in (perdure.step, perdure.effect, perdure.agent):
            with pytest.raises(UsageError, match=f"{function.__name__} is a generator"):
                decorate(function)


class Subclass(multiprocessing.process.BaseProcess):
    def run(self) -> None:
        _call_step()


class SpawnSubclass(Subclass, multiprocessing.get_context("spawn").Process):  # type: ignore[misc]
    pass


class ForkSubclass(Subclass, multiprocessing.get_context("fork").Process):  # type: ignore[misc]
    pass


def _call_step() -> None:
    """Steps in a child process are refused; the exit code says what happened instead."""
    try:
        step("in a child")
    except UsageError as error:
        os._exit(0 if "another process" in error.message else 1)
    except BaseException:  # noqa: BLE001 - the exit code is the answer
        os._exit(2)
    os._exit(3)


def _refusal() -> str:
    try:
        step("in a pool")
    except UsageError as error:
        return error.message
    return "not refused"


def _forked() -> int:
    pid = os.fork()
    if pid == 0:
        _call_step()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _process(process: Any) -> int:
    process.start()
    process.join()
    code: int = process.exitcode
    return code


CHILDREN: dict[str, Callable[[], int]] = {
    "os.fork": _forked,
    "fork": lambda: _process(multiprocessing.get_context("fork").Process(target=_call_step)),
    "spawn": lambda: _process(multiprocessing.get_context("spawn").Process(target=_call_step)),
    "fork subclass": lambda: _process(ForkSubclass()),
    "spawn subclass": lambda: _process(SpawnSubclass()),
}


@pytest.mark.parametrize("child", CHILDREN)
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_step_in_another_process_is_refused_and_the_run_unharmed(child: str) -> None:
    @perdure.agent
    def agent() -> int:
        step("before")
        code = CHILDREN[child]()
        step("after")
        return code

    assert perdure.run(agent, run_id="r") == 0
    assert world.lines == ["before", "after"]
    assert keys_of("r") == ["main.0", "main.1"]
    assert state_of("r") == "completed"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_recorded_step_is_refused_in_a_forked_child_as_any_other() -> None:
    @perdure.agent
    def agent() -> int:
        code = _forked() if world.lines else -1
        step("in a child")
        world.moment("recorded")
        return code

    world.killed_at("recorded", lambda: perdure.run(agent, run_id="r"))
    assert perdure.run(agent, run_id="r") == 0
    assert (world.lines, state_of("r")) == (["in a child"], "completed")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_step_in_a_process_pool_is_refused_and_the_pool_still_computes(method: str) -> None:
    @perdure.agent
    def agent() -> list[str]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context(method)) as pool:
                found = [pool.submit(_refusal).result(), *map(str, pool.map(abs, [-1, -2]))]
        step("after")
        return found

    found = perdure.run(agent, run_id="r")
    assert "another process" in found[0]
    assert found[1:] == ["1", "2"]
    assert state_of("r") == "completed"


def test_a_pool_that_outlives_the_run_serves_calls_outside_it() -> None:
    with (
        warnings.catch_warnings(),
        ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool,
    ):

        @perdure.agent
        def agent() -> str:
            return pool.submit(_refusal).result()

        assert "another process" in perdure.run(agent)
        assert pool.submit(_refusal).result() == "not refused"
