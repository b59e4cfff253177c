"""An agent of Google ADK in a process that can be killed anywhere; each tool leaves a line in a log outside."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from google.adk.agents import LlmAgent
from google.adk.models import Gemini
from google.adk.runners import InMemoryRunner
from google.adk.tools import ToolContext
from google.genai import types

import perdure
from perdure.adapters.adk import PerdurePlugin
from tests.adapters.recovery import RUN_ID, end
from tests.crash import killer

SCRIPT = """
from perdure.testing.model_server import tool


def script(model):
    model.calls("look_up", what="ada")
    model.calls(tool("send", what="to ada"), tool("send", what="to bob"), tool("send", what="to ada"))
    model.calls("note", what="sent")
    model.says("All done.")
"""


def perform(name: str, what: str) -> dict[str, str]:
    killer.moment("begun", f"{name} {what}")
    outside = os.open("outside", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(outside, f"{name} {what} {perdure.current().key[:8]}\n".encode())
    os.close(outside)
    killer.moment("performed", f"{name} {what}")
    return {"result": f"{name} {what}: done"}


async def look_up(what: str) -> dict[str, str]:
    """Look somebody up."""
    return perform("look_up", what)


async def send(what: str) -> dict[str, str]:
    """Send a mail."""
    return perform("send", what)


async def note(what: str, tool_context: ToolContext) -> dict[str, str]:
    """Take a note."""
    told = perform("note", what)
    tool_context.state["noted"] = what
    return told


def assistant() -> LlmAgent:
    model = Gemini(model=os.environ["MODEL"])
    tools: list[Any] = [look_up, send, note]
    return LlmAgent(name="clerk", model=model, instruction="Be brief. Noted: {noted?}", tools=tools)


@perdure.agent
async def clerk(wish: str) -> list[str]:
    runner = InMemoryRunner(agent=assistant(), plugins=[PerdurePlugin(tools={"look_*": "step"})])
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="user")
    said = []
    message = types.Content(role="user", parts=[types.Part(text=wish)])
    async for event in runner.run_async(user_id="user", session_id=session.id, new_message=message):
        parts = (event.content.parts if event.content else None) or []
        said += [part.text or str(part.function_response and part.function_response.response) for part in parts]
    ended = await runner.session_service.get_session(app_name=runner.app_name, user_id="user", session_id=session.id)
    tell(str(ended.state if ended else None))
    return said


def tell(state: str) -> None:
    """What a person settles has a result and no more: the state is told beside what is compared."""
    Path("state").write_text(state)


def main() -> None:
    killer.arm()
    print(perdure.run(clerk, "Write to Ada and Bob.", run_id=RUN_ID))
    end()
