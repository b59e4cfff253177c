"""An agent of the Microsoft Agent Framework that knows nothing of perdure."""

import asyncio
import sys

from agent_framework.openai import OpenAIChatCompletionClient

from errand import act


def look(what: str) -> str:
    """Look at something."""
    return act("look", what)


async def send(to: str) -> str:
    """Send a letter."""
    return act("send", to)


def pay(cents: int) -> str:
    """Pay somebody."""
    return act("pay", cents)


async def main(streamed: bool) -> None:
    client = OpenAIChatCompletionClient(model="gpt-5")
    agent = client.as_agent(name="assistant", instructions="Be quick.", tools=[look, send, pay])
    if streamed:
        said = "".join([update.text async for update in agent.run("Do it.", stream=True) if update.text])
    else:
        said = (await agent.run("Do it.")).text
    print(said)


asyncio.run(main("streamed" in sys.argv))
