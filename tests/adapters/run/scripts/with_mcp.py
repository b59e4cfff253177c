"""A loop over a model and an MCP server that knows nothing of perdure; tools are called one by one or at once."""

import asyncio
import json
import sys
from pathlib import Path

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from openai import AsyncOpenAI

SERVER = Path(__file__).with_name("mcp_outside.py")


async def perform(session: ClientSession, call: dict) -> dict:
    arguments = json.loads(call["function"]["arguments"])
    result = await session.call_tool(call["function"]["name"], arguments)
    return {"role": "tool", "tool_call_id": call["id"], "content": result.content[0].text}


async def ask(client: AsyncOpenAI, messages: list, tools: list, streamed: bool) -> dict:
    if not streamed:
        answer = await client.chat.completions.create(model="gpt-5", messages=messages, tools=tools)
        return answer.choices[0].message.model_dump(exclude_none=True)
    async with client.chat.completions.stream(model="gpt-5", messages=messages, tools=tools) as stream:
        said = (await stream.get_final_completion()).choices[0].message.model_dump(exclude_none=True)
    for call in said.get("tool_calls") or []:
        call["function"].pop("parsed_arguments", None)
    return {name: value for name, value in said.items() if name != "parsed"}


async def main() -> None:
    client, messages = AsyncOpenAI(), [{"role": "user", "content": "Do it."}]
    parameters = StdioServerParameters(command=sys.executable, args=[str(SERVER)])
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        listed = (await session.list_tools()).tools
        tools = [{"type": "function", "function": {"name": t.name, "parameters": {"type": "object"}}} for t in listed]
        while True:
            messages.append(await ask(client, messages, tools, "streamed" in sys.argv))
            calls = messages[-1].get("tool_calls")
            if not calls:
                print(messages[-1]["content"])
                return
            if "parallel" in sys.argv:
                messages += await asyncio.gather(*(perform(session, call) for call in calls))
            else:
                for call in calls:
                    messages.append(await perform(session, call))


asyncio.run(main())
