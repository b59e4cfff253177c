"""A run that is left to workers: accepted at once, executed elsewhere, its handle waits for it through the store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.engine.agent import resume, spec_of
from perdure.engine.child import child_id
from perdure.engine.session import session
from perdure.errors import DeliveriesExhausted, EffectInDoubt, RunCancelled, RunWaits, StepFailed, UsageError
from perdure.records import Kind, RunState
from perdure.worker import Limits, Worker
from tests.engine.journals import bodies_of, run_of, runs, state_of
from tests.engine.manual_clock import ManualClock
from tests.engine.world import world

HOUR_SECONDS = 3600.0
PATIENCE = 30.0


class Broken(Exception):
    """What an agent of these tests fails with."""


@perdure.step
def work(label: str) -> str:
    world.note(label)
    world.moment(label)
    return label


@perdure.effect
def send(label: str) -> str:
    world.moment(f"send {label}")
    return label


@perdure.agent
def plain(label: str) -> str:
    return work(label) + "!"


@perdure.agent(queue="mail", deliveries=1)
async def mailed(label: str) -> str:
    return work(label) + "!"


@perdure.agent
def breaks(label: str) -> str:
    work(label)
    if world.count("mended") == 0:
        raise Broken(f"no {label}", 7)
    return "mended"


@perdure.agent
def breaks_oddly() -> None:
    class Odd(Exception):
        pass

    raise Odd("beyond words")


@perdure.agent
def asks() -> str:
    return str(perdure.ask("Go on?", options=["on", "off"]).choice)


@perdure.agent
def sends() -> str:
    return send("mail")


@perdure.agent
def counts(number: int) -> int:
    if number < 3:
        perdure.restart_with(number + 1)
    return number


@perdure.agent
def parent(label: str) -> str:
    first = perdure.start(plain, f"{label} 1", queue="mail")
    second = perdure.start(plain, f"{label} 2", queue="mail", priority=3, tenant="other")
    work("both are started")
    return f"{first.result()} {second.result()}"


@perdure.agent
def parent_of_failure() -> str:
    return perdure.start(breaks, "x", queue="mail").result()


@perdure.agent
def parent_of_mailed() -> str:
    return perdure.start(mailed, "x").result()


@perdure.agent
def sleeper() -> str:
    perdure.sleep(HOUR_SECONDS)
    return work("slept") + "!"


@perdure.agent
def parent_of_sleeper() -> str:
    return perdure.start(sleeper, queue="mail").result()


AGENTS = (
    plain,
    mailed,
    breaks,
    breaks_oddly,
    asks,
    sends,
    counts,
    parent,
    parent_of_failure,
    parent_of_mailed,
    sleeper,
    parent_of_sleeper,
)


def worker(*queues: str, agents: tuple[Callable[..., Any], ...] = AGENTS) -> Worker:
    """A worker of this process that has everything it may take done before it returns."""
    known = {spec_of(agent).name: spec_of(agent) for agent in agents}
    made = Worker(session(), known, Limits(queues=queues))
    while made.moving() or made._look():  # noqa: SLF001 - one that works until it is told to drain is no use here
        made._changed.wait(0.01)  # noqa: SLF001
    return made


def worker_elsewhere() -> None:
    """The same in a process of its own."""
    assert world.elsewhere(worker) == 0


def test_run_with_a_queue_is_accepted_and_not_executed_here() -> None:
    handle = perdure.start(plain, "a", queue="mail", priority=-2, tenant="ada")
    run = run_of(handle.run_id)
    assert (run.state, run.epoch, run.queue, run.priority, run.tenant) == (RunState.QUEUED, 0, "mail", -2, "ada")
    assert handle.status() == "queued"
    assert handle.name == run.name
    assert world.lines == []


@pytest.mark.parametrize("placing", [{"queue": "mail"}, {"priority": 0}, {"tenant": "ada"}, {"delay": 0}])
def test_any_of_the_words_leaves_the_run_to_workers(placing: dict[str, Any]) -> None:
    assert perdure.start(plain, "a", **placing).status() == "queued"
    assert world.lines == []


def test_agent_with_a_queue_is_left_to_workers_by_start_and_executed_here_by_run() -> None:
    handle = perdure.start(mailed, "a")
    assert (handle.status(), run_of(handle.run_id).queue) == ("queued", "mail")
    assert perdure.run(mailed, "b") == "b!"
    assert world.lines == ["b"]


@perdure.agent
def urgent(label: str, priority: int = 1) -> str:
    return f"{label} {priority}"


def test_word_that_is_also_a_parameter_of_the_agent_is_refused_unless_its_own_is_passed_by_position() -> None:
    with pytest.raises(UsageError, match=r"priority is a parameter of .*urgent") as refused:
        perdure.start(urgent, "a", priority=5)
    assert "by position" in refused.value.hint
    assert runs() == []
    handle = perdure.start(urgent, "a", 2, priority=5)
    assert run_of(handle.run_id).priority == 5
    worker(agents=(urgent,))
    assert handle.result() == "a 2"


def test_without_a_queue_start_executes_here_as_ever() -> None:
    handle = perdure.start(plain, "a")
    assert handle.result() == "a!"
    assert run_of(handle.run_id).queue == "default"


def test_handle_gives_the_result_of_a_run_that_was_executed_elsewhere() -> None:
    handle = perdure.start(plain, "a", queue="mail")
    worker_elsewhere()
    assert handle.result() == "a!"
    assert handle.status() == "completed"
    assert handle.result(timeout=0) == "a!"


def test_handle_can_be_awaited_while_somebody_else_executes_the_run() -> None:
    handle = perdure.start(mailed, "a")

    async def both() -> str:
        _, value = await asyncio.gather(asyncio.to_thread(worker), handle)
        return str(value)

    assert asyncio.run(both()) == "a!"


def test_result_within_a_time_raises_when_that_is_over_and_the_run_goes_on() -> None:
    handle = perdure.start(plain, "a", queue="mail")
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.01)
    worker_elsewhere()
    assert handle.result() == "a!"


def test_failure_is_raised_with_its_class_and_arguments() -> None:
    handle = perdure.start(breaks, "a", queue="mail")
    worker_elsewhere()
    with pytest.raises(Broken) as raised:
        handle.result()
    assert raised.value.args == ("no a", 7)


def test_failure_of_a_class_that_cannot_be_named_says_what_it_was() -> None:
    handle = perdure.start(breaks_oddly, queue="mail")
    worker_elsewhere()
    with pytest.raises(StepFailed, match="Odd: beyond words"):
        handle.result()


def test_cancelled_run_raises_as_one_of_this_process_does() -> None:
    handle = perdure.start(plain, "a", queue="mail")
    handle.cancel()
    assert handle.status() == "cancelled"
    with pytest.raises(RunCancelled):
        handle.result()
    worker()
    assert world.lines == []


def test_question_is_waited_for_and_its_answer_gives_the_result() -> None:
    handle = perdure.start(asks, queue="mail")
    worker_elsewhere()
    assert handle.status() == "waiting (human)"
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.05)
    perdure.answer(handle.run_id, "on")
    worker_elsewhere()
    assert handle.result() == "on"


def test_effect_in_doubt_is_raised_and_once_settled_the_handle_goes_on() -> None:
    handle = perdure.start(sends, queue="mail")
    world.killed_at("send mail", worker)
    worker_elsewhere()
    with pytest.raises(EffectInDoubt, match="send") as raised:
        handle.result()
    assert "perdure settle" in raised.value.hint
    with pytest.raises(EffectInDoubt):
        asyncio.run(_awaited(handle))


def test_paused_run_is_waited_for() -> None:
    handle = perdure.start(plain, "a", queue="mail")
    perdure.pause(handle.run_id)
    worker()
    assert handle.status() == "waiting (parked)"
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.05)
    perdure.unpause(handle.run_id)
    worker()
    assert handle.result() == "a!"


def test_run_that_goes_on_as_another_is_followed_and_stays_in_its_queue() -> None:
    handle = perdure.start(counts, 0, queue="mail", tenant="ada", priority=4)
    worker()
    assert handle.result() == 3
    assert {(run.queue, run.tenant, run.priority) for run in runs()} == {("mail", "ada", 4)}
    assert len(runs()) == 4


def test_same_id_twice_is_one_run_and_another_call_under_it_is_refused() -> None:
    first = perdure.start(plain, "a", run_id="order-1", queue="mail")
    second = perdure.start(plain, "a", run_id="order-1", queue="mail")
    assert first.run_id == second.run_id == "order-1"
    assert len(runs()) == 1
    with pytest.raises(UsageError, match="belongs to another call"):
        perdure.start(plain, "b", run_id="order-1", queue="mail")
    worker()
    assert (first.result(), second.result()) == ("a!", "a!")
    assert perdure.start(plain, "a", run_id="order-1", queue="mail").result() == "a!"
    assert world.lines == ["a"]


def test_deliveries_of_the_agent_decide_when_it_is_parked() -> None:
    handle = perdure.start(mailed, "a")
    world.killed_at("a", worker)
    worker()
    with pytest.raises(DeliveriesExhausted, match="1 deliveries are allowed") as raised:
        handle.result()
    assert f"perdure resume {handle.name}" in raised.value.hint
    assert world.count("a") == 1


def test_worker_of_one_queue_leaves_the_others_alone() -> None:
    handles = [perdure.start(plain, name, queue=name) for name in ("mail", "bulk")]
    worker("bulk")
    assert [handle.status() for handle in handles] == ["queued", "completed"]
    worker("nobody's")
    assert handles[0].status() == "queued"
    worker("nobody's", "mail")
    assert handles[0].result() == "mail!"


def test_children_are_queued_for_any_worker_and_the_parent_makes_room_meanwhile() -> None:
    handle = perdure.start(parent, "p", run_id="p", queue="families", tenant="ada", priority=1)
    worker("families")
    assert state_of("p") == "waiting (child)"
    first, second = (run_of(child_id("p", f"main.{number}")) for number in range(2))
    assert [(run.state, run.queue, run.tenant, run.priority) for run in (first, second)] == [
        ("queued", "mail", "ada", 1),
        ("queued", "mail", "other", 3),
    ]
    assert world.elsewhere(lambda: worker("mail")) == 0
    worker("families")
    assert handle.result() == "p 1! p 2!"
    assert sorted(world.lines) == ["both are started", "p 1", "p 2"]


def test_queue_with_room_for_one_runs_a_parent_and_its_children() -> None:
    session().store.declare_queue(perdure.Queue("mail", concurrency=1).limits)
    handle = perdure.start(parent, "p", queue="mail")
    worker("mail")
    assert handle.result() == "p 1! p 2!"


def test_parent_leaves_its_place_to_a_queued_child_whose_sleep_is_over(manual_clock: ManualClock) -> None:
    session().store.declare_queue(perdure.Queue("mail", concurrency=1).limits)
    handle = perdure.start(parent_of_sleeper, run_id="p", queue="mail")
    worker("mail")
    assert (state_of("p"), state_of(child_id("p", "main.0"))) == ("waiting (child)", "waiting (time)")
    manual_clock.pass_seconds(HOUR_SECONDS)
    perdure.signal("p", "nothing")
    working = threading.Thread(target=worker, args=("mail",), daemon=True)
    working.start()
    working.join(PATIENCE)
    assert not working.is_alive()
    assert handle.result() == "slept!"


def test_run_in_this_process_waits_for_children_that_workers_execute() -> None:
    def execute_children() -> None:
        while not [run for run in runs() if run.state == RunState.WAITING]:
            pass
        worker("mail")

    async def both() -> str:
        _, value = await asyncio.gather(
            asyncio.to_thread(execute_children), asyncio.to_thread(perdure.run, parent, "p", run_id="p")
        )
        return str(value)

    assert asyncio.run(both()) == "p 1! p 2!"
    assert sorted(world.lines) == ["both are started", "p 1", "p 2"]


def test_child_of_an_agent_with_a_queue_is_left_to_workers() -> None:
    with pytest.raises(RunWaits, match="waits for its child"):
        resume(parent_of_mailed, run_of(perdure.start(parent_of_mailed, queue="up").run_id), waits=False)
    assert world.lines == []
    worker()
    assert world.lines == ["x"]


def test_failed_child_is_queued_anew_when_its_parent_is_attempted_anew() -> None:
    handle = perdure.start(parent_of_failure, run_id="p", queue="up")
    worker()
    with pytest.raises(Broken):
        handle.result()
    world.note("mended")
    with pytest.raises(RunWaits):
        resume(parent_of_failure, run_of("p"), waits=False)
    child = run_of(child_id("p", "main.0"))
    assert (child.state, child.queue, child.deliveries) == (RunState.QUEUED, "mail", 0)
    worker()
    assert handle.result() == "mended"
    assert world.count("x") == 1


def test_cancelled_parent_takes_its_queued_children_with_it() -> None:
    handle = perdure.start(parent, "p", run_id="p", queue="up")
    worker("up")
    handle.cancel()
    assert {run.state for run in runs()} == {RunState.CANCELLED}


def test_worker_that_dies_between_two_children_creates_none_twice() -> None:
    handle = perdure.start(parent, "p", run_id="p", queue="up")
    world.killed_at("both are started", worker)
    worker()
    assert handle.result() == "p 1! p 2!"
    assert len(runs()) == 3
    assert [body.delivery for body in bodies_of("p", Kind.DELIVERY)][:2] == [1, 2]


def test_run_by_name_passes_a_queue_that_is_full() -> None:
    session().store.declare_queue(perdure.Queue("one", concurrency=1, rate=perdure.Rate(1, per="1h")).limits)
    perdure.start(asks, queue="one")
    worker("one")
    second = perdure.start(plain, "b", queue="one")
    worker("one")
    assert second.status() == "queued"
    assert resume(plain, run_of(second.run_id)) == "b!"


def _awaited(handle: perdure.Handle[Any]) -> Any:
    async def waited() -> Any:
        return await handle

    return waited()
