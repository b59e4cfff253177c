"""Histories of conversations: whole, in order, never written twice, and no tool call in them left open."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

import perdure
from perdure.errors import EffectInDoubt, StoreUnavailable
from perdure.testing.model_server import ModelServer, Tool
from tests.adapters.lazily import Lazily
from tests.adapters.replaying import Replayed, run_twice

if TYPE_CHECKING:
    import agents

    from perdure.adapters import openai_agents
    from perdure.adapters.openai_agents import orphans
    from tests.adapters import openai_agent
else:
    agents = Lazily("agents")
    openai_agent = Lazily("tests.adapters.openai_agent")
    openai_agents = Lazily("perdure.adapters.openai_agents")
    orphans = Lazily("perdure.adapters.openai_agents.orphans")


@pytest.fixture
def session(location: str) -> Iterator[openai_agents.PerdureSession]:
    with closing(openai_agents.PerdureSession("desk", location)) as opened:
        yield opened


def said(number: int) -> dict[str, Any]:
    return {"role": "user", "content": f"message {number} ünïcode \0 \U0001f600"}


def call(call_id: str, name: str = "send") -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}


def output(call_id: str, text: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def test_items_come_back_as_they_were_and_in_their_order(session: openai_agents.PerdureSession) -> None:
    async def use() -> None:
        await session.add_items([said(0), said(1)])
        await session.add_items([])
        await session.add_items([said(2)])
        assert await session.get_items() == [said(0), said(1), said(2)]
        assert await session.get_items(limit=2) == [said(1), said(2)]
        assert await session.get_items(limit=9) == [said(0), said(1), said(2)]
        assert await session.get_items(limit=0) == []

    assert isinstance(session, agents.Session)
    asyncio.run(use())


def test_taking_away_and_adding_again_keeps_the_order(session: openai_agents.PerdureSession) -> None:
    async def use() -> None:
        assert await session.pop_item() is None
        await session.add_items([said(number) for number in range(12)])
        assert await session.pop_item() == said(11)
        await session.add_items([said(12)])
        assert (await session.get_items())[-2:] == [said(10), said(12)]
        await session.clear_session()
        assert await session.get_items() == []
        await session.add_items([said(13)])
        assert await session.get_items() == [said(13)]

    asyncio.run(use())


def test_histories_of_two_sessions_do_not_mix(session: openai_agents.PerdureSession, location: str) -> None:
    async def use(other: openai_agents.PerdureSession) -> None:
        await session.add_items([said(0)])
        await other.add_items([said(1)])
        await other.clear_session()
        assert await session.get_items() == [said(0)]

    if location == "memory:":
        pytest.skip("each cabinet in memory is its own")
    with closing(openai_agents.PerdureSession("des", location)) as other:
        asyncio.run(use(other))


def test_what_many_add_at_once_is_all_there_and_each_part_is_together(session: openai_agents.PerdureSession) -> None:
    def add(writer: int) -> None:
        for number in range(4):
            asyncio.run(session.add_items([said(100 * writer + 10 * number + at) for at in range(3)]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(4)))

    numbers = [int(item["content"].split()[1]) for item in asyncio.run(session.get_items())]
    parts = [numbers[at : at + 3] for at in range(0, len(numbers), 3)]
    assert len(numbers) == 48
    assert all(part == [part[0], part[0] + 1, part[0] + 2] for part in parts)
    for writer in range(4):
        assert [part[0] % 100 for part in parts if part[0] // 100 == writer] == [0, 10, 20, 30]


def test_a_session_that_was_closed_says_so(session: openai_agents.PerdureSession) -> None:
    session.close()
    with pytest.raises(StoreUnavailable, match="closed"):
        asyncio.run(session.get_items())


def test_a_call_that_nothing_is_known_of_is_closed_as_in_doubt(session: openai_agents.PerdureSession) -> None:
    async def use() -> list[Any]:
        await session.add_items([said(0), call("c1"), call("c2"), output("c2", "done"), said(1)])
        return await session.get_items()

    items = asyncio.run(use())
    assert items == [said(0), call("c1"), output("c1", orphans.UNKNOWN), call("c2"), output("c2", "done"), said(1)]


@pytest.mark.usefixtures("perdure_store")
def test_a_replay_adds_nothing_again_and_reads_what_it_read_before() -> None:
    twice, read = Replayed(), []

    @perdure.agent
    async def main() -> list[Any]:
        with closing(openai_agents.PerdureSession("desk")) as session:
            read.append(await session.get_items())
            await session.add_items([said(0), said(1)])
            taken = await session.pop_item()
            await session.add_items([said(2)])
            twice.end()
            return [taken, await session.get_items()]

    assert run_twice(main) == [said(1), [said(0), said(2)]]
    assert read == [[], []]


@pytest.mark.usefixtures("perdure_store")
def test_a_change_that_was_made_and_not_recorded_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = openai_agents.PerdureSession._add  # noqa: SLF001 - dies between the change and its record
    deaths = [RuntimeError("died")]

    def dying(self: openai_agents.PerdureSession, items: list[Any], token: str) -> None:
        made(self, items, token)
        if deaths:
            raise deaths.pop()

    monkeypatch.setattr(openai_agents.PerdureSession, "_add", dying)

    @perdure.agent
    async def main() -> list[Any]:
        with closing(openai_agents.PerdureSession("desk")) as session:
            await session.add_items([said(0)])
            return await session.get_items()

    with pytest.raises(RuntimeError, match="died"):
        perdure.run(main, run_id="r")
    assert perdure.run(main, run_id="r") == [said(0)]


@pytest.mark.usefixtures("perdure_store", "model")
def test_calls_that_a_dead_run_left_open_are_closed_with_what_became_of_them(model: ModelServer) -> None:
    model.calls(Tool("done", {}, "c-done"), Tool("unsure", {}, "c-unsure")).says("never")

    def done() -> str:
        return "all well"

    def unsure() -> str:
        raise TimeoutError("no answer")

    @perdure.agent
    async def broken() -> None:
        with closing(openai_agents.PerdureSession("desk")) as session:
            await session.add_items([said(0), call("c-done", "done"), call("c-unsure", "unsure"), call("c-never", "x")])
            tools = [agents.function_tool(done), agents.function_tool(unsure, failure_error_function=None)]
            await openai_agents.run(
                agents.Agent(name="helper", tools=[*tools]), "Go.", run_config=openai_agent.config_here()
            )

    @perdure.agent
    async def later() -> list[Any]:
        with closing(openai_agents.PerdureSession("desk")) as session:
            return [item["output"] for item in await session.get_items() if "output" in item]

    with pytest.raises(EffectInDoubt):
        perdure.run(broken, run_id="broken")

    assert perdure.run(later) == ["all well", orphans.IN_DOUBT, orphans.NEVER_BEGUN]
    with closing(openai_agents.PerdureSession("desk")) as session:
        outside = [item["output"] for item in asyncio.run(session.get_items()) if "output" in item]
    assert outside == ["all well", orphans.IN_DOUBT, orphans.NEVER_BEGUN]
