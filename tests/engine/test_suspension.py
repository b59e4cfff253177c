"""A run suspends only when all its strands wait, and after a signal nothing more is performed."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import perdure
from perdure.engine.drive import WORKING_SECONDS
from perdure.engine.session import session
from perdure.errors import EffectInDoubt, RunSuspended, RunWaits
from tests.engine.journals import calls_of, records_of, state_of
from tests.engine.letters import open_effects, post
from tests.engine.world import world


@perdure.step
def work(label: str) -> str:
    world.note(label)
    return label


@perdure.step
async def work_async(label: str) -> str:
    await asyncio.sleep(0.002)
    world.note(label)
    return label


@perdure.effect
def send(to: str) -> str:
    world.note(f"sent to {to}")
    raise TimeoutError("no answer")


@perdure.effect
async def send_async(to: str) -> str:
    world.note(f"sent to {to}")
    raise TimeoutError("no answer")


@perdure.effect
def email(to: str) -> str:
    world.note(f"email to {to}")
    return to


async def long_strand(label: str) -> str:
    """Several steps, with agent code of its own between them."""
    for number in range(4):
        await asyncio.sleep(0.03)
        await work_async(f"{label} {number}")
    return label


def test_the_siblings_of_an_effect_in_doubt_finish_first() -> None:
    @perdure.agent
    async def agent() -> list[str]:
        return list(await asyncio.gather(send_async("ada"), long_strand("a"), long_strand("b")))

    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    assert sorted(world.lines) == sorted(["sent to ada", *(f"{label} {n}" for label in "ab" for n in range(4))])
    post("r", "happened", "told", name="send_async")
    before = world.lines
    assert perdure.run(agent, run_id="r") == ["told", "a", "b"]
    assert world.lines == before


def test_the_siblings_in_threads_finish_first_too() -> None:
    go_on = threading.Event()

    def sibling() -> str:
        go_on.wait(30)
        return work("sibling 1") + work("sibling 2")

    @perdure.effect
    def last() -> str:
        world.note("sent")
        go_on.set()
        raise TimeoutError("no answer")

    @perdure.agent
    def agent() -> list[str]:
        with ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(sibling), pool.submit(last)]
        return [future.result() for future in futures]

    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    assert world.lines == ["sent", "sibling 1", "sibling 2"]


def test_two_strands_in_doubt_are_named_together_and_the_run_suspends_once() -> None:
    @perdure.agent
    async def agent() -> list[str]:
        return list(await asyncio.gather(send_async("ada"), send_async("bob")))

    with pytest.raises(EffectInDoubt, match="and 1 more"):
        perdure.run(agent, run_id="r")
    assert open_effects("r") == ["send_async", "send_async"]
    assert [record.kind for record in records_of("r")].count("ended") == 1


def test_of_effects_in_doubt_the_first_that_began_is_named_and_the_command_is_about_that_one() -> None:
    later_failed = asyncio.Event()

    @perdure.effect
    async def pay(to: str) -> None:
        if to == "bob":
            later_failed.set()
        await later_failed.wait()
        if to == "ada":
            await asyncio.sleep(0)  # and so its doubt comes last
            await asyncio.sleep(0)
        raise TimeoutError(to)

    @perdure.agent
    async def agent() -> None:
        await asyncio.gather(pay("ada"), pay("bob"))

    with pytest.raises(EffectInDoubt) as caught:
        perdure.run(agent, run_id="r")
    intents = [record for record in records_of("r") if record.kind == "intent"]
    doubts = [record for record in records_of("r") if record.kind == "doubt"]
    assert [record.key for record in doubts] == [record.key for record in reversed(intents)]
    assert "pay(to='ada') and 1 more was started" in caught.value.message
    name = caught.value.message.split()[1].rstrip(":")
    assert f"perdure settle {name} 1 <" in caught.value.hint


def test_a_strand_that_waits_for_the_one_in_doubt_does_not_hold_the_run_up() -> None:
    @perdure.agent
    async def agent() -> str:
        sent = asyncio.Event()

        async def sender() -> None:
            await send_async("ada")
            sent.set()

        async def after() -> str:
            await sent.wait()
            return work("after")

        return (await asyncio.gather(sender(), after()))[1]

    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    assert world.lines == ["sent to ada"]


def test_a_sync_effect_in_doubt_on_an_event_loop_does_not_wait_for_strands_it_holds_up() -> None:
    started = asyncio.Event()

    @perdure.step
    async def slow() -> str:
        started.set()
        await asyncio.sleep(3600)
        return "never"

    async def sender() -> str:
        await started.wait()
        return send("ada")

    @perdure.agent
    async def agent() -> list[str]:
        return list(await asyncio.gather(slow(), sender()))

    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    assert state_of("r") == "waiting (in_doubt)"


def test_after_a_signal_the_finally_of_an_agent_performs_nothing() -> None:
    @perdure.agent
    def agent() -> str:
        try:
            return send("ada")
        finally:
            work("cleanup")
            email("ops")

    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    assert world.lines == ["sent to ada"]
    assert [kind for kind, _, _ in calls_of("r")] == ["intent", "doubt"]


def test_an_except_exception_does_not_see_the_signal() -> None:
    @perdure.agent
    def agent() -> str:
        try:
            return send("ada")
        except Exception:  # noqa: BLE001 - what agent frameworks do
            world.note("took it for a failure")
            return email("ops")

    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    assert world.lines == ["sent to ada"]


def test_an_agent_that_swallows_everything_performs_nothing_more_and_does_not_complete() -> None:
    raised: list[str] = []

    @perdure.agent
    async def agent() -> str:
        for call in (lambda: send("ada"), lambda: email("ops"), lambda: work("more"), lambda: perdure.patched("x")):
            try:
                call()
            except BaseException as error:  # noqa: BLE001 - the worst an agent can do
                raised.append(type(error).__name__)
        try:
            await work_async("async")
        except BaseException as error:  # noqa: BLE001
            raised.append(type(error).__name__)
        return "went on"

    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    assert raised == ["RunSuspended"] * 5
    assert world.lines == ["sent to ada"]
    assert state_of("r") == "waiting (in_doubt)"


def test_an_agent_that_raises_something_else_after_a_signal_has_not_failed() -> None:
    @perdure.agent
    def agent() -> str:
        try:
            return send("ada")
        except RunSuspended:
            raise ValueError("of its own") from None

    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    assert state_of("r") == "waiting (in_doubt)"


def test_a_task_group_is_suspended_as_one() -> None:
    @perdure.agent
    async def agent() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(send_async("ada"))
            group.create_task(long_strand("a"))

    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    assert world.count("a 3") == 1


def test_an_effect_cancelled_in_its_body_is_in_doubt_and_the_run_does_not_complete() -> None:
    @perdure.effect
    async def slow(to: str) -> str:
        world.note(f"sent to {to}")
        await asyncio.Event().wait()
        return "never"

    @perdure.agent
    async def agent() -> str:
        try:
            return await asyncio.wait_for(slow("ada"), 0.05)
        except TimeoutError:
            return work("gave up")

    with pytest.raises(EffectInDoubt, match="cancelled while it was performed"):
        perdure.run(agent, run_id="r")
    assert open_effects("r") == ["slow"]
    assert world.lines == ["sent to ada"]
    assert state_of("r") == "waiting (in_doubt)"


def test_a_run_cancelled_by_its_caller_leaves_its_effect_in_doubt_and_can_be_resumed() -> None:
    @perdure.effect
    async def slow(to: str) -> str:
        world.note(f"sent to {to}")
        begun.set()
        await asyncio.Event().wait()
        return "never"

    @perdure.agent
    async def agent() -> str:
        return await slow("ada")

    begun = asyncio.Event()

    async def cancelled() -> None:
        task = asyncio.create_task(agent())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    (run,) = session().store.list_runs()
    assert (run.state, run.reason) == ("waiting", "in_doubt")
    assert open_effects(run.run_id) == ["slow"]
    post(run.run_id, "happened", "told", name="slow")
    assert asyncio.run(agent()) == "told"
    assert world.lines == ["sent to ada"]


def test_a_step_still_running_when_the_run_ends_adds_nothing_to_its_journal() -> None:
    go_on = threading.Event()
    ended = threading.Event()

    @perdure.step
    def slow() -> str:
        go_on.wait(30)
        return "late"

    def background() -> None:
        try:
            slow()
        finally:
            ended.set()

    @perdure.agent
    def agent() -> str:
        threading.Thread(target=background).start()
        return "the result"

    assert perdure.run(agent, run_id="r") == "the result"
    go_on.set()
    assert ended.wait(30)
    assert [record.kind for record in records_of("r")] == ["started", "delivery", "ended"]
    assert perdure.run(agent, run_id="r") == "the result"


def test_an_effect_still_being_performed_when_the_agent_returns_is_waited_for() -> None:
    begun = threading.Event()
    go_on = threading.Event()

    @perdure.effect
    def slow() -> str:
        begun.set()
        go_on.wait(30)
        return "late"

    @perdure.agent
    def agent() -> str:
        threading.Thread(target=slow).start()
        begun.wait(30)
        threading.Thread(target=go_on.set).start()
        return "the result"

    assert perdure.run(agent, run_id="r") == "the result"
    assert [kind for kind, _, _ in calls_of("r")] == ["intent", "receipt"]


@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.5])
def test_agent_code_that_works_on_its_own_keeps_the_run_in_memory(seconds: float) -> None:
    """However long the agent sleeps beside a branch that asks: what it does then is done before the run waits."""

    async def asks() -> str:
        return (await perdure.ask("Send this?", options=["yes"])).choice

    @perdure.agent
    async def agent() -> str:
        task = asyncio.create_task(asks())
        await asyncio.sleep(seconds)
        work("beside")
        return await task

    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    assert world.lines == ["beside"]
    perdure.answer("r", "yes")
    assert perdure.run(agent, run_id="r") == "yes"
    assert world.lines == ["beside"]


@pytest.mark.parametrize("seconds", [0.0, 0.3, 1.5])
def test_a_thread_that_asks_does_not_cut_off_the_agent_that_works_beside_it(seconds: float) -> None:
    answers = []

    def asks() -> None:
        answers.append(perdure.ask("Send this?", options=["yes"]).choice)

    @perdure.agent
    def agent() -> str:
        thread = threading.Thread(target=asks)
        thread.start()
        time.sleep(seconds)
        work("beside")
        thread.join()
        work("after")
        return "done"

    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    assert world.lines == ["beside"]
    perdure.answer("r", "yes")
    assert perdure.run(agent, run_id="r") == "done"
    assert world.lines == ["beside", "after"]
    assert answers == ["yes"]


def test_branches_in_a_pool_that_is_too_small_for_them_wait_all_the_same() -> None:
    def asks(number: int) -> str:
        return perdure.ask(f"Send {number}?", options=["yes"]).choice

    @perdure.agent
    def agent() -> list[str]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(asks, range(4)))

    with pytest.raises(RunWaits, match=r"Send [01]\?"):
        perdure.run(agent, run_id="r")


def test_an_agent_that_blocks_its_loop_for_a_pool_waits_with_it() -> None:
    def asks(number: int) -> str:
        return perdure.ask(f"Send {number}?", options=["yes"]).choice

    @perdure.agent
    async def agent() -> list[str]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(asks, range(2)))

    started = time.monotonic()
    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    assert time.monotonic() - started < WORKING_SECONDS  # it was seen to wait, not given up on


@contextmanager
def crowded() -> Iterator[int]:
    """A processor that somebody else keeps busy."""
    processor = min(os.sched_getaffinity(0))
    spin = f"import os; os.sched_setaffinity(0, {{{processor}}}); print(flush=True)\nwhile True: pass"
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            yield processor
        finally:
            other.kill()


def asked() -> int:
    return len([record for record in records_of("r") if record.kind == "wait"])


@pytest.mark.skipif(sys.platform != "linux", reason="only there a thread has a priority of its own")
def test_a_strand_that_may_go_on_and_is_not_given_the_processor_is_waited_for() -> None:
    told, everywhere = threading.Condition(), os.sched_getaffinity(0)

    def starved() -> None:
        with told:
            assert told.wait(60)
        set_apart(0, os.SCHED_OTHER, everywhere)
        perdure.ask("Starved?")

    def set_apart(thread: int, policy: int, processors: set[int]) -> None:
        os.sched_setscheduler(thread, policy, os.sched_param(0))
        os.sched_setaffinity(thread, processors)

    @perdure.agent
    def agent() -> None:
        thread = threading.Thread(target=starved)
        thread.start()
        while not told._waiters:  # type: ignore[attr-defined]  # noqa: SLF001 - when it waits, not when it is about to
            time.sleep(0.001)
        set_apart(thread.native_id or 0, os.SCHED_IDLE, {processor})
        with told:
            told.notify()
        perdure.ask("Other?")

    with crowded() as processor, pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    assert asked() == 2


def test_a_strand_that_is_about_to_begin_is_waited_for() -> None:
    @perdure.agent
    def agent() -> None:
        thread = threading.Thread(target=perdure.ask, args=("One?",))
        thread.start()
        with ThreadPoolExecutor(1, initializer=time.sleep, initargs=(0.3,)) as pool:
            pool.submit(perdure.ask, "Another?").result()
        thread.join()

    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    assert asked() == 2


def test_a_strand_that_is_over_and_has_not_told_its_caller_is_waited_for() -> None:
    async def asks(text: str) -> None:
        await perdure.ask(text)

    async def asks_after(over: Future[None]) -> None:
        await asyncio.gather(asyncio.wrap_future(over))
        await perdure.ask("Another?")

    @perdure.agent
    async def agent() -> None:
        with ThreadPoolExecutor(1) as pool:
            over = pool.submit(time.sleep, 0.05)
            over.add_done_callback(lambda _: time.sleep(0.3))
            await asyncio.gather(asks("One?"), asks_after(over))

    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    assert asked() == 2


def test_a_strand_taken_back_out_of_its_pool_holds_nothing_up() -> None:
    def asks() -> str:
        return perdure.ask("Send this?", options=["yes"]).choice

    @perdure.agent
    def agent() -> str:
        go_on = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            first, second = pool.submit(go_on.wait, 30), pool.submit(asks)
            assert second.cancel()
            go_on.set()
            assert first.result()
            return pool.submit(asks).result()

    started = time.monotonic()
    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    assert time.monotonic() - started < WORKING_SECONDS
    perdure.answer("r", "yes")
    assert perdure.run(agent, run_id="r") == "yes"


def test_a_strand_that_awaits_something_unknown_is_not_waited_for_for_ever() -> None:
    @perdure.agent
    async def agent() -> str:
        answered: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def asks() -> None:
            answered.set_result((await perdure.ask("Send this?", options=["yes"])).choice)

        async def after() -> str:
            return await answered

        return (await asyncio.gather(asks(), after()))[1]

    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    perdure.answer("r", "yes")
    assert perdure.run(agent, run_id="r") == "yes"
