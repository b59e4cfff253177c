"""An agent of Pydantic AI that knows nothing of perdure: its tools keep notes in its dependencies."""

import asyncio
import sys
from dataclasses import dataclass, field

from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel

from errand import act


@dataclass
class Notes:
    seen: list[str] = field(default_factory=list)
    calls: int = 0


agent = Agent(OpenAIChatModel("gpt-5"), deps_type=Notes, instructions="Be quick.")


@agent.tool
async def look(ctx: RunContext[Notes], what: str) -> str:
    """Look at something."""
    ctx.deps.seen.append(what)
    ctx.deps.calls += 1
    return act("look", what)


@agent.tool_plain
def send(to: str) -> str:
    """Send a letter."""
    return act("send", to)


@agent.tool
def pay(ctx: RunContext[Notes], cents: int) -> str:
    """Pay somebody."""
    ctx.deps.calls += 1
    return act("pay", cents)


async def main(streamed: bool) -> None:
    notes = Notes()
    if streamed:
        async with agent.run_stream("Do it.", deps=notes) as result:
            said = "".join([piece async for piece in result.stream_text(delta=True)])
    else:
        said = (await agent.run("Do it.", deps=notes)).output
    print(said, sorted(notes.seen), notes.calls)


asyncio.run(main("streamed" in sys.argv))
