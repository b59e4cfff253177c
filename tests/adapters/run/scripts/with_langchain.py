"""An agent of LangChain that knows nothing of perdure: async, with a tool that changes the state of the graph."""

import asyncio
import sys
from typing import Annotated

from langchain.agents import AgentState, create_agent
from langchain.tools import InjectedToolCallId, tool
from langchain_core.messages import ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.types import Command

from errand import act


class Noting(AgentState):
    seen: Annotated[list[str], lambda one, other: one + other]


@tool
async def look(what: str, tool_call_id: Annotated[str, InjectedToolCallId]) -> Command:
    """Look at something."""
    said = ToolMessage(act("look", what), tool_call_id=tool_call_id)
    return Command(update={"messages": [said], "seen": [what]})


@tool
async def send(to: str) -> str:
    """Send a letter."""
    return act("send", to)


@tool
def pay(cents: int) -> str:
    """Pay somebody."""
    return act("pay", cents)


async def main(streamed: bool) -> None:
    model = ChatOpenAI(model="gpt-5", streaming=streamed)
    agent = create_agent(model, tools=[look, send, pay], state_schema=Noting)
    given = {"messages": [("user", "Do it.")], "seen": []}
    if streamed:
        async for _mode, state in agent.astream(given, stream_mode=["messages", "values"]):
            last = state
    else:
        last = await agent.ainvoke(given)
    print(last["messages"][-1].content, sorted(last["seen"]))


asyncio.run(main("streamed" in sys.argv))
