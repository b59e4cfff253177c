"""The effects of a run that has ended are taken back by a run of its own: each once, newest first, killed or not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure import clock
from perdure.engine import control
from perdure.engine import fork as forks
from perdure.engine.call import spec_of
from perdure.engine.effect import EffectSpec
from perdure.engine.lifecycle import load
from perdure.engine.session import session
from perdure.engine.undo import Plan, planned
from perdure.engine.undoing import cancelled_undoings, refuse_unended, take_back, undone_run
from perdure.engine.whereabouts import UNDO_AGENT, undoing_of
from perdure.errors import EffectInDoubt, RunSuspended, RunWaits, UsageError
from perdure.events import StepCompleted
from perdure.records import undo_id
from perdure.store.protocol import Old
from tests.engine.journals import calls_of, records_of, run_of, runs, state_of
from tests.engine.letters import open_effects, post
from tests.engine.world import world


def cancel(result: str, what: str) -> str:
    world.note(f"undid {what} ({result})")
    world.moment(f"undid {what}")
    return "undone"


@perdure.effect(undo=cancel)
def book(what: str, seats: int = 1) -> str:
    world.note(f"booked {what}")
    world.moment(f"booked {what}")
    return f"id of {what}"


@perdure.effect
def send(what: str) -> str:
    world.note(f"sent {what}")
    return what


@perdure.agent
def trip() -> str:
    book("flight")
    send("note")
    book("hotel")
    return "booked"


def plan(run_id: str, *effects: Any) -> Plan:
    found = [spec_of(effect) for effect in (book, send, *effects)]
    specs = {spec.name: spec for spec in found if isinstance(spec, EffectSpec)}
    store = session().store
    earlier = cancelled_undoings(store, run_of(run_id))
    return planned(run_of(run_id), records_of(run_id), specs, load=store.load_blob, earlier=earlier)


def undo(run_id: str, *effects: Any) -> int:
    return take_back(session(), plan(run_id, *effects))


def undid() -> list[str]:
    return [line for line in world.lines if line.startswith("undid")]


NEWEST_FIRST = ["undid hotel (id of hotel)", "undid flight (id of flight)"]


def test_the_effects_of_a_completed_run_are_taken_back_newest_first_and_its_journal_is_not_extended() -> None:
    perdure.run(trip, run_id="r")
    before = (run_of("r"), records_of("r"))
    assert undo("r") == 2
    assert undid() == NEWEST_FIRST
    assert (run_of("r"), records_of("r")) == before


def test_each_undoing_is_an_effect_of_a_run_of_its_own() -> None:
    perdure.run(trip, run_id="r")
    undo("r")
    undoing = undoing_of(session().store, "r")
    assert undoing is not None
    assert (undoing.agent, undoing.state, undoing.run_id) == (UNDO_AGENT, "completed", undo_id("r"))
    assert [kind for kind, _, name in calls_of(undoing.run_id) if name == "undo book"] == ["intent", "receipt"] * 2
    assert undone_run(session().store, undoing).run_id == "r"


def test_taking_back_twice_takes_back_once() -> None:
    perdure.run(trip, run_id="r")
    assert [undo("r"), undo("r")] == [2, 2]
    assert undid() == NEWEST_FIRST
    assert len(runs()) == 2


def test_an_effect_without_undo_is_named_and_left() -> None:
    perdure.run(trip, run_id="r")
    assert [(left.shown, left.why) for left in plan("r").left] == [("send(what='note')", "it has no undo")]


def test_an_effect_whose_code_is_not_there_is_named_and_left() -> None:
    perdure.run(trip, run_id="r")
    found = planned(run_of("r"), records_of("r"), {}, load=session().store.load_blob)
    assert [left.why for left in found.left] == ["its code is not there"] * 3
    assert found.undoings == ()


def test_killed_between_two_undoings_it_goes_on_with_the_rest() -> None:
    perdure.run(trip, run_id="r")

    def killed_after_the_first() -> None:
        perdure.subscribe(die)
        undo("r")

    def die(event: Any) -> None:
        if isinstance(event, StepCompleted):
            world.moment("receipt of an undoing")

    world.killed_at("receipt of an undoing", killed_after_the_first)
    assert undid() == NEWEST_FIRST[:1]
    assert undo("r") == 2
    assert undid() == NEWEST_FIRST


def test_killed_inside_an_undoing_it_is_in_doubt_and_goes_on_once_settled() -> None:
    perdure.run(trip, run_id="r")
    world.killed_at("undid hotel", lambda: undo("r"))
    with pytest.raises(EffectInDoubt, match="undo book"):
        undo("r")
    assert open_effects(undo_id("r")) == ["undo book"]
    post(undo_id("r"), "happened", "undone", name="undo book")
    assert undo("r") == 2
    assert undid() == NEWEST_FIRST


def test_an_undo_that_is_an_effect_brings_its_own_check() -> None:
    @perdure.effect(in_flight_seconds=0)
    def release(result: str, what: str) -> str:
        world.note(f"undid {what} {perdure.current().key}")
        world.moment("released")
        return "released"

    @release.check
    def was_released(intent: perdure.Intent) -> perdure.Verdict:
        is_there = f"undid {intent.arguments['what']} {intent.key}" in world.lines
        return perdure.happened("released") if is_there else perdure.did_not_happen()

    @perdure.effect(undo=release)
    def reserve(what: str) -> str:
        return what

    @perdure.agent
    def agent() -> str:
        return reserve("car")

    perdure.run(agent, run_id="r")
    world.killed_at("released", lambda: undo("r", reserve))
    assert undo("r", reserve) == 1
    assert len(undid()) == 1


def test_an_undoing_that_fails_is_attempted_anew_when_asked_again() -> None:
    def refuse_once(result: str) -> None:
        world.note("undid")
        if len(undid()) == 1:
            raise ConnectionRefusedError("nobody listens")

    @perdure.effect(undo=refuse_once)
    def reserve() -> str:
        return "car"

    @perdure.agent
    def agent() -> None:
        book("flight")
        reserve()

    perdure.run(agent, run_id="r")
    with pytest.raises(ConnectionRefusedError):
        undo("r", reserve)
    assert undid() == ["undid"]
    assert undo("r", reserve) == 2
    assert undid() == ["undid", "undid", "undid flight (id of flight)"]


def test_async_effects_are_taken_back_by_async_functions() -> None:
    async def release(result: str) -> None:
        await asyncio.sleep(0)
        world.note("undid later")

    @perdure.effect(undo=release)
    async def reserve() -> str:
        return "car"

    @perdure.agent
    async def agent() -> None:
        await reserve()
        book("flight")

    perdure.run(agent, run_id="r")
    assert undo("r", reserve) == 2
    assert undid() == ["undid flight (id of flight)", "undid later"]


def test_a_failed_run_whose_effects_are_taken_back_cannot_go_on() -> None:
    @perdure.agent
    def agent() -> None:
        book("flight")
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        perdure.run(agent, run_id="r")
    undo("r")
    before = records_of("r")
    with pytest.raises(UsageError, match="taken back"):
        perdure.run(agent, run_id="r")
    assert records_of("r") == before
    with pytest.raises(ValueError, match="no room"):
        perdure.run(agent)
    assert world.count("booked flight") == 2
    assert state_of("r") == "failed"


def test_a_failed_run_that_went_on_since_the_plan_was_drawn_is_not_undone() -> None:
    @perdure.agent
    def agent() -> None:
        book("flight")
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        perdure.run(agent, run_id="r")
    drawn = plan("r")
    with pytest.raises(ValueError, match="no room"):
        perdure.run(agent, run_id="r")
    with pytest.raises(UsageError, match="gone on meanwhile"):
        take_back(session(), drawn)
    assert (undid(), state_of(undo_id("r"))) == ([], "cancelled")
    assert undoing_of(session().store, "r") is None
    with pytest.raises(ValueError, match="no room"):
        perdure.run(agent, run_id="r")  # nobody takes its effects back: it may go on
    assert undo("r") == 1
    assert state_of(undo_id("r", 2)) == "completed"


def test_what_a_cancelled_undo_took_back_is_not_taken_back_again() -> None:
    perdure.run(trip, run_id="r")
    world.killed_at("undid flight", lambda: undo("r"))
    control.cancel(undo_id("r"))
    assert undoing_of(session().store, "r") == run_of(undo_id("r"))
    found = plan("r")
    assert [effect.shown for effect in found.undone] == ["book(what='hotel', seats=1)"]
    whys = {left.shown: left.why for left in found.left}
    assert whys["book(what='flight', seats=1)"] == "it is in doubt whether it was taken back before"
    assert undo("r") == 0
    assert undid() == NEWEST_FIRST


def test_what_a_failing_run_took_back_itself_is_not_taken_back_again() -> None:
    @perdure.agent(undo_on_failure=True)
    def agent() -> None:
        book("flight")
        send("note")
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        perdure.run(agent, run_id="r")
    found = plan("r")
    assert found.undoings == ()
    assert [effect.shown for effect in found.undone] == ["book(what='flight', seats=1)"]
    assert [left.name for left in found.left] == ["send"]


def test_a_cancelled_run_with_an_effect_in_doubt_leaves_that_and_says_so() -> None:
    world.killed_at("booked hotel", lambda: perdure.run(trip, run_id="r"))
    control.cancel("r")
    found = plan("r")
    assert [(left.shown, left.why.split(":")[0]) for left in found.left] == [
        ("book(what='hotel', seats=1)", "it is in doubt"),
        ("send(what='note')", "it has no undo"),
    ]
    assert undo("r") == 1
    assert undid() == NEWEST_FIRST[1:]


def test_a_run_that_has_not_ended_is_refused() -> None:
    @perdure.agent
    def agent() -> None:
        book("flight")
        with pytest.raises(UsageError, match="is running"):
            refuse_unended(session().store, run_of("r"), stall_seconds=60)
        perdure.ask("Go?", options=["yes", "no"])

    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    with pytest.raises(UsageError, match="waiting \\(human\\)") as caught:
        refuse_unended(session().store, run_of("r"), stall_seconds=60)
    assert "perdure cancel" in caught.value.hint
    control.cancel("r")
    refuse_unended(session().store, run_of("r"), stall_seconds=60)


def test_a_fork_does_not_take_back_what_it_inherited() -> None:
    perdure.run(trip, run_id="r")
    made = forks.planned(session().store, run_of("r"), at=1, given={}, stall_seconds=60)
    forks.accept(session().store, made)
    perdure.run(trip, run_id=made.run.run_id)
    found = plan(made.run.run_id)
    assert [undoing.shown for undoing in found.undoings] == ["book(what='hotel', seats=1)"]
    assert [left.why for left in found.left if left.name == "book"] == [
        f"it is an effect of {run_of('r').name}, of which this run is a fork"
    ]


def test_every_item_of_a_map_is_taken_back() -> None:
    @perdure.agent
    def agent() -> int:
        return len(list(perdure.map(book, ["a", "b", "c"])))

    perdure.run(agent, run_id="r")
    assert undo("r") == 3
    assert undid() == ["undid c (id of c)", "undid b (id of b)", "undid a (id of a)"]


def test_an_effect_that_a_verdict_settled_is_taken_back_with_the_result_of_the_verdict() -> None:
    @perdure.effect(undo=cancel)
    def lost(what: str) -> str:
        raise TimeoutError("no answer")

    @perdure.agent
    def agent() -> str:
        return lost("flight")

    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    post("r", "happened", "found", name="lost")
    perdure.run(agent, run_id="r")
    assert undo("r", lost) == 1
    assert undid() == ["undid flight (found)"]


def test_large_arguments_and_results_are_given_to_the_undo() -> None:
    def release(result: list[str], text: str) -> None:
        world.note(f"undid {len(result)} {len(text)}")

    @perdure.effect(undo=release)
    def store_all(text: str) -> list[str]:
        return [text] * 3

    @perdure.agent
    def agent() -> None:
        store_all("x" * 50_000)

    perdure.run(agent, run_id="r")
    assert undo("r", store_all) == 1
    assert undid() == ["undid 3 50000"]


def test_a_failed_run_that_was_claimed_while_its_effects_were_taken_back_stops_before_its_next_call() -> None:
    @perdure.agent
    def agent() -> None:
        book("flight")
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        perdure.run(agent, run_id="r")
    undo("r")
    active = load(session(), session().claim("r"))
    session().release("r")
    with pytest.raises(RunSuspended, match="taken back"):
        active.raise_if_stopped()
    assert active.stop is not None
    assert active.stop.state == "failed"


def test_the_run_that_took_back_stays_as_long_as_the_failed_run_does() -> None:
    @perdure.agent
    def agent() -> None:
        book("flight")
        raise ValueError("no room")

    with pytest.raises(ValueError, match="no room"):
        perdure.run(agent, run_id="r")
    undo("r")
    list(session().store.prune(Old(clock.wall_seconds() + 60)))
    assert undoing_of(session().store, "r") is not None
    list(session().store.prune(Old(clock.wall_seconds() + 60, failed=True)))
    assert runs() == []


def test_a_run_that_takes_back_is_not_forked() -> None:
    perdure.run(trip, run_id="r")
    undo("r")
    with pytest.raises(UsageError, match="takes back what another run did"):
        forks.planned(session().store, run_of(undo_id("r")), at=0, given={}, stall_seconds=60)
