"""An agent whose model calls the tools of an MCP server, in a process that can be killed anywhere."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import openai
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

import perdure
from perdure.adapters.mcp import protected
from tests.adapters import late
from tests.adapters.mcp_server import ANNOTATIONS
from tests.adapters.recovery import RUN_ID, end
from tests.crash import killer

late.load()
SERVER = StdioServerParameters(command=sys.executable, args=["-m", "tests.adapters.mcp_server"])


@perdure.step
async def think(messages: list[dict[str, Any]]) -> dict[str, Any]:
    tools: Any = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in ANNOTATIONS]
    asked: Any = messages
    async with openai.AsyncOpenAI() as client:
        answer = await client.chat.completions.create(model=os.environ["MODEL"], messages=asked, tools=tools)
    return answer.choices[0].message.model_dump(mode="json", exclude_none=True)


@perdure.agent
async def clerk(wish: str) -> str:
    said: list[dict[str, Any]] = [{"role": "user", "content": wish}]
    server = SERVER.model_copy(update={"env": dict(os.environ), "cwd": Path.cwd()})
    async with stdio_client(server) as streams, ClientSession(*streams) as session:
        await session.initialize()
        tools = protected(session)
        while calls := (said := [*said, await think(said)])[-1].get("tool_calls"):
            asked = [tools.call_tool(call["function"]["name"], _arguments(call)) for call in calls]
            for call, result in zip(calls, await asyncio.gather(*asked), strict=True):
                told = "".join(getattr(part, "text", "") for part in result.content)
                said.append({"role": "tool", "tool_call_id": call["id"], "content": told})
    return json.dumps([message["content"] for message in said if message.get("content")])


def _arguments(call: dict[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = json.loads(call["function"]["arguments"])
    return given


def main() -> None:
    killer.arm()
    print(perdure.run(clerk, "Write to Ada.", run_id=RUN_ID))
    end()
