"""An agent started inside a run is a run of its own: accepted once, waited for durably, its outcome kept above it."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.engine.child import ForChild, child_id
from perdure.engine.session import close_sessions
from perdure.errors import RunCancelled, RunWaits, StepFailed, UsageError
from perdure.records import Kind, RunState
from perdure.store.lease import read_park
from tests.engine.journals import bodies_of, newest_run, records_of, run_of, runs, state_of
from tests.engine.manual_clock import ManualClock
from tests.engine.world import world
from tests.waits.watching import watching

FIRST, SECOND, THIRD = (child_id("r", f"main.{number}") for number in range(3))


class Broken(Exception):
    """What the children of these tests fail with."""


@perdure.step
def work(label: str) -> str:
    world.note(label)
    world.moment(label)
    return label


@perdure.agent
def child(label: str) -> str:
    world.moment("inside the child")
    return work(f"child {label}") + "!"


@perdure.agent
async def child_async(label: str) -> str:
    await asyncio.sleep(0)
    return work(f"child {label}") + "!"


@perdure.agent
def breaks(label: str) -> str:
    work(f"before {label}")
    if world.count("mended") == 0:
        raise Broken(f"no {label}", 7)
    return work(f"after {label}")


@perdure.agent
def asks(label: str) -> str:
    work(f"asking {label}")
    choice = perdure.ask(f"Send {label}?", options=["send", "drop"]).choice
    return work(f"{choice} {label}")


@perdure.agent
def parent(label: str) -> str:
    found = perdure.start(child, label).result()
    return work(f"parent {found}")


@perdure.agent
async def parent_async(label: str) -> str:
    found = await perdure.start(child_async, label)
    return work(f"parent {found}")


@perdure.agent
async def mixed(label: str) -> str:
    """An async agent with a sync child."""
    return work(f"parent {await perdure.start(child, label)}")


@perdure.agent
def mixed_sync(label: str) -> str:
    """A sync agent with an async child."""
    return work(f"parent {perdure.start(child_async, label).result()}")


@perdure.agent
def waits_for_asks(label: str) -> str:
    found = perdure.start(asks, label).result()
    return work(f"parent of {found}")


@perdure.agent
async def waits_for_asks_async(label: str) -> str:
    found = await perdure.start(asks, label)
    return work(f"parent of {found}")


ASKING = [waits_for_asks, waits_for_asks_async]


# ---------------------------------------------------------------------------------------------------------- results


@pytest.mark.parametrize("chosen", [parent, parent_async, mixed, mixed_sync])
def test_the_result_of_a_child_reaches_its_parent(chosen: Any) -> None:
    assert perdure.run(chosen, "a", run_id="r") == "parent child a!"
    assert world.lines == ["child a", "parent child a!"]
    assert (state_of("r"), state_of(FIRST)) == ("completed", "completed")


@pytest.mark.parametrize("chosen", [parent, parent_async])
def test_a_child_has_the_id_of_its_place_and_the_wait_for_it_names_it(chosen: Any) -> None:
    perdure.run(chosen, "a", run_id="r")
    perdure.run(chosen, "a", run_id="s")
    assert [run.run_id for run in runs()] == [child_id("s", "main.0"), "s", FIRST, "r"]
    assert [body.child for body in bodies_of("r", Kind.WAIT)] == [FIRST]
    assert [bytes(body.value) for body in bodies_of("r", Kind.ANSWER)] == [b'"child a!"']
    assert child_id("s", "main.0") != FIRST


@pytest.mark.parametrize("chosen", [parent, parent_async])
def test_a_replay_takes_the_outcome_from_the_journal_of_the_parent_and_does_not_look_at_the_child(
    chosen: Any, store: Path
) -> None:
    world.killed_at("parent child a!", lambda: perdure.run(chosen, "a", run_id="r"))
    close_sessions()
    with sqlite3.connect(store) as connection:
        connection.execute("DELETE FROM runs WHERE run_id = ?", (FIRST,))
    connection.close()
    assert perdure.run(chosen, "a", run_id="r") == "parent child a!"
    assert world.lines == ["child a", "parent child a!", "parent child a!"]
    assert [run.run_id for run in runs()] == ["r"]


@pytest.mark.parametrize("chosen", [parent, parent_async])
def test_a_child_killed_with_its_parent_goes_on_where_it_stopped(chosen: Any) -> None:
    world.killed_at("child a", lambda: perdure.run(chosen, "a", run_id="r"))
    assert perdure.run(chosen, "a", run_id="r") == "parent child a!"
    assert world.lines == ["child a", "child a", "parent child a!"]
    assert len(runs()) == 2


def test_large_values_go_to_a_child_and_come_back() -> None:
    @perdure.agent
    def doubles(text: str, numbers: list[int]) -> tuple[str, list[int]]:
        return text * 2, numbers[::-1]

    @perdure.agent
    def large() -> int:
        text, numbers = perdure.start(doubles, "ä" * 300_000, list(range(50_000))).result()
        work("received")
        return len(text) + numbers[0]

    world.killed_at("received", lambda: perdure.run(large, run_id="r"))
    assert perdure.run(large, run_id="r") == 600_000 + 49_999
    assert bodies_of("r", Kind.ANSWER)[0].blob


def test_a_child_that_returned_nothing_returned_nothing() -> None:
    @perdure.agent
    def nothing() -> None:
        work("nothing")

    @perdure.agent
    def agent() -> bool:
        return perdure.start(nothing).result() is None

    assert perdure.run(agent) is True


@pytest.mark.parametrize("chosen", [parent, parent_async])
def test_a_finished_child_may_be_asked_again_for_its_result(chosen: Any) -> None:
    @perdure.agent
    def twice() -> str:
        handle = perdure.start(child, "a")
        return handle.result() + handle.result()

    @perdure.agent
    async def twice_async() -> str:
        handle = perdure.start(child_async, "a")
        return await handle + await handle

    assert perdure.run(twice if chosen is parent else twice_async, run_id="r") == "child a!child a!"
    assert len(records_of("r", Kind.ANSWER)) == 1


def test_children_start_children_of_their_own() -> None:
    @perdure.agent
    def middle(label: str) -> str:
        return perdure.start(child, label).result() + "?"

    @perdure.agent
    def top() -> str:
        return perdure.start(middle, "a").result()

    world.killed_at("child a", lambda: perdure.run(top, run_id="r"))
    assert perdure.run(top, run_id="r") == "child a!?"
    grandchild = child_id(FIRST, "main.0")
    assert {run.run_id for run in runs()} == {"r", FIRST, grandchild}
    lineage = [entry.run_id for entry in bodies_of(grandchild, Kind.STARTED)[0].lineage]
    assert lineage == ["r", FIRST]


def test_a_child_cannot_be_given_an_id() -> None:
    @perdure.agent
    def agent() -> str:
        return perdure.start(child, "a", run_id="mine").result()

    with pytest.raises(UsageError, match="has the id that its place gives it"):
        perdure.run(agent)
    assert len(runs()) == 1


def test_a_child_is_not_started_from_the_body_of_a_step() -> None:
    @perdure.step
    def body() -> str:
        return perdure.start(child, "a").result()

    @perdure.agent
    def agent() -> str:
        return body()

    with pytest.raises(UsageError, match="inside the body of body"):
        perdure.run(agent)
    assert len(runs()) == 1


def test_arguments_that_do_not_fit_the_child_are_refused_where_it_is_started() -> None:
    @perdure.agent
    def agent() -> str:
        return perdure.start(child, "a", "b").result()

    with pytest.raises(TypeError):
        perdure.run(agent, run_id="r")
    assert [run.run_id for run in runs()] == ["r"]


# -------------------------------------------------------------------------------------------------- cycles and depth


@perdure.agent
def ping(number: int) -> str:
    work(f"ping {number}")
    return perdure.start(pong, number).result()


@perdure.agent
def pong(number: int) -> str:
    work(f"pong {number}")
    return perdure.start(ping, number).result()


@perdure.agent
def starts_itself(number: int) -> str:
    work("me")
    return perdure.start(starts_itself, number).result()


@perdure.agent
def ever_deeper(number: int) -> str:
    return perdure.start(ever_deeper, number + 1).result()


@pytest.mark.parametrize(
    ("chosen", "lines"), [(starts_itself, ["me"]), (ping, ["ping 1", "pong 1"])], ids=["itself", "parent and child"]
)
def test_a_child_that_is_the_same_call_as_its_ancestor_is_refused(chosen: Any, lines: list[str]) -> None:
    with pytest.raises(UsageError, match="is the same call as one of the runs that started it"):
        perdure.run(chosen, 1, run_id="r")
    assert world.lines == lines
    assert len(runs()) == len(lines)
    assert run_of("r").steps >= 1


def test_recursion_with_other_arguments_is_no_cycle() -> None:
    @perdure.agent
    def counts_down(number: int) -> int:
        return 0 if number == 0 else 1 + perdure.start(counts_down, number - 1).result()

    assert perdure.run(counts_down, 5, run_id="r") == 5
    assert len(runs()) == 6


def test_recursion_without_an_end_is_refused() -> None:
    with pytest.raises(UsageError, match=r"is too deep \(\d+ levels\)"):
        perdure.run(ever_deeper, 0, run_id="r")
    assert 5 < len(runs()) < 50
    assert {run.state for run in runs()} == {"failed"}


def test_a_refused_cycle_can_be_caught_and_nothing_is_lost_by_it() -> None:
    @perdure.agent
    def careful(number: int) -> str:
        first = work("first")
        try:
            perdure.start(careful, number).result()
        except UsageError:
            return first + work("second")
        return "never"

    world.killed_at("second", lambda: perdure.run(careful, 1, run_id="r"))
    assert perdure.run(careful, 1, run_id="r") == "firstsecond"
    assert world.lines == ["first", "second", "second"]
    assert len(runs()) == 1


# --------------------------------------------------------------------------------------------------------- failures


@perdure.agent
def lets_it_pass(label: str) -> str:
    done = perdure.start(child, label).result()
    return done + perdure.start(breaks, label).result()


@perdure.agent
async def lets_it_pass_async(label: str) -> str:
    done = await perdure.start(child_async, label)
    return done + await perdure.start(breaks, label)


@perdure.agent
def catches(label: str) -> str:
    try:
        return perdure.start(breaks, label).result()
    except Broken as error:
        return work(f"caught {error.args}")


@perdure.agent
async def catches_async(label: str) -> str:
    try:
        return await perdure.start(breaks, label)
    except Broken as error:
        return work(f"caught {error.args}")


@pytest.mark.parametrize("chosen", [catches, catches_async])
def test_a_parent_can_catch_what_its_child_raised_by_its_class_now_and_at_a_replay(chosen: Any) -> None:
    world.killed_at("caught ('no a', 7)", lambda: perdure.run(chosen, "a", run_id="r"))
    assert perdure.run(chosen, "a", run_id="r") == "caught ('no a', 7)"
    assert world.lines == ["before a", "caught ('no a', 7)", "caught ('no a', 7)"]
    assert (state_of("r"), state_of(FIRST)) == ("completed", "failed")


@pytest.mark.parametrize("chosen", [lets_it_pass, lets_it_pass_async])
def test_an_uncaught_failure_fails_the_parent_and_starting_again_attempts_that_child_anew(chosen: Any) -> None:
    for _ in range(3):
        with pytest.raises(Broken, match="no a"):
            perdure.run(chosen, "a", run_id="r")
        assert (state_of("r"), state_of(FIRST), state_of(SECOND)) == ("failed", "completed", "failed")
    world.note("mended")
    assert perdure.run(chosen, "a", run_id="r") == "child a!after a"
    assert world.lines == ["child a", "before a", "mended", "after a"]
    assert len(runs()) == 3


def test_an_attempt_made_anew_and_killed_is_made_again() -> None:
    with pytest.raises(Broken):
        perdure.run(lets_it_pass, "a", run_id="r")
    world.note("mended")
    world.killed_at("after a", lambda: perdure.run(lets_it_pass, "a", run_id="r"))
    assert perdure.run(lets_it_pass, "a", run_id="r") == "child a!after a"
    assert world.lines == ["child a", "before a", "mended", "after a", "after a"]


def test_an_attempt_that_was_asked_for_before_a_kill_is_made_after_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Broken):
        perdure.run(lets_it_pass, "a", run_id="r")
    world.note("mended")
    _die_before_creating(monkeypatch)
    world.killed_at("creating", lambda: perdure.run(lets_it_pass, "a", run_id="r"))
    assert perdure.run(lets_it_pass, "a", run_id="r") == "child a!after a"
    assert world.count("before a") == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_what_handled_a_failure_before_the_run_failed_is_not_done_again(is_async: bool) -> None:
    @perdure.agent
    def tidies() -> str:
        try:
            found = perdure.start(breaks, "a").result()
        except Broken:
            work("tidied")
            raise
        return found + work("went on")

    @perdure.agent
    async def tidies_async() -> str:
        try:
            found = await perdure.start(breaks, "a")
        except Broken:
            work("tidied")
            raise
        return found + work("went on")

    chosen: Any = tidies_async if is_async else tidies
    with pytest.raises(Broken):
        perdure.run(chosen, run_id="r")
    world.note("mended")
    assert perdure.run(chosen, run_id="r") == "after awent on"
    assert world.lines == ["before a", "tidied", "mended", "after a", "went on"]


def test_a_failed_child_that_is_asked_twice_fails_twice_with_one_record() -> None:
    @perdure.agent
    def insists() -> str:
        handle = perdure.start(breaks, "a")
        for _ in range(2):
            try:
                handle.result()
            except Broken as error:
                work(f"caught {error.args[0]}")
        return "both"

    assert perdure.run(insists, run_id="r") == "both"
    assert world.lines == ["before a", "caught no a", "caught no a"]
    assert len(records_of("r", Kind.ANSWER)) == 1


def test_a_sibling_of_a_failed_child_stands() -> None:
    @perdure.agent
    async def both() -> str:
        return "+".join(await asyncio.gather(_awaited(perdure.start(child, "a")), _awaited(perdure.start(breaks, "b"))))

    with pytest.raises(Broken):
        perdure.run(both, run_id="r")
    world.note("mended")
    assert perdure.run(both, run_id="r") == "child a!+after b"
    assert sorted(world.lines) == ["after b", "before b", "child a", "mended"]


async def _awaited(handle: perdure.Handle[str]) -> str:
    return await handle


# ----------------------------------------------------------------------------------------------- created exactly once


def _die_before_creating(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a moment between the record of the wait and the child."""
    original = ForChild.create

    def create(self: ForChild) -> Any:
        world.moment("creating")
        created = original(self)
        world.moment("created")
        return created

    monkeypatch.setattr(ForChild, "create", create)


@pytest.mark.parametrize("moment", ["creating", "created"])
@pytest.mark.parametrize("chosen", [parent, parent_async])
def test_a_parent_killed_beside_the_creation_of_its_child_has_one_child(
    chosen: Any, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _die_before_creating(monkeypatch)
    for _ in range(2):
        world.killed_at(moment, lambda: perdure.run(chosen, "a", run_id="r"))
    assert len(records_of("r", Kind.WAIT)) == 1
    assert len(runs()) == (1 if moment == "creating" else 2)
    assert perdure.run(chosen, "a", run_id="r") == "parent child a!"
    assert world.lines == ["child a", "parent child a!"]
    assert len(runs()) == 2


@perdure.agent
async def fans_out(count: int) -> list[str]:
    handles = [perdure.start(child_async, str(number)) for number in range(count)]
    return list(await asyncio.gather(*map(_awaited, handles)))


@pytest.mark.parametrize("moment", ["creating", "created"])
def test_of_half_a_fan_out_the_rest_is_created_and_nothing_twice(moment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _die_before_creating(monkeypatch)
    world.killed_at(moment, lambda: perdure.run(fans_out, 12, run_id="r"), passes=6)
    assert 7 <= len(runs()) <= 8
    assert perdure.run(fans_out, 12, run_id="r") == [f"child {number}!" for number in range(12)]
    assert len(runs()) == 13
    assert len(records_of("r", Kind.WAIT)) == len(records_of("r", Kind.ANSWER)) == 12


def test_two_hundred_children_at_once() -> None:
    assert perdure.run(fans_out, 200, run_id="r") == [f"child {number}!" for number in range(200)]
    assert sorted(world.lines) == sorted(f"child {number}" for number in range(200))
    assert len(runs()) == 201
    assert {run.state for run in runs()} == {"completed"}


def test_two_hundred_children_of_a_sync_agent() -> None:
    @perdure.agent
    def fans_out_sync() -> list[str]:
        handles = [perdure.start(child, str(number)) for number in range(200)]
        return [handle.result() for handle in handles]

    assert perdure.run(fans_out_sync, run_id="r") == [f"child {number}!" for number in range(200)]
    assert len(runs()) == 201


def test_children_that_wait_for_their_own_children_do_not_keep_each_other_from_running() -> None:
    @perdure.agent
    def middle(label: str) -> str:
        return perdure.start(child, label).result()

    @perdure.agent
    def top() -> list[str]:
        return [handle.result() for handle in [perdure.start(middle, str(number)) for number in range(40)]]

    assert perdure.run(top) == [f"child {number}!" for number in range(40)]


# -------------------------------------------------------------------------------------------------- a child that waits


@pytest.mark.parametrize("chosen", ASKING)
def test_a_parent_whose_child_asks_a_person_leaves_memory_too_and_the_answer_wakes_both(chosen: Any) -> None:
    with watching() as watch:
        handle = perdure.start(chosen, "a", run_id="r")
        watch.until_ended(FIRST, "waiting (human)")
        watch.until_ended("r", "waiting (child)")
        asking, waiting = run_of(FIRST), run_of("r")
        assert (waiting.state, waiting.reason, waiting.holder) == ("waiting", "child", "")
        assert asking.name in read_park(waiting).message
        assert "which waits (human)" in read_park(waiting).message
        assert handle.status() == "waiting (child)"
        perdure.answer(FIRST, "send")
        assert handle.result(60) == "parent of send a"
    assert world.lines == ["asking a", "send a", "parent of send a"]


@pytest.mark.parametrize("chosen", ASKING)
def test_across_processes_the_answer_to_a_child_lets_the_parent_go_on(chosen: Any) -> None:
    with pytest.raises(RunWaits) as waits:
        perdure.run(chosen, "a", run_id="r")
    assert waits.value.exit_code == 3
    assert run_of(FIRST).name in waits.value.message
    assert state_of("r") == "waiting (child)"
    assert world.elsewhere(lambda: perdure.answer(FIRST, "drop", by="ada")) == 0
    assert world.elsewhere(lambda: perdure.run(chosen, "a", run_id="r")) == 0
    assert perdure.run(chosen, "a", run_id="r") == "parent of drop a"
    assert world.lines == ["asking a", "drop a", "parent of drop a"]
    assert len(runs()) == 2


@pytest.mark.parametrize("chosen", ASKING)
def test_starting_the_parent_again_without_an_answer_waits_again(chosen: Any) -> None:
    for _ in range(5):
        with pytest.raises(RunWaits):
            perdure.run(chosen, "a", run_id="r")
    assert world.lines == ["asking a"]
    assert len(records_of(FIRST, Kind.WAIT)) == len(records_of("r", Kind.WAIT)) == 1


def test_a_child_that_was_answered_and_executed_elsewhere_wakes_a_parent_that_left_memory() -> None:
    with pytest.raises(RunWaits):
        perdure.run(waits_for_asks, "a", run_id="r")
    perdure.answer(FIRST, "send")
    assert perdure.run(asks, "a", run_id=FIRST) == "send a"
    assert run_of("r").state == "waiting"
    due = [run.run_id for run in _store().list_due(now=0.0)]
    assert due == ["r"]
    assert perdure.run(waits_for_asks, "a", run_id="r") == "parent of send a"


def test_a_grandchild_that_asks_wakes_the_whole_line() -> None:
    @perdure.agent
    def top() -> str:
        return perdure.start(waits_for_asks, "a").result() + work("top")

    grandchild = child_id(FIRST, "main.0")
    with watching() as watch:
        handle = perdure.start(top, run_id="r")
        watch.until_ended("r", "waiting (child)")
        assert (state_of(FIRST), state_of(grandchild)) == ("waiting (child)", "waiting (human)")
        perdure.answer(grandchild, "send")
        assert handle.result(60) == "parent of send atop"
    assert world.lines == ["asking a", "send a", "parent of send a", "top"]


def test_the_answers_to_several_children_may_come_in_any_order() -> None:
    @perdure.agent
    async def several() -> list[str]:
        return list(await asyncio.gather(*(_awaited(perdure.start(asks, label)) for label in "abc")))

    with watching() as watch:
        handle = perdure.start(several, run_id="r")
        watch.until_ended("r", "waiting (child)")
        for run_id in (THIRD, FIRST, SECOND):
            perdure.answer(run_id, "send")
        assert handle.result(60) == ["send a", "send b", "send c"]
    assert sorted(world.lines) == sorted(f"{what} {label}" for what in ("asking", "send") for label in "abc")


def test_a_child_that_sleeps_is_waited_for(manual_clock: ManualClock) -> None:
    @perdure.agent
    def sleeps() -> str:
        perdure.sleep("20m")
        return work("awake")

    @perdure.agent
    def waits() -> str:
        return perdure.start(sleeps).result()

    assert perdure.run(waits, run_id="r") == "awake"
    assert math.fsum(manual_clock.slept) >= 1200
    assert world.lines == ["awake"]


def test_a_run_shows_which_child_it_waits_for() -> None:
    with pytest.raises(RunWaits):
        perdure.run(waits_for_asks, "a", run_id="r")
    opened = bodies_of("r", Kind.WAIT)[0]
    assert (opened.reason, opened.child) == ("child", FIRST)
    assert "asks" in opened.shown
    assert f"perdure show {run_of(FIRST).name}" in read_park(run_of("r")).hint


# ------------------------------------------------------------------------------------------------------ cancellation


@pytest.mark.parametrize("chosen", ASKING)
def test_cancelling_a_parent_that_nobody_holds_ends_the_child_that_waits_for_a_person(chosen: Any) -> None:
    with pytest.raises(RunWaits):
        perdure.run(chosen, "a", run_id="r")
    perdure.cancel("r")
    assert (state_of("r"), state_of(FIRST)) == ("cancelled", "cancelled")
    with pytest.raises(UsageError, match="it no longer asks"):
        perdure.answer(FIRST, "send")
    assert world.lines == ["asking a"]


def test_cancelling_reaches_grandchildren_that_nobody_holds() -> None:
    @perdure.agent
    def top() -> str:
        return perdure.start(waits_for_asks, "a").result()

    with pytest.raises(RunWaits):
        perdure.run(top, run_id="r")
    perdure.cancel("r")
    assert {run.state for run in runs()} == {"cancelled"}
    assert len(runs()) == 3


@pytest.mark.parametrize("chosen", ASKING)
def test_cancelling_a_parent_in_this_process_ends_its_waiting_child(chosen: Any) -> None:
    with watching() as watch:
        handle = perdure.start(chosen, "a", run_id="r")
        watch.until_ended("r", "waiting (child)")
        handle.cancel()
        watch.until_ended(FIRST, "cancelled")
        with pytest.raises((RunCancelled, UsageError), match="was cancelled"):
            handle.result(60)
    assert (state_of("r"), state_of(FIRST)) == ("cancelled", "cancelled")
    assert world.lines == ["asking a"]


def test_cancelling_a_parent_that_is_held_ends_children_that_run_and_children_that_wait() -> None:
    @perdure.agent
    async def runs_on(label: str) -> str:
        for number in range(10_000):
            work(f"{label} {number}")
            await asyncio.sleep(0.01)
        return label

    @perdure.agent
    async def both() -> list[str]:
        handles = [perdure.start(runs_on, "busy"), perdure.start(asks, "a")]
        return list(await asyncio.gather(*map(_awaited, handles)))

    with watching() as watch:
        handle = perdure.start(both, run_id="r")
        watch.until_ended(SECOND, "waiting (human)")
        handle.cancel()
        with pytest.raises(RunCancelled):
            handle.result(60)
        watch.until_ended(FIRST, "cancelled")
        watch.until_ended(SECOND, "cancelled")
    assert {run.state for run in runs()} == {"cancelled"}
    assert world.count("busy 9999") == 0


def test_a_parent_cancelled_while_it_is_held_by_a_script_leaves_no_child_that_asks() -> None:
    """The script ends with its run; the question of the child must not stay in anybody's inbox."""

    @perdure.step
    def asked_to_end() -> None:
        perdure.cancel("r")

    @perdure.agent
    async def ends_itself() -> list[str]:
        with watching() as watch:
            asking = perdure.start(asks, "a")
            await asyncio.to_thread(watch.until_ended, FIRST, "waiting (human)")
        asked_to_end()
        return [await asking]

    def script() -> None:
        with pytest.raises(RunCancelled):
            perdure.run(ends_itself, run_id="r")

    assert world.elsewhere(script) == 0
    assert (state_of("r"), state_of(FIRST)) == ("cancelled", "cancelled")


@pytest.mark.parametrize("chosen", ASKING)
def test_a_child_cancelled_on_its_own_fails_its_parent_with_step_failed(chosen: Any) -> None:
    with pytest.raises(RunWaits):
        perdure.run(chosen, "a", run_id="r")
    perdure.cancel(FIRST)
    assert state_of(FIRST) == "cancelled"
    with pytest.raises(StepFailed, match=f"The child run {run_of(FIRST).name} .*asks.* was cancelled"):
        perdure.run(chosen, "a", run_id="r")
    assert state_of("r") == "failed"
    assert world.lines == ["asking a"]


def test_a_parent_can_cancel_its_child_and_catch_that() -> None:
    @perdure.agent
    async def loses_patience() -> str:
        handle = perdure.start(asks, "a")
        with watching() as watch:
            if state_of(FIRST) not in ("waiting (human)", "cancelled"):
                await asyncio.to_thread(watch.until_ended, FIRST, "waiting (human)")
        handle.cancel()
        try:
            return await handle
        except StepFailed:
            return work("without it")

    assert perdure.run(loses_patience, run_id="r") == "without it"
    assert state_of(FIRST) == "cancelled"


def test_a_child_that_two_strands_wait_for_is_recorded_once() -> None:
    @perdure.agent
    async def both() -> list[str]:
        handle = perdure.start(child, "a")
        return list(await asyncio.gather(_awaited(handle), _awaited(handle)))

    assert perdure.run(both, run_id="r") == ["child a!", "child a!"]
    assert len(records_of("r", Kind.ANSWER)) == 1


def test_a_handle_of_a_child_tells_its_state() -> None:
    @perdure.agent
    def looks() -> list[str]:
        handle = perdure.start(child, "a")
        handle.result()
        return [handle.status()]

    assert perdure.run(looks) == ["completed"]


# --------------------------------------------------------------------------------------------------- fire and forget


def test_a_child_that_nobody_waits_for_is_executed_all_the_same() -> None:
    @perdure.agent
    def forgets() -> str:
        perdure.start(child, "a")
        return work("done")

    with watching() as watch:
        assert perdure.run(forgets, run_id="r") == "done"
        watch.until_ended(FIRST, "completed")
    assert sorted(world.lines) == ["child a", "done"]
    assert perdure.run(forgets, run_id="r") == "done"
    assert len(runs()) == 2


def test_a_forgotten_child_killed_with_its_parent_goes_on_with_it() -> None:
    @perdure.agent
    def forgets() -> str:
        perdure.start(child, "a")
        if world.count("killed") == 0:
            threading.Event().wait()
        return work("done")

    world.killed_at("inside the child", lambda: perdure.run(forgets, run_id="r"))
    world.note("killed")
    with watching() as watch:
        assert perdure.run(forgets, run_id="r") == "done"
        watch.until_ended(FIRST, "completed")
    assert sorted(world.lines) == ["child a", "done", "killed"]


def test_a_forgotten_child_killed_after_its_parent_ended_is_resumed_by_its_id() -> None:
    @perdure.agent
    def lingers() -> str:
        while run_of("r").state != RunState.COMPLETED:
            pass
        world.moment("lingering")
        return work("lingered")

    @perdure.agent
    def forgets() -> str:
        perdure.start(lingers)
        return work("done")

    def script() -> None:
        perdure.run(forgets, run_id="r")
        threading.Event().wait()

    world.killed_at("lingering", script)
    assert (state_of("r"), run_of(FIRST).state) == ("completed", "running")
    assert perdure.run(lingers, run_id=FIRST) == "lingered"
    assert world.lines == ["done", "lingered"]


def test_the_newest_run_of_a_call_is_found_by_its_parents_name_too() -> None:
    perdure.run(parent, "a")
    assert newest_run().run_id.startswith(f"{runs()[1].run_id}/")


def _store() -> Any:
    from perdure.engine.session import session

    return session().store
