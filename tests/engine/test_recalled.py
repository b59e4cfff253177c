"""A resume answers recorded steps the short way: with the same values, at the same places, at the same moments."""

from __future__ import annotations

import asyncio
import contextvars
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from tests.engine.journals import keys_of, state_of
from tests.engine.world import world

SOME = 5
LONG = 200_000
"""More than a record holds by itself: loading the value lets other threads go on."""

built: list[int] = []


@dataclass
class Parcel:
    """Makes a call of its own whenever it is built, also from a record."""

    number: int

    def __post_init__(self) -> None:
        built.append(self.number)
        perdure.uuid()


@pytest.fixture(autouse=True)
def nothing_built() -> None:
    built.clear()


@perdure.step
def vote(_question: str) -> str:
    world.note("voted")
    return str(len(world.lines)) * LONG


@perdure.step
def packed(number: int) -> Parcel:
    world.note(f"packed {number}")
    return Parcel(number)


@perdure.step
async def packed_async(number: int) -> Parcel:
    world.note(f"packed {number}")
    return Parcel(number)


def test_threads_that_share_a_scope_are_given_each_its_own_recorded_value() -> None:
    @perdure.agent
    def election() -> list[str]:
        contexts = [contextvars.copy_context() for _ in range(SOME)]
        with ThreadPoolExecutor(SOME) as pool:
            votes = sorted(text[0] for text in pool.map(lambda _: contexts.pop().run(vote, "42?"), range(SOME)))
        world.note("".join(votes))
        world.moment("counted")
        return votes

    world.killed_at("counted", lambda: perdure.run(election, run_id="r"))
    assert "".join(perdure.run(election, run_id="r")) == world.lines[SOME]
    assert (world.count("voted"), state_of("r")) == (SOME, "completed")


def test_a_value_that_makes_a_call_while_it_is_built_is_built_after_its_step_has_its_key() -> None:
    @perdure.agent
    def agent() -> int:
        total = packed(1).number + packed(2).number
        world.moment("packed")
        return total

    world.killed_at("packed", lambda: perdure.run(agent, run_id="r"))
    assert perdure.run(agent, run_id="r") == 3
    assert sorted(keys_of("r")) == ["main.0", "main.1", "main.2", "main.3"]


def test_such_a_value_is_built_by_the_task_that_awaits_it() -> None:
    @perdure.agent
    async def agent() -> int:
        first, second = await asyncio.gather(packed_async(1), packed_async(2))
        world.moment("packed")
        return first.number + second.number

    world.killed_at("packed", lambda: perdure.run(agent, run_id="r"))
    before = keys_of("r")
    assert perdure.run(agent, run_id="r") == 3
    assert keys_of("r") == before
    assert len([key for key in before if key.startswith("main/packed_async")]) == 2


def test_a_recorded_value_takes_no_memory_before_it_is_awaited() -> None:
    @perdure.agent
    async def agent() -> Any:
        coroutines = [packed_async(number) for number in range(SOME)]
        waiting = list(built)
        numbers = [(await each).number for each in coroutines]
        world.moment("packed")
        return waiting, numbers

    world.killed_at("packed", lambda: perdure.run(agent, run_id="r"))
    assert perdure.run(agent, run_id="r") == ([], list(range(SOME)))
