"""Tools of the SDK whose calls are steps and effects of the run, wherever the SDK takes its tools from.

Every agent is asked for its tools by one public method, `get_all_tools`, whatever it was handed off by; MCP tools come
by it too. Inside a `run` it answers with copies whose invocation is recorded; elsewhere it answers as ever.
"""

from __future__ import annotations

import copy
import functools
import json
from typing import Any, Final

import agents
from agents import Agent, CustomTool, FunctionTool
from agents.models.interface import Model
from agents.tool_context import ToolContext

from perdure import codec
from perdure.adapters import calls, state
from perdure.adapters.calls import INLINE, Policy
from perdure.adapters.openai_agents import journaling as here
from perdure.adapters.openai_agents.journaling import Journaling
from perdure.adapters.openai_agents.model import JournaledModel
from perdure.errors import UnstorableValue, UsageError

_UNSEEN: Final = ("ComputerTool", "LocalShellTool", "ShellTool", "ApplyPatchTool")
"""Tools that the SDK executes on this machine by ways of its own, which nothing here can record."""

_OUTPUT: Final = "output"
_CHANGED: Final = "changed"
_SEALED: Final = "sealed"
_FORM: Final = frozenset({_OUTPUT, _CHANGED, _SEALED, "perdure"})


def watch_agents() -> None:
    """Have agents give journaled tools, and use journaled models, inside a `run`; once for this process."""
    original = Agent.get_all_tools
    if getattr(original, "journals", False):
        return

    @functools.wraps(original)
    async def get_all_tools(self: Any, run_context: Any, *args: Any, **kwargs: Any) -> Any:
        found = await original(self, run_context, *args, **kwargs)
        journaling = here.journaling_here()
        if journaling is None:
            return found
        if isinstance(getattr(self, "model", None), Model) and not isinstance(self.model, JournaledModel):
            self.model = JournaledModel(self.model)
        return [_journaled(tool, journaling) for tool in found]

    get_all_tools.journals = True  # type: ignore[attr-defined]
    Agent.get_all_tools = get_all_tools  # type: ignore[method-assign]


def _journaled(tool: Any, journaling: Journaling) -> Any:
    """The tool that the SDK is given instead: the same one each time, because it compares them."""
    known = journaling.wrapped.get(id(tool))
    if known is not None:
        return known[1]
    if isinstance(tool, FunctionTool):
        made: Any = _function_tool(tool, journaling)
    elif isinstance(tool, CustomTool):
        made = _custom_tool(tool, journaling)
    elif type(tool).__name__ in _UNSEEN and _is_local(tool):
        raise UsageError(
            f"The tool {tool.name} ({type(tool).__name__}) is executed by the SDK in a way that cannot be recorded.",
            safe="nothing was sent.",
            hint="offer it as a function tool: @function_tool",
        )
    else:
        made = tool
    journaling.wrapped[id(tool)] = (tool, made)
    return made


def _function_tool(tool: FunctionTool, journaling: Journaling) -> FunctionTool:
    policy = _policy(tool, journaling)
    made = copy.copy(tool)

    async def on_invoke_tool(context: ToolContext[Any], arguments: str) -> Any:
        return await _invoke(tool, context, arguments, policy)

    made.on_invoke_tool = on_invoke_tool
    return made


def _custom_tool(tool: CustomTool, journaling: Journaling) -> CustomTool:
    policy = calls.declared_policy(tool.name, by_name=journaling.tools)
    made = copy.copy(tool)

    async def on_invoke_tool(context: ToolContext[Any], text: str) -> Any:
        return await _invoke(tool, context, text, policy)

    made.on_invoke_tool = on_invoke_tool
    return made


def _policy(tool: FunctionTool, journaling: Journaling) -> Policy:
    annotations = getattr(tool, "mcp_annotations", None)
    policy = calls.declared_policy(
        tool.name,
        by_name=journaling.tools,
        function=_function_of(tool),
        annotations=annotations.model_dump(by_alias=True) if annotations is not None else None,
    )
    is_declared = any(calls.matches(tool.name, pattern) for pattern in journaling.tools)
    return INLINE if getattr(tool, "_is_agent_tool", False) and not is_declared else policy


async def _invoke(tool: FunctionTool | CustomTool, context: ToolContext[Any], arguments: str, policy: Policy) -> Any:
    """Call a tool in the run: what the SDK gets is what was recorded of it."""
    invoke: Any = tool.on_invoke_tool
    journaling = here.journaling_here()
    if journaling is None:
        return await _awaited(invoke(context, arguments))
    if not here.was_asked(context.tool_call_id):
        raise _unrecorded(tool.name)
    if policy.is_inline:
        with here.entered(journaling.inside(context.tool_call_id)):
            return await _awaited(invoke(context, arguments))
    watch = state.Watch(context.context, active=journaling.active, fixed=journaling.fixed)
    returns = _returns(tool)

    async def unit(**_: Any) -> Any:
        watch.begin()
        return _told(await _awaited(invoke(context, arguments)), watch.end(), returns)

    recorded = await calls.perform(
        unit,
        name=tool.name,
        key=calls.numbered(f"{journaling.place}/{context.tool_call_id}"),
        arguments=_arguments(arguments),
        policy=policy,
    )
    if not _is_form(recorded):  # as the tool returned it, or as a person settled it
        return recorded
    watch.put_back(recorded.get(_CHANGED))
    return codec.unseal(recorded[_SEALED], returns) if _SEALED in recorded else recorded[_OUTPUT]


def _told(output: Any, changed: Any, returns: object) -> Any:
    """What is recorded of a tool: what it returned, as it returned it, wherever that is all there is to say.

    Plain data is recorded as it is. Other values come back by the tool's own annotation; where that does not say
    enough, they are recorded as the text that the model sees.
    """
    form: dict[str, Any] = {"perdure": 1}
    try:
        codec.seal_faithfully(output)
    except (UnstorableValue, ValueError, TypeError):
        form |= _sealed(output, returns)
    else:
        form[_OUTPUT] = output
    if changed is not None:
        form[_CHANGED] = changed
    is_plain = form.keys() == {"perdure", _OUTPUT}
    return output if is_plain and not _is_form(output) else form


def _sealed(output: Any, returns: object) -> dict[str, Any]:
    try:
        return {_SEALED: codec.seal_faithfully(output, returns)[0].decode()}
    except (UnstorableValue, ValueError, TypeError):
        dump = getattr(output, "model_dump", None)
        is_shown_by_sdk = type(output).__module__.startswith(agents.__name__)
        return {_OUTPUT: dump(mode="json", exclude_none=True) if dump and is_shown_by_sdk else str(output)}


def _is_form(recorded: object) -> bool:
    return isinstance(recorded, dict) and recorded.get("perdure") == 1 and recorded.keys() <= _FORM


def _arguments(text: str) -> dict[str, Any]:
    try:
        read = json.loads(text) if text else {}
    except ValueError:
        return {"arguments": text}
    return read if isinstance(read, dict) else {"arguments": read}


def _function_of(tool: FunctionTool) -> Any:
    """The function behind a decorated tool, where this version of the SDK tells."""
    try:
        return tool.__wrapped__
    except AttributeError:
        return None


def _returns(tool: Any) -> object:
    function = _function_of(tool) if isinstance(tool, FunctionTool) else None
    try:
        return codec.resolve_annotations(function)[0] if function is not None else Any
    except Exception:  # noqa: BLE001 - annotations that cannot be read say nothing
        return Any


async def _awaited(value: Any) -> Any:
    return await value if hasattr(value, "__await__") else value


def _is_local(tool: Any) -> bool:
    return (
        any(callable(getattr(tool, name, None)) for name in ("executor", "editor"))
        or hasattr(tool, "computer")
        or (getattr(tool, "editor", None) is not None)
    )


def _unrecorded(tool: str) -> UsageError:
    return UsageError(
        f"The tool {tool} was asked for by an answer of a model that is not on record.",
        safe="the tool was not called.",
        hint="use run or run_streamed of perdure.adapters.openai_agents, also in guardrails and tools, not Runner",
    )
