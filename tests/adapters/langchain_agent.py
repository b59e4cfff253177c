"""A LangChain agent in a process that can be killed anywhere; each tool leaves a line in a log outside.

AGENT_IS_ASYNC=1 has it invoked on an event loop.
"""

from __future__ import annotations

import os

from langchain.agents import create_agent
from langchain_core.tools import BaseTool, tool
from langchain_openai import ChatOpenAI

import perdure
from perdure.adapters.langchain import PerdureMiddleware
from tests.adapters import late
from tests.adapters.recovery import RUN_ID, end
from tests.crash import killer

late.load()


def perform(name: str, what: str) -> str:
    killer.moment("begun", f"{name} {what}")
    outside = os.open("outside", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(outside, f"{name} {what}\n".encode())
    os.close(outside)
    killer.moment("performed", f"{name} {what}")
    return f"{name} {what}: done"


@tool
def look_up(what: str) -> str:
    """Look somebody up."""
    return perform("look_up", what)


@tool
def send(what: str) -> str:
    """Send a mail."""
    return perform("send", what)


@tool
def note(what: str) -> str:
    """Take a note."""
    return perform("note", what)


TOOLS: list[BaseTool] = [look_up, send, note]
QUESTION = {"messages": [{"role": "user", "content": "Write to Ada and Bob."}]}


def assistant() -> object:
    model = ChatOpenAI(model=os.environ["MODEL"], max_retries=0)
    return create_agent(model, TOOLS, middleware=[PerdureMiddleware(tools={"look_*": "step"})])


@perdure.agent
def clerk() -> list[str]:
    done = assistant().invoke(QUESTION)  # type: ignore[attr-defined]
    return [str(message.content) for message in done["messages"]]


@perdure.agent
async def clerk_async() -> list[str]:
    done = await assistant().ainvoke(QUESTION)  # type: ignore[attr-defined]
    return [str(message.content) for message in done["messages"]]


def main() -> None:
    killer.arm()
    print(perdure.run(clerk_async if os.environ.get("AGENT_IS_ASYNC") else clerk, run_id=RUN_ID))
    end()
