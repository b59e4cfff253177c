"""An agent of Pydantic AI, for trials: two looks beside a letter, then a payment beside a second letter."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

import genai_prices.data  # noqa: F401 - so that no process under trial has to load the prices
import httpx2
from pydantic_ai import Agent, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import perdure
from perdure.adapters.pydantic_ai import PerdureDurability
from tests.adapters import late
from tests.adapters.agent_trials import RUN_ID, act, undergo

late.load()


@dataclass
class Deps:
    seen: list[str] = field(default_factory=list)
    calls: int = 0


async def look(ctx: RunContext[Deps], what: str) -> str:
    ctx.deps.seen.append(what)
    ctx.deps.calls += 1
    return f"saw {what}"


async def send(ctx: RunContext[Deps], to: str) -> str:
    ctx.deps.calls += 1
    return act("send", to)


def pay(cents: int) -> str:
    return act("pay", cents, perdure.current().key)


def model_here() -> OpenAIChatModel:
    """The model of the server whose address is in the environment; no certificates are loaded, no lines kept open."""
    client = httpx2.AsyncClient(verify=False, limits=httpx2.Limits(max_keepalive_connections=0))
    return OpenAIChatModel("gpt-5", provider=OpenAIProvider(http_client=client))


def assistant() -> Agent[Deps, str]:
    return Agent(
        model_here(),
        name="assistant",
        deps_type=Deps,
        tools=[look, send, pay],
        capabilities=[PerdureDurability(tools={"look": "step", "pay": "keyed"})],
    )


@perdure.agent
async def errand(task: str, streamed: bool) -> list[object]:
    deps = Deps()
    if not streamed:
        answer = await assistant().run(task, deps=deps)
        return [answer.output, sorted(deps.seen), deps.calls]
    async with assistant().run_stream(task, deps=deps) as stream:
        text = [each async for each in stream.stream_text(delta=True)]
    return ["".join(text), sorted(deps.seen), deps.calls]


def main() -> None:
    undergo(lambda: perdure.run(errand, "Do it.", bool(os.environ.get("STREAMED")), run_id=RUN_ID))
