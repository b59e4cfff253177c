"""An agent of the OpenAI Agents SDK that knows nothing of perdure: it looks, sends and pays, and keeps notes."""

import asyncio
import sys
from dataclasses import dataclass, field

from agents import Agent, OpenAIChatCompletionsModel, RunContextWrapper, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from errand import act

set_tracing_disabled(True)


@dataclass
class Notes:
    seen: list[str] = field(default_factory=list)
    calls: int = 0


@function_tool
async def look(context: RunContextWrapper[Notes], what: str) -> str:
    """Look at something."""
    context.context.seen.append(what)
    context.context.calls += 1
    return act("look", what)


@function_tool
def send(to: str) -> str:
    """Send a letter."""
    return act("send", to)


@function_tool
async def pay(context: RunContextWrapper[Notes], cents: int) -> str:
    """Pay somebody."""
    context.context.calls += 1
    return act("pay", cents)


async def main(streamed: bool) -> None:
    client = AsyncOpenAI()
    model = "gpt-5" if "responses" in sys.argv else OpenAIChatCompletionsModel("gpt-5", openai_client=client)
    agent = Agent(name="assistant", instructions="Be quick.", model=model, tools=[look, send, pay])
    notes = Notes()
    if streamed:
        result = Runner.run_streamed(agent, "Do it.", context=notes)
        async for _ in result.stream_events():
            pass
    else:
        result = await Runner.run(agent, "Do it.", context=notes)
    print(result.final_output, sorted(notes.seen), notes.calls)


asyncio.run(main("streamed" in sys.argv))
