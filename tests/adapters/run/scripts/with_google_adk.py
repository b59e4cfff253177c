"""An agent of the Google Agent Development Kit that knows nothing of perdure: its tools keep notes in its state."""

import asyncio
import sys

from google.adk.agents import Agent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.runners import InMemoryRunner
from google.adk.tools import ToolContext
from google.genai import types

from errand import act


def look(what: str, tool_context: ToolContext) -> dict:
    """Look at something."""
    tool_context.state["seen"] = [*tool_context.state.get("seen", []), what]
    return {"said": act("look", what)}


def send(to: str) -> dict:
    """Send a letter."""
    return {"said": act("send", to)}


async def pay(cents: int) -> dict:
    """Pay somebody."""
    return {"said": act("pay", cents)}


async def main(streamed: bool) -> None:
    agent = Agent(name="assistant", model="gemini-3-pro", instruction="Be quick.", tools=[look, send, pay])
    runner = InMemoryRunner(agent, app_name="errands")
    session = await runner.session_service.create_session(app_name="errands", user_id="ada", session_id="one")
    message = types.Content(role="user", parts=[types.Part(text="Do it.")])
    mode = RunConfig(streaming_mode=StreamingMode.SSE if streamed else StreamingMode.NONE)
    said = ""
    async for event in runner.run_async(user_id="ada", session_id=session.id, new_message=message, run_config=mode):
        if event.is_final_response() and event.content and not event.partial:
            said = "".join(part.text or "" for part in event.content.parts)
    session = await runner.session_service.get_session(app_name="errands", user_id="ada", session_id="one")
    print(said, sorted(session.state.get("seen", [])))


asyncio.run(main("streamed" in sys.argv))
