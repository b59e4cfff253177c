"""`run` and `run_streamed`: an agent of the OpenAI Agents SDK inside a run, resumed where it stopped."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Collection, Mapping
from typing import Any

import agents
from agents import Agent, FunctionTool, RunConfig, Runner, RunResult, RunResultStreaming
from agents.exceptions import AgentsException
from agents.models.interface import Model
from agents.tool_context import ToolContext

from perdure.adapters.calls import Declaration
from perdure.adapters.openai_agents import journaling as here
from perdure.adapters.openai_agents.model import JournaledModel, JournaledProvider
from perdure.adapters.openai_agents.session import PerdureSession
from perdure.adapters.openai_agents.tools import watch_agents
from perdure.errors import PerdureError, UsageError


async def run(
    agent: Agent[Any],
    input: Any,  # noqa: A002 - as the SDK names it
    *,
    tools: Mapping[str, Declaration] | None = None,
    fixed: Collection[str] = (),
    **options: Any,
) -> RunResult:
    """`Runner.run` inside a run: model requests are steps, tool calls effects unless `tools` declares them otherwise.

    `tools` declares tools by name or pattern: "effect", "keyed", "step", "inline", or a dict with `kind` and options of
    `perdure.effect` or `perdure.step`. `fixed` names fields of the context that tools only use, such as connections:
    all others are captured around each tool, and put back where it is not executed again. `options` are those of
    `Runner.run`.
    """
    journaling = _begin(tools, fixed, options)
    with here.entered(journaling):
        try:
            return await Runner.run(agent, input, **options)
        except AgentsException as error:
            if (own := _own(error)) is not None:
                raise own from error
            raise


def run_streamed(
    agent: Agent[Any],
    input: Any,  # noqa: A002 - as the SDK names it
    *,
    tools: Mapping[str, Declaration] | None = None,
    fixed: Collection[str] = (),
    **options: Any,
) -> RunResultStreaming:
    """`Runner.run_streamed` inside a run; see `run`. After a resume, what was streamed before is streamed again."""
    journaling = _begin(tools, fixed, options)
    with here.entered(journaling):
        return Runner.run_streamed(agent, input, **options)


def _begin(tools: Mapping[str, Declaration] | None, fixed: Collection[str], options: dict[str, Any]) -> here.Journaling:
    _refuse_unknown_sdk()
    session = options.get("session")
    if session is not None and not isinstance(session, PerdureSession):
        raise UsageError(
            f"A {type(session).__name__} cannot be replayed: a resume would add the same items to it again.",
            safe="nothing was sent.",
            hint="session=PerdureSession(session_id), of perdure.adapters.openai_agents",
        )
    journaling = here.begin(tools, fixed)
    watch_agents()
    options["run_config"] = _journaled(options.get("run_config"))
    return journaling


def _journaled(given: Any) -> RunConfig:
    """The settings of a run, with models whose requests are recorded."""
    config = RunConfig(**given) if isinstance(given, Mapping) else given or RunConfig()
    model = config.model
    if isinstance(model, Model) and not isinstance(model, JournaledModel):
        model = JournaledModel(model)
    provider = config.model_provider
    if not isinstance(provider, JournaledProvider):
        provider = JournaledProvider(provider)
    return dataclasses.replace(config, model=model, model_provider=provider)


def _refuse_unknown_sdk() -> None:
    """Say at the start, and not in the middle of a run, that this version of the SDK has other seams."""
    seams = {
        "Agent.get_all_tools": inspect.iscoroutinefunction(inspect.unwrap(getattr(Agent, "get_all_tools", str))),
        "FunctionTool.on_invoke_tool": _has_field(FunctionTool, "on_invoke_tool"),
        "ToolContext.tool_call_id": "tool_call_id" in inspect.signature(ToolContext).parameters,
        "RunConfig.model_provider": _has_field(RunConfig, "model_provider"),
        "Model.stream_response": hasattr(Model, "stream_response") and hasattr(Model, "get_response"),
    }
    missing = [name for name, is_there in seams.items() if not is_there]
    if missing:
        raise UsageError(
            f"openai-agents {agents.version.__version__} has no {', no '.join(missing)}: its calls cannot be recorded.",
            safe="nothing was sent.",
            hint="pip install 'perdure[openai-agents]'",
        )


def _own(error: BaseException | None) -> PerdureError | None:
    """What we said, where the SDK tells it in words of its own."""
    while error is not None and not isinstance(error, PerdureError):
        error = error.__cause__
    return error


def _has_field(kind: Any, name: str) -> bool:
    return name in {each.name for each in dataclasses.fields(kind)}
