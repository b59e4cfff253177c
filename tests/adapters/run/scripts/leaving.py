"""Small scripts in which a tool call is no tool, or a tool is left before it has an outcome; the first argument names one."""

import asyncio
import sys

from errand import act


def handoff() -> None:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, handoff, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    model = OpenAIChatCompletionsModel("gpt-5", openai_client=AsyncOpenAI())

    @function_tool
    def send(to: str) -> str:
        return act("send", to)

    def called(_context: object) -> None:
        act("handed", "over")

    writer = Agent(name="writer", model=model, tools=[send])
    clerk = Agent(name="clerk", model=model, handoffs=[writer])
    desk = Agent(name="desk", model=model, handoffs=[handoff(clerk, on_handoff=called)])
    print(asyncio.run(Runner.run(desk, "Do it.")).final_output)


def agent_tool() -> None:
    from agents import Agent, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    model = OpenAIChatCompletionsModel("gpt-5", openai_client=AsyncOpenAI())

    @function_tool
    def send(to: str) -> str:
        return act("send", to)

    writer = Agent(name="writer", instructions="You write.", model=model, tools=[send])
    desk = Agent(name="desk", model=model, tools=[writer.as_tool("write", "Writes.")])
    print(asyncio.run(Runner.run(desk, "Do it.")).final_output)


def answer() -> None:
    from pydantic import BaseModel
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel

    class Letter(BaseModel):
        to: str

    agent = Agent(OpenAIChatModel("gpt-5"), output_type=Letter)

    @agent.tool_plain
    def count(number: int) -> str:
        return act("count", number)

    first = agent.run_sync("Do it.")
    print(first.output, agent.run_sync("And again.", message_history=first.all_messages()).output)


def interrupted() -> None:
    from langchain.agents import create_agent
    from langchain.tools import tool
    from langchain_openai import ChatOpenAI
    from langgraph.checkpoint.memory import InMemorySaver
    from langgraph.types import Command, interrupt

    @tool
    def send(to: str) -> str:
        """Send a letter."""
        if interrupt(f"Send to {to}?") != "yes":
            return "not sent"
        return act("send", to)

    agent = create_agent(ChatOpenAI(model="gpt-5"), tools=[send], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "one"}}
    asked = agent.invoke({"messages": [("user", "Do it.")]}, config)
    print([each.value for each in asked["__interrupt__"]])
    print(agent.invoke(Command(resume="yes"), config)["messages"][-1].content)


def approval() -> None:
    from pydantic_ai import Agent, ApprovalRequired, DeferredToolRequests, DeferredToolResults, RunContext
    from pydantic_ai.models.openai import OpenAIChatModel

    agent = Agent(OpenAIChatModel("gpt-5"), output_type=[str, DeferredToolRequests])

    @agent.tool
    def send(ctx: RunContext[None], to: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return act("send", to)

    first = agent.run_sync("Do it.")
    print([call.tool_name for call in first.output.approvals])
    results = DeferredToolResults(approvals={call.tool_call_id: True for call in first.output.approvals})
    print(agent.run_sync(message_history=first.all_messages(), deferred_tool_results=results).output)


{each.__name__: each for each in (handoff, agent_tool, answer, interrupted, approval)}[sys.argv[1]]()
