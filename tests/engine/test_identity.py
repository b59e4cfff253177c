"""A call is known by its scope and its index there, whatever the timing, the thread and the Python."""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import perdure
from tests.engine.journals import calls_of, keys_of, state_of
from tests.engine.world import world


@perdure.step
def note(label: str) -> str:
    world.note(label)
    return label


@perdure.step
async def note_async(label: str) -> str:
    world.note(label)
    return label


def test_calls_of_a_sync_agent_are_numbered_in_order() -> None:
    @perdure.agent
    def agent() -> list[str]:
        return [note(label) for label in "abc"]

    assert perdure.run(agent, run_id="r") == ["a", "b", "c"]
    assert calls_of("r") == [("step", f"main.{n}", "note") for n in range(3)]


def test_the_key_is_taken_at_the_call_and_not_when_it_is_awaited() -> None:
    @perdure.agent
    async def agent() -> list[str]:
        first, second = note_async("first"), note_async("second")
        return [await second, await first]

    assert perdure.run(agent, run_id="r") == ["second", "first"]
    assert keys_of("r") == ["main.1", "main.0"]


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_order_in_which_strands_finish_changes_no_key(order: tuple[int, ...]) -> None:
    @perdure.agent
    async def agent() -> list[str]:
        turns = [asyncio.Event() for _ in range(3)]
        turns[order[0]].set()

        async def strand(number: int) -> str:
            await turns[number].wait()
            label = await note_async(f"strand {number}")
            label += note(" twice")
            place = order.index(number) + 1
            if place < len(order):
                turns[order[place]].set()
            return label

        return list(await asyncio.gather(*(strand(number) for number in range(3))))

    name = "test_the_order_in_which_strands_finish_changes_no_key.<locals>.agent.<locals>.strand"
    assert perdure.run(agent, run_id="r") == [f"strand {n} twice" for n in range(3)]
    assert keys_of("r") == [f"main/{name}#{n}.{call}" for n in order for call in range(2)]


def test_a_task_created_by_a_coroutine_under_wait_for_opens_its_own_scope_on_every_python() -> None:
    @perdure.agent
    async def agent() -> str:
        return await asyncio.wait_for(outer(), 60)

    async def outer() -> str:
        await note_async("outer")
        return await asyncio.get_running_loop().create_task(inner())

    async def inner() -> str:
        return await note_async("inner")

    perdure.run(agent, run_id="r")
    name = "test_a_task_created_by_a_coroutine_under_wait_for_opens_its_own_scope_on_every_python.<locals>.inner"
    assert keys_of("r") == ["main.0", f"main/{name}#0.0"]


def test_wait_for_of_a_coroutine_opens_no_scope_on_any_python() -> None:
    @perdure.agent
    async def agent() -> list[str]:
        async def inner() -> str:
            return await note_async("inner")

        return [
            await asyncio.wait_for(inner(), 60),
            await asyncio.wait_for(note_async("step"), 60),
            await asyncio.wait_for(asyncio.wait_for(inner(), 60), None),
        ]

    perdure.run(agent, run_id="r")
    assert keys_of("r") == ["main.0", "main.1", "main.2"]


def test_an_event_loop_inside_a_sync_agent_opens_scopes_too() -> None:
    @perdure.agent
    def agent() -> list[str]:
        async def strand(number: int) -> str:
            await asyncio.sleep(0)
            return await note_async(f"{number}")

        async def both() -> list[str]:
            note("own")
            return list(await asyncio.gather(strand(0), strand(1)))

        return asyncio.run(both())

    assert perdure.run(agent, run_id="r") == ["0", "1"]
    name = "test_an_event_loop_inside_a_sync_agent_opens_scopes_too.<locals>.agent.<locals>.strand"
    assert sorted(keys_of("r")) == ["main.0", f"main/{name}#0.0", f"main/{name}#1.0"]


def test_nothing_inside_a_step_body_counts() -> None:
    @perdure.step
    async def busy() -> str:
        note("plain")
        tasks = asyncio.gather(note_async("a"), asyncio.create_task(note_async("b")), asyncio.to_thread(note, "c"))
        await tasks
        thread = threading.Thread(target=note, args=("d",))
        thread.start()
        thread.join()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(note, "e").result()
        await asyncio.get_running_loop().run_in_executor(None, note, "f")
        return "busy"

    @perdure.agent
    async def agent() -> str:
        await busy()
        return await asyncio.create_task(note_async("after"))

    perdure.run(agent, run_id="r")
    assert calls_of("r") == [("step", "main.0", "busy"), ("step", "main.1", "note_async")]
    assert set(world.lines) == {"plain", "a", "b", "c", "d", "e", "f", "after"}


def test_a_strand_in_which_nothing_is_recorded_leaves_no_trace() -> None:
    @perdure.agent
    async def agent() -> str:
        await asyncio.gather(asyncio.sleep(0), asyncio.to_thread(str, 1))
        return note("only")

    perdure.run(agent, run_id="r")
    assert calls_of("r") == [("step", "main.0", "note")]


def test_strands_with_the_same_name_are_told_apart_by_their_occurrence() -> None:
    @perdure.agent
    def agent() -> list[str]:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(note, "submitted")
            mapped = list(pool.map(note, ["map 0", "map 1"]))
        return [first.result(), *mapped]

    perdure.run(agent, run_id="r")
    assert keys_of("r") == ["main/note#0.0", "main/note#1.0", "main/note#2.0"]


def test_a_function_submitted_with_a_context_of_its_own_keeps_its_name_and_that_context() -> None:
    colour = contextvars.ContextVar("colour", default="none")

    def coloured() -> str:
        return note(colour.get())

    @perdure.agent
    def agent() -> str:
        colour.set("green")
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(contextvars.copy_context().run, coloured).result()

    assert perdure.run(agent, run_id="r") == "green"
    name = "test_a_function_submitted_with_a_context_of_its_own_keeps_its_name_and_that_context.<locals>.coloured"
    assert keys_of("r") == [f"main/{name}#0.0"]


def test_a_thread_subclass_is_named_by_its_run() -> None:
    class Worker(threading.Thread):
        def run(self) -> None:
            note("worked")

    @perdure.agent
    def agent() -> None:
        worker = Worker()
        worker.start()
        worker.join()

    perdure.run(agent, run_id="r")
    assert keys_of("r") == [
        "main/test_a_thread_subclass_is_named_by_its_run.<locals>.Worker.run#0.0",
    ]


def test_threads_of_two_runs_at_once_stay_in_their_own_run() -> None:
    both = threading.Barrier(2)

    @perdure.agent
    def agent(label: str) -> str:
        both.wait(30)
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(note, label).result()

    handles = [perdure.start(agent, label, run_id=label) for label in ("x", "y")]
    assert [handle.result(30) for handle in handles] == ["x", "y"]
    assert [keys_of(label) for label in ("x", "y")] == [["main/note#0.0"]] * 2


def test_threads_and_executors_are_as_they_were_once_no_run_is_active() -> None:
    before = (threading.Thread.start, ThreadPoolExecutor.submit, asyncio.BaseEventLoop.run_forever)

    @perdure.agent
    def agent() -> None:
        assert threading.Thread.start is not before[0]

    perdure.run(agent)
    assert (threading.Thread.start, ThreadPoolExecutor.submit, asyncio.BaseEventLoop.run_forever) == before


def test_a_resumed_run_finds_every_strand_again() -> None:
    @perdure.agent
    async def agent() -> list[str]:
        async def strand(number: int) -> str:
            return await note_async(f"task {number}") + note(f"sync {number}")

        found = list(await asyncio.gather(strand(0), strand(1)))
        found.append(await asyncio.to_thread(note, "thread"))
        world.moment("before the end")
        return found

    world.killed_at("before the end", lambda: perdure.run(agent, run_id="r"))
    before = world.lines
    assert perdure.run(agent, run_id="r") == ["task 0sync 0", "task 1sync 1", "thread"]
    assert world.lines == before
    assert state_of("r") == "completed"


def test_an_explicit_key_takes_no_index() -> None:
    @perdure.step(key=lambda label: f"k-{label}")
    def named(label: str) -> str:
        return label

    @perdure.agent
    def agent() -> str:
        return note("a") + named("b") + note("c")

    perdure.run(agent, run_id="r")
    assert keys_of("r") == ["main.0", "=named:k-b", "main.1"]


def test_explicitly_keyed_calls_may_come_in_any_order() -> None:
    order = ["a", "b", "c"]

    @perdure.step(key=lambda label: label)
    def named(label: str) -> str:
        world.note(label)
        return label

    @perdure.agent
    def agent() -> str:
        for label in order:
            named(label)
        world.moment("before the end")
        return "done"

    world.killed_at("before the end", lambda: perdure.run(agent, run_id="r"))
    order.reverse()
    assert perdure.run(agent, run_id="r") == "done"
    assert world.lines == ["a", "b", "c"]
