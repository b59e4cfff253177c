"""An agent of the OpenAI Agents SDK, for trials: two looks beside a letter, a handoff, a payment beside a letter."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any

import agents
import httpx2
import openai
from agents import Agent, ModelSettings, OpenAIProvider, RunConfig, RunContextWrapper, function_tool

import perdure
from perdure.adapters.openai_agents import PerdureSession, run, run_streamed
from tests.adapters import late
from tests.adapters.agent_trials import RUN_ID, act, undergo

late.load()
agents.set_tracing_disabled(True)


@dataclass
class Context:
    seen: list[str] = field(default_factory=list)
    calls: int = 0


@function_tool
async def look(ctx: RunContextWrapper[Context], what: str) -> str:
    ctx.context.seen.append(what)
    ctx.context.calls += 1
    return f"saw {what}"


@function_tool
async def send(ctx: RunContextWrapper[Context], to: str) -> str:
    ctx.context.calls += 1
    return act("send", to)


@function_tool
def pay(cents: int) -> str:
    return act("pay", cents, perdure.current().key)


cashier = Agent[Context](name="cashier", instructions="Pay.", tools=[pay, send])
assistant = Agent[Context](name="assistant", instructions="Help.", tools=[look, send], handoffs=[cashier])
TOOLS = {"look": "step", "pay": "keyed"}


def config_here(*, use_responses: bool = True) -> RunConfig:
    """The model of the server whose address is in the environment; no certificates are loaded, no lines kept open."""
    lines = httpx2.AsyncClient(verify=False, limits=httpx2.Limits(max_keepalive_connections=0))
    client = openai.AsyncOpenAI(http_client=lines)
    return RunConfig(
        model="gpt-5",
        model_provider=OpenAIProvider(openai_client=client, use_responses=use_responses),
        model_settings=ModelSettings(parallel_tool_calls=True),
    )


@perdure.agent
async def errand(task: str, streamed: bool) -> list[object]:
    context, session = Context(), PerdureSession("desk")
    options: Any = {"context": context, "session": session, "run_config": config_here()}
    if not streamed:
        result = await run(assistant, task, tools=TOOLS, **options)
        text, last = result.final_output, result.last_agent.name
    else:
        streaming = run_streamed(assistant, task, tools=TOOLS, **options)
        pieces = [
            event.data.delta
            async for event in streaming.stream_events()
            if event.type == "raw_response_event" and event.data.type == "response.output_text.delta"
        ]
        text, last = "".join(pieces), streaming.last_agent.name
    history = await session.get_items()
    session.close()
    return [text, last, sorted(context.seen), context.calls, len(history)]


def main() -> None:
    undergo(lambda: perdure.run(errand, "Do it.", bool(os.environ.get("STREAMED")), run_id=RUN_ID))
