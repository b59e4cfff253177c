"""Recorded time, chance and ids; working state as changes; and the guard around changed code."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest

import perdure
from perdure.errors import UsageError
from perdure.records import Kind
from tests.engine.journals import bodies_of, calls_of, keys_of, state_of
from tests.engine.world import world

version = ["old"]


@pytest.fixture(autouse=True)
def old_code() -> None:
    version[0] = "old"


@perdure.step
def work(label: str) -> str:
    world.note(label)
    return label


def test_time_chance_and_ids_are_recorded_and_replayed() -> None:
    @perdure.agent
    def agent() -> list[Any]:
        found = [perdure.now(), perdure.uuid(), perdure.random()]
        world.note(repr(found))
        world.moment("found")
        return found

    world.killed_at("found", lambda: perdure.run(agent, run_id="r"))
    now, uuid, random = perdure.run(agent, run_id="r")
    assert world.lines[0] == world.lines[1] == repr([now, uuid, random])
    assert [name for _, _, name in calls_of("r")] == ["perdure.now", "perdure.uuid", "perdure.random"]
    assert isinstance(now, datetime)
    assert isinstance(uuid, UUID)
    assert 0 <= random < 1


def test_outside_a_run_and_inside_a_body_they_are_plain() -> None:
    @perdure.step
    def body() -> str:
        return str(perdure.uuid())

    @perdure.agent
    def agent() -> str:
        return body()

    perdure.run(agent, run_id="r")
    assert keys_of("r") == ["main.0"]
    assert perdure.now().tzinfo is UTC
    assert perdure.uuid() != perdure.uuid()
    assert perdure.patched("anything")


def changes(run_id: str) -> list[tuple[dict[str, Any], tuple[str, ...]]]:
    """What each completed step says of the working state."""
    found = []
    for done in bodies_of(run_id, Kind.STEP):
        state = {name: msgspec.json.decode(value) for name, value in (done.state or {}).items()}
        found.append((state, done.dropped))
    return found


def test_the_working_state_is_stored_as_changes_at_step_boundaries() -> None:
    @perdure.agent
    def agent() -> dict[str, Any]:
        state = perdure.current().state
        state["goal"] = "book a flight"
        work("1")
        work("2")
        state["plan"] = ["search"]
        work("3")
        state["plan"].append("book")
        work("4")
        del state["goal"]
        work("5")
        return dict(perdure.current().state)

    assert perdure.run(agent, run_id="r") == {"plan": ["search", "book"]}
    assert changes("r") == [
        ({"goal": "book a flight"}, ()),
        ({}, ()),
        ({"plan": ["search"]}, ()),
        ({"plan": ["search", "book"]}, ()),
        ({}, ("goal",)),
    ]


def test_the_working_state_is_rebuilt_by_the_replay_and_not_stored_twice() -> None:
    @perdure.agent
    def agent() -> dict[str, Any]:
        state = perdure.current().state
        assert state == {}
        state["goal"] = "fly"
        state["notes"] = [work("1")]
        state["notes"].append(work("2"))
        world.moment("two")
        state["notes"].append(work("3"))
        work("4")
        return dict(state)

    world.killed_at("two", lambda: perdure.run(agent, run_id="r"))
    assert perdure.run(agent, run_id="r") == {"goal": "fly", "notes": ["1", "2", "3"]}
    assert [state for state, _ in changes("r")] == [
        {"goal": "fly"},
        {"notes": ["1"]},
        {"notes": ["1", "2"]},
        {"notes": ["1", "2", "3"]},
    ]


def test_the_working_state_is_out_of_reach_in_a_body() -> None:
    @perdure.step
    def body() -> None:
        perdure.current().state["goal"] = "lost at the replay"

    @perdure.agent
    def agent() -> None:
        body()

    with pytest.raises(UsageError, match="inside the body of body"):
        perdure.run(agent)


def test_a_state_that_cannot_be_stored_is_named() -> None:
    @perdure.agent
    def agent() -> None:
        perdure.current().state["client"] = object()
        work("1")

    with pytest.raises(perdure.errors.UnstorableValue, match=r"state\['client'\] is an object"):
        perdure.run(agent)


@perdure.agent
def patched_agent() -> list[str]:
    found = [work("before")]
    if version[0] == "old":
        found.append(work("old"))
    elif perdure.patched("change"):
        found.append(work("new"))
    else:
        found.append(work("old"))
    world.moment("after the change")
    found.append(work("after"))
    world.moment("at the end")
    return found


def test_a_run_that_went_past_the_change_keeps_the_old_path() -> None:
    world.killed_at("after the change", lambda: perdure.run(patched_agent, run_id="r"))
    version[0] = "new"
    world.killed_at("at the end", lambda: perdure.run(patched_agent, run_id="r"))
    assert perdure.run(patched_agent, run_id="r") == ["before", "old", "after"]
    assert world.lines == ["before", "old", "after"]


def test_a_new_run_takes_the_new_path_and_keeps_it() -> None:
    version[0] = "new"
    world.killed_at("after the change", lambda: perdure.run(patched_agent, run_id="r"))
    world.killed_at("at the end", lambda: perdure.run(patched_agent, run_id="r"))
    assert perdure.run(patched_agent, run_id="r") == ["before", "new", "after"]
    assert world.lines == ["before", "new", "after"]
    assert [kind for kind, _, _ in calls_of("r")] == ["step", "patched", "step", "step"]


def test_a_run_that_had_not_come_to_the_change_takes_the_new_path() -> None:
    @perdure.agent
    def agent() -> list[str]:
        found = [work("before")]
        world.moment("before the change")
        found.append(work("new") if version[0] == "new" and perdure.patched("change") else work("old"))
        return found

    world.killed_at("before the change", lambda: perdure.run(agent, run_id="r"))
    version[0] = "new"
    assert perdure.run(agent, run_id="r") == ["before", "new"]


def test_the_new_path_stands_even_if_nothing_was_recorded_on_it_before_the_crash() -> None:
    @perdure.agent
    def agent() -> str:
        is_new = perdure.patched("change")
        world.note(str(is_new))
        world.moment("asked")
        return work("new" if is_new else "old")

    world.killed_at("asked", lambda: perdure.run(agent, run_id="r"))
    world.killed_at("asked", lambda: perdure.run(agent, run_id="r"))
    assert perdure.run(agent, run_id="r") == "new"
    assert world.lines == ["True", "True", "True", "new"]
    assert [kind for kind, _, _ in calls_of("r")] == ["patched", "step"]


def test_in_a_loop_each_round_keeps_the_path_it_took() -> None:
    @perdure.agent
    def agent() -> list[str]:
        found = []
        for number in range(4):
            is_new = version[0] == "new" and perdure.patched("change")
            found.append(work(f"{'new' if is_new else 'old'} {number}"))
            if number == 1:
                world.moment("half way")
        world.moment("at the end")
        return found

    world.killed_at("half way", lambda: perdure.run(agent, run_id="r"))
    version[0] = "new"
    world.killed_at("at the end", lambda: perdure.run(agent, run_id="r"))
    assert perdure.run(agent, run_id="r") == ["old 0", "old 1", "new 2", "new 3"]
    assert world.lines == ["old 0", "old 1", "new 2", "new 3"]


def test_a_change_before_strands_knows_that_the_old_code_started_them() -> None:
    async def strand(label: str) -> str:
        return work(label)

    @perdure.agent
    async def agent() -> list[str]:
        is_new = version[0] == "new" and perdure.patched("change")
        label = "new" if is_new else "old"
        found = list(await asyncio.gather(strand(f"{label} 0"), strand(f"{label} 1")))
        world.moment("strands")
        return found

    world.killed_at("strands", lambda: perdure.run(agent, run_id="r"))
    version[0] = "new"
    assert perdure.run(agent, run_id="r") == ["old 0", "old 1"]
    assert state_of("r") == "completed"


def test_a_change_after_strands_is_new_to_a_run_that_died_in_them() -> None:
    async def strand(label: str) -> str:
        work(label)
        world.moment(f"in {label}")
        return work(f"{label} again")

    @perdure.agent
    async def agent() -> list[str]:
        found = list(await asyncio.gather(strand("a"), strand("b")))
        if version[0] == "new" and perdure.patched("change"):
            found.append(work("new"))
        return found

    world.killed_at("in b", lambda: perdure.run(agent, run_id="r"))
    version[0] = "new"
    assert perdure.run(agent, run_id="r") == ["a again", "b again", "new"]


def test_two_changes_at_one_place_are_told_apart() -> None:
    @perdure.agent
    def agent() -> list[bool]:
        found = [perdure.patched("one"), perdure.patched("two")]
        work("after")
        return found

    assert perdure.run(agent, run_id="r") == [True, True]
    assert [key for kind, key, _ in calls_of("r") if kind == "patched"] == ["main.0?one", "main.0?two"]
