"""MCP sessions in a run: which calls are steps and which are effects, and what comes back at a replay."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import perdure
from perdure.engine.scope import current_frame
from perdure.errors import UsageError
from tests.adapters.lazily import Lazily
from tests.crash.evidence import read_journal
from tests.crash.nursery import ROOT

if TYPE_CHECKING:
    import mcp
    from mcp.client import stdio

    from perdure.adapters import mcp as adapter
else:
    adapter = Lazily("perdure.adapters.mcp")
    mcp = Lazily("mcp")
    stdio = Lazily("mcp.client.stdio")

Body = Callable[["mcp.ClientSession"], Awaitable[Any]]


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PERDURE_STORE", str(tmp_path / "runs.db"))
    monkeypatch.setenv("PERDURE_DURABILITY", "process")


@asynccontextmanager
async def session(name: str = "") -> AsyncIterator[mcp.ClientSession]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "SERVER_NAME": name or "post"}
    arguments = ["-m", "tests.adapters.mcp_server"]
    server = mcp.StdioServerParameters(command=sys.executable, args=arguments, env=environment)
    async with stdio.stdio_client(server) as streams, mcp.ClientSession(*streams) as opened:
        await opened.initialize()
        yield opened


def run_twice(body: Body) -> tuple[Any, Any]:
    """What an agent gives, and what it gives when a run of it is resumed that has everything but its end."""
    given: list[Any] = []

    @perdure.agent
    async def twice() -> Any:
        async with session() as opened:
            given.append(await body(opened))
        if len(given) == 1:
            raise KeyboardInterrupt
        return given[-1]

    with pytest.raises(KeyboardInterrupt):
        perdure.run(twice, run_id="twice")
    return given[0], perdure.run(twice, run_id="twice")


def kinds(tmp_path: Path) -> dict[str, str]:
    """What each call was recorded as."""
    entries = read_journal(tmp_path / "runs.db", "twice").entries
    return {entry.name: entry.kind for entry in entries if entry.kind in ("step", "receipt")}


def outside() -> list[str]:
    return Path("outside").read_text().splitlines()


async def call_all(tools: mcp.ClientSession) -> list[str]:
    results = [await tools.call_tool(name, {"what": "x"}) for name in ("look_up", "label", "send", "note")]
    return [getattr(result.content[0], "text", "") for result in results]


def test_hints_of_the_server_make_steps_and_everything_else_is_an_effect(tmp_path: Path) -> None:
    first, again = run_twice(lambda opened: call_all(adapter.protected(opened)))
    assert first == again == ["look_up x: done", "label x: done", "send x: done", "note x: done"]
    assert kinds(tmp_path) == {
        "post.look_up": "step",
        "post.label": "step",
        "post.send": "receipt",
        "post.note": "receipt",
    }
    assert len(outside()) == 4


def test_a_server_that_is_not_trusted_gets_effects_and_what_is_declared_counts(tmp_path: Path) -> None:
    def guarded(opened: mcp.ClientSession) -> mcp.ClientSession:
        return adapter.protected(opened, tools={"look_*": "step"}, trust_annotations=False)

    run_twice(lambda opened: call_all(guarded(opened)))
    assert [name for name, kind in kinds(tmp_path).items() if kind == "step"] == ["post.look_up"]


def test_tools_of_one_name_at_two_servers_do_not_get_each_others_results(tmp_path: Path) -> None:
    async def both(opened: mcp.ClientSession) -> list[str]:
        async with session("mail") as other:
            results = [await adapter.protected(each).call_tool("send", {"what": "x"}) for each in (opened, other)]
        return [getattr(result.content[0], "text", "") for result in results]

    first, again = run_twice(both)
    assert first == again
    assert list(kinds(tmp_path)) == ["post.send", "mail.send"]
    assert outside() == ["send x", "send x"]


def test_a_call_that_the_server_refuses_is_no_doubt_and_is_refused_again_at_a_replay() -> None:
    async def refused(opened: mcp.ClientSession) -> str:
        with pytest.raises(mcp.MCPError) as error:
            await adapter.protected(opened, tools={"missing": "effect"}).call_tool("missing", {"what": "x"})
        return str(error.value)

    assert run_twice(refused) == ("Unknown tool: missing", "Unknown tool: missing")


def test_a_call_inside_an_effect_of_the_agent_is_part_of_it(tmp_path: Path) -> None:
    async def inside(opened: mcp.ClientSession) -> str:
        @perdure.effect
        async def deliver() -> str:
            return getattr((await adapter.protected(opened).call_tool("send", {"what": "x"})).content[0], "text", "")

        return await deliver()

    assert run_twice(inside) == ("send x: done", "send x: done")
    assert list(kinds(tmp_path)) == ["deliver"]


def test_the_tasks_that_serve_a_connection_are_not_waited_for_when_the_run_leaves_memory() -> None:
    async def strands(opened: mcp.ClientSession) -> int:
        await adapter.protected(opened).call_tool("look_up", {"what": "x"})
        frame = current_frame()
        assert frame is not None
        assert frame.active is not None
        return len(frame.active.strands)

    assert run_twice(strands) == (0, 0)


def test_everything_else_of_a_session_is_passed_through() -> None:
    async def look(opened: mcp.ClientSession) -> list[Any]:
        tools = adapter.protected(opened)
        listed = (await tools.list_tools()).tools
        return [isinstance(tools, mcp.ClientSession), len(listed), tools.server_info is not None]

    assert run_twice(look) == ([True, 2, True], [True, 2, True])


def test_the_client_of_the_sdk_and_its_own_server_are_protected_as_well(tmp_path: Path) -> None:
    server = mcp.server.MCPServer("desk")
    paid: list[int] = []

    @server.tool()
    def pay(cents: int) -> str:
        """Pay."""
        paid.append(cents)
        return f"paid {cents}"

    async def paying(_: mcp.ClientSession) -> str:
        async with mcp.Client(server) as client:
            result = await adapter.protected(client).call_tool("pay", {"cents": 7})  # type: ignore[arg-type]
            return getattr(result.content[0], "text", "")

    assert run_twice(paying) == ("paid 7", "paid 7")
    assert (paid, kinds(tmp_path)) == ([7], {"desk.pay": "receipt"})


def test_what_is_no_session_is_refused_at_once() -> None:
    with pytest.raises(UsageError) as refused:
        adapter.protected(object())  # type: ignore[arg-type]
    assert "pip install 'perdure[mcp]'" in refused.value.hint
