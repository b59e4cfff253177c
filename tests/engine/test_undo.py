"""A failing run takes its effects back, newest first, each as an effect of its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import perdure
from perdure.errors import EffectInDoubt, UsageError
from perdure.events import StepCompleted
from perdure.records import Kind
from tests.engine.journals import bodies_of, calls_of, newest_run, runs, state_of
from tests.engine.letters import open_effects, post
from tests.engine.world import world


def take_back(result: str, what: str) -> str:
    world.note(f"undid {what} ({result})")
    world.moment(f"undid {what}")
    return "undone"


@perdure.effect(undo=take_back)
def book(what: str) -> str:
    world.note(f"booked {what}")
    return f"id of {what}"


@perdure.effect
def send(what: str) -> str:
    world.note(f"sent {what}")
    return what


@perdure.step
def fail() -> None:
    world.note("failed")
    raise ValueError("no room")


@perdure.agent(undo_on_failure=True)
def trip() -> None:
    book("flight")
    send("note")
    book("hotel")
    fail()


def test_a_failing_run_takes_back_what_it_did_newest_first() -> None:
    with pytest.raises(ValueError, match="no room"):
        perdure.run(trip, run_id="r")
    assert world.lines == [
        "booked flight",
        "sent note",
        "booked hotel",
        "failed",
        "undid hotel (id of hotel)",
        "undid flight (id of flight)",
    ]
    assert state_of("r") == "failed"


def test_each_undoing_is_an_effect_with_intent_and_receipt() -> None:
    with pytest.raises(ValueError, match="no room"):
        perdure.run(trip, run_id="r")
    undone = [(kind, name) for kind, _, name in calls_of("r") if name == "undo book"]
    assert undone == [("intent", "undo book"), ("receipt", "undo book")] * 2


def test_without_the_option_nothing_is_taken_back() -> None:
    @perdure.agent
    def agent() -> None:
        book("flight")
        fail()

    with pytest.raises(ValueError, match="no room"):
        perdure.run(agent)
    assert world.lines == ["booked flight", "failed"]


def test_a_run_that_completes_takes_nothing_back() -> None:
    @perdure.agent(undo_on_failure=True)
    def agent() -> str:
        try:
            fail()
        except ValueError:
            return book("train")
        return "never"

    assert perdure.run(agent) == "id of train"
    assert world.lines == ["failed", "booked train"]


def test_a_crash_between_two_undoings_goes_on_with_the_rest() -> None:
    @perdure.agent(undo_on_failure=True)
    def agent() -> None:
        for what in ("flight", "hotel", "car"):
            book(what)
        fail()

    def killed_before_the_next_undoing() -> None:
        perdure.subscribe(_die_after_receipt)
        perdure.run(agent, run_id="r")

    world.killed_at("receipt of an undoing", killed_before_the_next_undoing)
    with pytest.raises(ValueError, match="no room"):
        perdure.run(agent, run_id="r")
    assert [line for line in world.lines if line.startswith("undid")] == [
        "undid car (id of car)",
        "undid hotel (id of hotel)",
        "undid flight (id of flight)",
    ]
    assert world.count("failed") == 1


def _die_after_receipt(event: Any) -> None:
    if isinstance(event, StepCompleted) and event.step == "undo book":
        world.moment("receipt of an undoing")


def test_an_undoing_that_died_in_its_middle_is_in_doubt_and_the_rest_follows_once_it_is_settled() -> None:
    world.killed_at("undid hotel", lambda: perdure.run(trip, run_id="r"))
    with pytest.raises(EffectInDoubt, match="undo book"):
        perdure.run(trip, run_id="r")
    assert open_effects("r") == ["undo book"]
    post("r", "happened", "undone", name="undo book")
    with pytest.raises(ValueError, match="no room"):
        perdure.run(trip, run_id="r")
    assert [line for line in world.lines if line.startswith("undid")] == [
        "undid hotel (id of hotel)",
        "undid flight (id of flight)",
    ]


def test_an_undone_run_is_not_resumed() -> None:
    with pytest.raises(ValueError, match="no room"):
        perdure.run(trip)
    first = newest_run()
    with pytest.raises(ValueError, match="no room"):
        perdure.run(trip)
    assert len(runs()) == 2
    assert newest_run().run_id != first.run_id


def test_an_undone_run_asked_for_by_its_id_is_refused() -> None:
    with pytest.raises(ValueError, match="no room"):
        perdure.run(trip, run_id="r")
    before = world.lines
    with pytest.raises(UsageError, match="its effects were undone") as caught:
        perdure.run(trip, run_id="r")
    assert "another run_id" in caught.value.hint
    assert world.lines == before


def test_an_undoing_that_fails_is_noted_on_the_failure_the_caller_sees() -> None:
    def refuse(_: str, what: str) -> None:
        raise ConnectionRefusedError("nobody listens")

    @perdure.effect(undo=refuse)
    def booked(what: str) -> str:
        return what

    @perdure.agent(undo_on_failure=True)
    def agent() -> None:
        booked("flight")
        fail()

    with pytest.raises(ValueError, match="no room") as caught:
        perdure.run(agent, run_id="r")
    assert "not everything could be undone" in caught.value.__notes__[0]
    assert "nobody listens" in caught.value.__notes__[0]


def test_an_async_run_takes_back_with_async_functions() -> None:
    async def cancel(result: str, what: str) -> None:
        await asyncio.sleep(0)
        world.note(f"undid {what}")

    @perdure.effect(undo=cancel)
    async def booked(what: str) -> str:
        return what

    @perdure.agent(undo_on_failure=True)
    async def agent() -> None:
        await asyncio.gather(booked("a"), booked("b"))
        book("c")
        fail()

    with pytest.raises(ValueError, match="no room"):
        perdure.run(agent, run_id="r")
    assert world.lines[2] == "undid c (id of c)"
    assert sorted(world.lines[3:]) == ["undid a", "undid b"]
    assert bodies_of("r", Kind.ENDED)[-1].undone


def test_an_effect_that_a_verdict_settled_is_taken_back_too() -> None:
    @perdure.effect(undo=take_back)
    def lost(what: str) -> str:
        world.note(f"booked {what}")
        raise TimeoutError("no answer")

    @perdure.agent(undo_on_failure=True)
    def agent() -> None:
        lost("flight")
        fail()

    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    post("r", "happened", "found", name="lost")
    with pytest.raises(ValueError, match="no room"):
        perdure.run(agent, run_id="r")
    assert world.lines[-1] == "undid flight (found)"
