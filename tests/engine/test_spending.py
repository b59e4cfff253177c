"""What steps say they took: kept with the call, added up in the run, and counted in what a resume saves."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

import perdure
from perdure import events
from perdure.bodies import Cost
from perdure.engine.session import session
from perdure.errors import NotInRun, UsageError
from perdure.records import Kind, Run
from tests.engine.journals import bodies_of
from tests.engine.world import world


@perdure.step
def think(dollars: float) -> float:
    perdure.current().spent(dollars=dollars / 2, tokens=100)
    perdure.current().spent(dollars=dollars / 2)
    return dollars


def row_of(run_id: str) -> Run:
    run = session().store.read_run(run_id)
    assert run is not None
    return run


def test_cost_is_kept_with_the_call_and_added_up_in_the_run() -> None:
    @perdure.agent
    def agent() -> None:
        think(0.5)
        think(0.25)

    perdure.run(agent, run_id="r")
    assert [done.cost for done in bodies_of("r", Kind.STEP)] == [Cost(100, 0.5), Cost(100, 0.25)]
    assert (row_of("r").tokens, row_of("r").dollars) == (200, 0.75)


def test_call_that_took_nothing_says_nothing() -> None:
    @perdure.step
    def free() -> int:
        return 1

    @perdure.agent
    def agent() -> int:
        return free()

    perdure.run(agent, run_id="r")
    assert [done.cost for done in bodies_of("r", Kind.STEP)] == [None]
    assert (row_of("r").tokens, row_of("r").dollars) == (0, 0.0)


def test_failed_attempts_cost_too() -> None:
    @perdure.step(retry=perdure.Retry(attempts=3, delay_seconds=0))
    def flaky() -> str:
        perdure.current().spent(tokens=10)
        if perdure.current().attempt < 3:
            raise ConnectionError("busy")
        return "done"

    @perdure.agent
    def agent() -> str:
        return flaky()

    perdure.run(agent, run_id="r")
    assert [attempt.cost for attempt in bodies_of("r", Kind.ATTEMPT)] == [Cost(10), Cost(10)]
    assert row_of("r").tokens == 30


def test_failure_that_the_agent_sees_keeps_its_cost() -> None:
    @perdure.step
    def refuses() -> None:
        perdure.current().spent(dollars=2)
        raise ValueError("no")

    @perdure.agent
    def agent() -> str:
        try:
            refuses()
        except ValueError:
            return "handled"
        return ""

    perdure.run(agent, run_id="r")
    assert row_of("r").dollars == 2.0


def test_effects_and_items_of_a_map_cost_too() -> None:
    @perdure.effect
    def post(text: str) -> str:
        perdure.current().spent(dollars=1)
        return text

    @perdure.step
    def grade(item: int) -> int:
        perdure.current().spent(dollars=0.5, tokens=item)
        return item

    @perdure.agent
    def agent() -> int:
        post("x")
        return len(perdure.map(grade, range(10), batch=4))

    perdure.run(agent, run_id="r")
    assert sum(batch.cost.dollars for batch in bodies_of("r", Kind.BATCH)) == 5.0
    assert (row_of("r").tokens, row_of("r").dollars) == (45, 6.0)


def test_branches_that_think_at_once_each_keep_their_own_cost() -> None:
    @perdure.step
    async def consider(number: int) -> int:
        perdure.current().spent(tokens=number)
        await asyncio.sleep(0)
        perdure.current().spent(tokens=number)
        return number

    @perdure.agent
    async def agent() -> list[int]:
        return await asyncio.gather(*(consider(number) for number in range(1, 6)))

    perdure.run(agent, run_id="r")
    costs = sorted(done.cost.tokens for done in bodies_of("r", Kind.STEP))
    assert costs == [2, 4, 6, 8, 10]
    assert row_of("r").tokens == 30


def test_resume_says_what_it_saved_and_spends_only_the_rest(seen: list[Any]) -> None:
    @perdure.agent
    def agent() -> None:
        think(0.5)
        think(0.25)
        world.moment("before the third")
        think(4.0)

    world.killed_at("before the third", lambda: perdure.run(agent, run_id="r"))
    perdure.run(agent, run_id="r")
    resumed = [event for event in seen if isinstance(event, events.RunResumed)]
    assert [(event.saved_dollars, event.saved_tokens) for event in resumed] == [(0.75, 200)]
    assert (row_of("r").tokens, row_of("r").dollars) == (300, 4.75)


def test_outside_a_run_it_does_nothing() -> None:
    assert think(1.0) == 1.0


def test_agent_itself_is_told_where_to_say_it() -> None:
    @perdure.agent
    def agent() -> None:
        perdure.current().spent(dollars=1)

    with pytest.raises(NotInRun, match="in the agent itself"):
        perdure.run(agent, run_id="r")


@pytest.mark.parametrize("amount", [-1, math.nan, math.inf, "2", True])
def test_amount_that_is_none_is_refused(amount: Any) -> None:
    with pytest.raises(UsageError, match="spent"):
        perdure.current().spent(dollars=amount)
