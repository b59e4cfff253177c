"""Google ADK: `PerdurePlugin` makes each model call of the agents of a runner a step, and each tool call an effect.

ADK makes the ids of tool calls itself, new ones in every process, so a tool call is known by tool, arguments and how
often these came before. A model call is known by its place, and compared by what is asked. The plugin looks at an agent
before it runs and at a request before it is sent, and puts the recorded model and the recorded tools in their places:
callbacks of others come before and after them, as ever.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from google.adk.agents import LlmAgent
from google.adk.events.event_actions import EventActions
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins import BasePlugin
from google.adk.tools.agent_tool import AgentTool

from perdure.adapters.calls import INLINE, STEP, Declaration, Policy, checked_declarations, declared_policy, matches
from perdure.adapters.performing import Named, identity_of, is_recorded, perform_async
from perdure.engine.values import current
from perdure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from google.adk.agents import BaseAgent
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.models import BaseLlm
    from google.adk.models.llm_request import LlmRequest
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.tool_context import ToolContext

_RECORDED: Final = "recorded_by_perdure"
_OUTCOME: Final = "adk outcome"
_HARMLESS: Final = frozenset({"transfer_to_agent", "exit_loop"})
"""Tools of ADK itself that only say how the agents go on."""


class PerdurePlugin(BasePlugin):
    """Records model and tool calls of a runner that is used inside a `@perdure.agent`; outside, it does nothing.

    Put it first among the plugins. `tools` says what tools are, by name or pattern: `{"search_*": "step"}` may run
    again after a crash. Agents that are tools are gone through: their own calls are recorded.
    """

    def __init__(self, *, tools: Mapping[str, Declaration] | None = None, name: str = "perdure") -> None:
        super().__init__(name=name)
        self._declared = checked_declarations(tools)

    async def before_agent_callback(self, *, agent: BaseAgent, callback_context: CallbackContext) -> None:
        """Have the agent use a model that is recorded."""
        del callback_context
        if isinstance(agent, LlmAgent) and is_recorded():
            agent.model = _recorded_model(agent.canonical_model)

    async def before_model_callback(self, *, callback_context: CallbackContext, llm_request: LlmRequest) -> None:
        """Have the tools that the model may call be recorded."""
        del callback_context
        if is_recorded():
            for name, tool in llm_request.tools_dict.items():
                llm_request.tools_dict[name] = self._recorded_tool(name, tool)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: ToolContext
    ) -> dict[str, Any] | None:
        """Refuse a tool that another plugin kept from being recorded."""
        del tool_args, tool_context
        if is_recorded() and _RECORDED not in vars(tool) and type(tool).__name__ != "BaseTool":
            raise UsageError(
                f"The tool {tool.name} would be called without a record.",
                safe="nothing was performed.",
                hint="put PerdurePlugin first: Runner(…, plugins=[PerdurePlugin(), …])",
            )
        return None

    def _recorded_tool(self, name: str, tool: BaseTool) -> BaseTool:
        if _RECORDED in vars(tool):
            return tool
        policy, recorded = self._policy_of(name, tool), copy.copy(tool)
        vars(recorded)[_RECORDED] = True
        if not policy.is_inline:
            vars(recorded)["run_async"] = _Running(tool, name, policy)
        return recorded

    def _policy_of(self, name: str, tool: BaseTool) -> Policy:
        is_declared = any(matches(name, pattern) for pattern in self._declared)
        if not is_declared and (isinstance(tool, AgentTool) or name in _HARMLESS):
            return INLINE
        return declared_policy(name, by_name=self._declared, function=getattr(tool, "func", None))


class _Running:
    """Stands where a tool has its `run_async`."""

    def __init__(self, tool: BaseTool, name: str, policy: Policy) -> None:
        self._tool = tool
        self._name = name
        self._policy = policy

    async def __call__(self, *, args: dict[str, Any], tool_context: ToolContext) -> Any:
        if not is_recorded():
            return await self._tool.run_async(args=args, tool_context=tool_context)

        async def act() -> Any:
            before = _acted(tool_context.actions)
            result = await self._tool.run_async(args=args, tool_context=tool_context)
            acted = _acted(tool_context.actions)
            return result if acted == before else {_OUTCOME: {"result": result, "actions": acted}}

        sources = (self._tool, getattr(self._tool, "func", None))
        named = Named(self._name, dict(args), identity=identity_of(args), sources=sources)
        stored = await perform_async(act, named, policy=self._policy)
        if not isinstance(stored, dict) or _OUTCOME not in stored:
            return stored
        _act_again(stored[_OUTCOME]["actions"], tool_context)
        return stored[_OUTCOME]["result"]


def _acted(actions: EventActions) -> dict[str, Any]:
    """What a tool did to the agents and their state; a replay has to do it again."""
    acted: dict[str, Any] = actions.model_dump(mode="json", exclude_defaults=True)
    return acted


def _act_again(acted: dict[str, Any], tool_context: ToolContext) -> None:
    told = EventActions.model_validate(acted)
    for name, value in told.state_delta.items():
        tool_context.state[name] = value
    for name in acted:
        if name != "state_delta":
            setattr(tool_context.actions, name, getattr(told, name))


def _recorded_model(model: BaseLlm) -> BaseLlm:
    """The same model, whose answers are recorded."""
    if _RECORDED in vars(model):
        return model
    recorded = copy.copy(model)
    vars(recorded)[_RECORDED] = True
    vars(recorded)["generate_content_async"] = _Generating(model)
    return recorded


class _Generating:
    """Stands where a model has its `generate_content_async`."""

    def __init__(self, model: BaseLlm) -> None:
        self._model = model

    async def __call__(self, llm_request: LlmRequest, stream: bool = False) -> AsyncIterator[LlmResponse]:  # noqa: FBT001, FBT002
        """What the model answers, whole: the pieces of a stream are for whoever watches, and are not given again."""
        if not is_recorded():
            async for response in self._model.generate_content_async(llm_request, stream=stream):
                yield response
            return

        async def act() -> list[Any]:
            asked = self._model.generate_content_async(llm_request, stream=stream)
            whole = [response async for response in asked if not response.partial]
            used = [response.usage_metadata for response in whole if response.usage_metadata is not None]
            current().spent(tokens=sum(each.total_token_count or 0 for each in used))
            return [response.model_dump(mode="json", exclude_none=True) for response in whole]

        named = Named(f"model {llm_request.model or self._model.model}", _asked(llm_request), sources=(self._model,))
        for stored in await perform_async(act, named, policy=STEP):
            yield LlmResponse.model_validate(stored)


def _asked(request: LlmRequest) -> dict[str, Any]:
    """What a model is asked; how the request travels does not matter."""
    contents = [content.model_dump(mode="json", exclude_none=True) for content in request.contents]
    config = request.config.model_dump(mode="json", exclude_none=True, exclude={"http_options"})
    return {"contents": contents, "config": config}
