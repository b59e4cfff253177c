"""Which run a call means: a new one, the one that was interrupted, or the result of one that completed."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass

import pytest

import perdure
from perdure.engine.session import close_sessions, session
from perdure.errors import RunCancelled, RunHeld, UsageError
from perdure.events import Observable, RunPassedOver, RunResumed
from perdure.records import Kind, Run
from perdure.status import Commands, status_of
from tests.engine.journals import bodies_of, newest_run, run_of, runs, state_of
from tests.engine.manual_clock import ManualClock
from tests.engine.world import world


@dataclass
class Flight:
    number: str
    seats: int = 1


@perdure.step
def work(label: str) -> str:
    world.note(label)
    return label


@perdure.agent
def agent(label: str) -> str:
    first = work(f"{label} 1")
    world.moment("between")
    return first + work(f"{label} 2")


def kill(label: str, run_id: str | None = None) -> None:
    world.killed_at("between", lambda: perdure.run(agent, label, run_id=run_id))


def test_the_same_id_and_arguments_return_the_recorded_result() -> None:
    assert perdure.run(agent, "a", run_id="r") == "a 1a 2"
    assert perdure.run(agent, "a", run_id="r") == "a 1a 2"
    assert world.lines == ["a 1", "a 2"]


def test_the_same_id_with_other_arguments_is_refused() -> None:
    perdure.run(agent, "a", run_id="r")
    with pytest.raises(UsageError, match=r"'r' belongs to another call") as caught:
        perdure.run(agent, "b", run_id="r")
    assert "label='b'" in caught.value.message
    assert "another run_id" in caught.value.hint
    assert world.lines == ["a 1", "a 2"]


def test_the_same_id_with_another_agent_is_refused() -> None:
    @perdure.agent
    def other(label: str) -> str:
        return work(label)

    perdure.run(agent, "a", run_id="r")
    with pytest.raises(UsageError, match="belongs to another call"):
        perdure.run(other, "a", run_id="r")


def test_an_id_that_is_taken_cannot_be_started_afresh() -> None:
    perdure.run(agent, "a", run_id="r")
    with pytest.raises(UsageError, match="is taken by run"):
        perdure.run(agent, "a", run_id="r", fresh=True)


@pytest.mark.parametrize("run_id", ["", " r", "r\n", "x" * 201, "a\x00b"])
def test_an_id_nobody_could_type_is_refused(run_id: str) -> None:
    with pytest.raises(UsageError, match="is not usable") as refused:
        perdure.run(agent, "a", run_id=run_id)
    assert refused.value.safe == "nothing was started."
    assert runs() == []


def test_the_interrupted_run_of_the_same_call_is_resumed() -> None:
    kill("a")
    assert perdure.run(agent, "a") == "a 1a 2"
    assert world.lines == ["a 1", "a 2"]
    assert len(runs()) == 1


def test_other_arguments_are_another_run() -> None:
    kill("a")
    assert perdure.run(agent, "b") == "b 1b 2"
    assert [run.state for run in runs()] == ["completed", "running"]


def test_the_newest_interrupted_run_is_the_one_resumed() -> None:
    kill("a", "older")
    kill("a", "newer")
    perdure.run(agent, "a")
    assert (state_of("newer"), run_of("older").state) == ("completed", "running")


def test_a_completed_run_is_not_resumed_but_a_new_one_started() -> None:
    perdure.run(agent, "a")
    perdure.run(agent, "a")
    assert len(runs()) == 2
    assert world.lines == ["a 1", "a 2"] * 2


def test_fresh_starts_over() -> None:
    kill("a")
    assert perdure.run(agent, "a", fresh=True) == "a 1a 2"
    assert world.lines == ["a 1", "a 1", "a 2"]
    assert len(runs()) == 2


def test_a_run_that_a_thread_of_this_process_executes_is_not_robbed() -> None:
    begun, go_on = threading.Event(), threading.Event()

    @perdure.agent
    def slow(label: str) -> str:
        begun.set()
        go_on.wait(30)
        return work(label)

    handle = perdure.start(slow, "a", run_id="first")
    assert begun.wait(30)
    with pytest.raises(RunHeld, match=f"is held by worker .* pid {os.getpid()}"):
        perdure.run(slow, "a", run_id="first")
    go_on.set()
    assert perdure.run(slow, "a") == "a"
    assert handle.result(30) == "a"
    assert len(runs()) == 2


def test_a_run_that_a_live_process_executes_is_not_robbed() -> None:
    ready, go_on = os.pipe(), os.pipe()

    @perdure.step
    def waits(label: str) -> str:
        if os.getpid() != parent:
            os.write(ready[1], b"!")
            os.read(go_on[0], 1)
        world.note(f"{label} by {'parent' if os.getpid() == parent else 'child'}")
        return label

    @perdure.agent
    def slow(label: str) -> str:
        return waits(label)

    parent = os.getpid()
    child = threading.Thread(target=lambda: world.elsewhere(lambda: perdure.run(slow, "a", run_id="first")))
    child.start()
    os.read(ready[0], 1)
    with pytest.raises(RunHeld, match="is held by worker"):
        perdure.run(slow, "a", run_id="first")
    assert perdure.run(slow, "a") == "a"
    os.write(go_on[1], b"!")
    child.join()
    assert world.lines == ["a by parent", "a by child"]
    assert [run.state for run in runs()] == ["completed", "completed"]
    for descriptor in (*ready, *go_on):
        os.close(descriptor)


def test_of_threads_that_make_an_interrupted_call_at_once_one_resumes_it_and_each_has_a_run_of_its_own() -> None:
    kill("a")
    together = threading.Barrier(8)
    found: list[str] = []

    def one() -> None:
        together.wait(30)
        found.append(perdure.run(agent, "a"))

    threads = [threading.Thread(target=one) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == ["a 1a 2"] * 8
    assert [run.state for run in runs()] == ["completed"] * 8
    assert world.count("a 1") == 8


def test_a_run_left_alone_for_a_day_is_named_and_not_resumed(manual_clock: ManualClock, seen: list[Observable]) -> None:
    kill("a", "old")
    manual_clock.pass_seconds(24 * 3600 + 1)
    assert perdure.run(agent, "a") == "a 1a 2"
    passed = [event for event in seen if isinstance(event, RunPassedOver)]
    assert [event.run_id for event in passed] == ["old"]
    assert run_of("old").state == "running"
    assert world.lines == ["a 1", "a 1", "a 2"]


def test_a_run_asked_for_by_its_id_is_resumed_at_any_age(manual_clock: ManualClock) -> None:
    kill("a", "old")
    manual_clock.pass_seconds(365 * 24 * 3600)
    assert perdure.run(agent, "a", run_id="old") == "a 1a 2"
    assert world.lines == ["a 1", "a 2"]


def test_a_resumed_run_says_what_was_not_repeated(seen: list[Observable]) -> None:
    kill("a")
    perdure.run(agent, "a")
    (resumed,) = [event for event in seen if isinstance(event, RunResumed)]
    assert resumed.steps == 1
    assert "its process died" in resumed.before


def test_every_way_of_writing_one_call_is_the_same_call() -> None:
    @perdure.agent
    def written(first: int, second: int = 2, *, third: str = "x") -> str:
        return work(f"{first} {second} {third}")

    for args, kwargs in (
        ((1,), {}),
        ((1, 2), {}),
        ((1,), {"third": "x"}),
        ((), {"second": 2, "first": 1}),
        ((1, 2), {"third": "x"}),
    ):
        assert perdure.run(written, *args, run_id="r", **kwargs) == "1 2 x"
    assert world.lines == ["1 2 x"]


def test_arguments_reach_the_agent_as_its_annotations_say_at_the_first_run_too() -> None:
    @perdure.agent
    def typed(flight: Flight, *others: Flight, at: tuple[int, ...] = (), **named: Flight) -> list[str]:
        found = [repr(flight), repr(others), repr(at), repr(named)]
        world.note(" ".join(found))
        world.moment("typed")
        return found

    def start() -> list[str]:
        return perdure.run(typed, Flight("LH 1"), Flight("LH 2", 2), at=(1, 2), back=Flight("LH 3"), run_id="r")

    world.killed_at("typed", start)
    expected = [
        "Flight(number='LH 1', seats=1)",
        "(Flight(number='LH 2', seats=2),)",
        "(1, 2)",
        "{'back': Flight(number='LH 3', seats=1)}",
    ]
    assert start() == expected
    assert world.lines == [" ".join(expected)] * 2


def test_an_agent_cannot_change_the_arguments_a_replay_will_see() -> None:
    @perdure.agent
    def changes(items: list[str]) -> list[str]:
        items.append(work("appended"))
        world.moment("appended")
        return items

    mine = ["first"]
    world.killed_at("appended", lambda: perdure.run(changes, mine, run_id="r"))
    assert perdure.run(changes, mine, run_id="r") == ["first", "appended"]
    assert mine == ["first"]


def test_a_result_comes_back_as_annotated_now_and_later() -> None:
    @perdure.agent
    def books() -> Flight:
        return Flight("LH 1", 3)

    assert perdure.run(books, run_id="r") == Flight("LH 1", 3)
    assert perdure.run(books, run_id="r") == Flight("LH 1", 3)


def test_run_inside_an_event_loop_is_refused_with_what_to_write_instead() -> None:
    @perdure.agent
    async def quick() -> str:
        return work("quick")

    async def main() -> str:
        with pytest.raises(UsageError, match="inside a running event loop") as caught:
            perdure.run(quick)
        assert "await quick(…)" in caught.value.hint
        return await quick()

    assert asyncio.run(main()) == "quick"
    assert len(runs()) == 1


def test_a_function_that_is_no_agent_is_refused() -> None:
    with pytest.raises(UsageError, match="plain is not an agent") as caught:
        perdure.run(_plain)
    assert "@perdure.agent" in caught.value.hint


def _plain() -> None: ...


_plain.__qualname__ = "plain"


def test_an_accepted_run_is_committed_when_start_returns() -> None:
    go_on = threading.Event()

    @perdure.agent
    def slow() -> str:
        go_on.wait(30)
        return work("done")

    handle = perdure.start(slow, run_id="r")
    assert bodies_of("r", Kind.STARTED)[0].agent.endswith("slow")
    assert handle.run_id == "r"
    assert handle.name == run_of("r").name
    go_on.set()
    assert handle.result(30) == "done"
    assert handle.status() == "completed"


def test_a_handle_can_be_awaited_and_raises_what_the_run_raised() -> None:
    @perdure.agent
    async def good() -> str:
        return work("good")

    @perdure.agent
    def bad() -> str:
        raise ValueError("bad")

    async def main() -> str:
        with pytest.raises(ValueError, match="bad"):
            await perdure.start(bad)
        return await perdure.start(good)

    assert asyncio.run(main()) == "good"


def test_a_run_that_ended_while_it_was_looked_at_did_not_die() -> None:
    """Whoever looks reads the run, then its process: both may have ended, in good order, between the two."""
    rows: list[Run] = []

    @perdure.agent
    def quick() -> str:
        rows.append(run_of("r"))
        return work("done")

    perdure.run(quick, run_id="r")
    close_sessions()
    status = status_of(session().store, rows[0], Commands())
    assert (rows[0].state, status.state) == ("running", "completed")


def test_who_stops_waiting_for_a_handle_does_not_end_it_for_others() -> None:
    go_on = threading.Event()

    @perdure.agent
    def slow() -> str:
        go_on.wait(30)
        return work("done")

    handle = perdure.start(slow, run_id="r")

    async def impatient() -> None:
        waiting = asyncio.ensure_future(handle)
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(impatient())
    go_on.set()
    assert handle.result(30) == "done"


def test_a_cancelled_run_ends_at_its_next_call_and_is_not_started_again() -> None:
    begun, go_on = threading.Event(), threading.Event()

    @perdure.step
    def blocks() -> str:
        begun.set()
        go_on.wait(30)
        return "first"

    @perdure.agent
    def slow() -> str:
        return blocks() + work("second")

    handle = perdure.start(slow, run_id="r")
    assert begun.wait(30)
    handle.cancel()
    go_on.set()
    with pytest.raises(RunCancelled):
        handle.result(30)
    assert handle.status() == "cancelled"
    assert world.lines == []
    with pytest.raises(UsageError, match="was cancelled"):
        perdure.run(slow, run_id="r")
    assert all(mail.taken for mail in session().store.read_mail("r"))


def test_a_run_cancelled_before_it_is_held_never_begins() -> None:
    kill("a", "r")
    handle = perdure.Handle(run_of("r"), None)  # type: ignore[arg-type, var-annotated]
    handle.cancel()
    assert newest_run().state == "cancelled"
    with pytest.raises(UsageError, match="was cancelled"):
        perdure.run(agent, "a", run_id="r")
    assert world.lines == ["a 1"]
