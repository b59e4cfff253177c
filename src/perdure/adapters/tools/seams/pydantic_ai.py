"""Pydantic AI: the tools of an agent are called through `CombinedToolset.call_tool`, which is public.

The SDK makes an id of its own where the provider sends none; such a call is known by its name and arguments.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from perdure.adapters.tools import control
from perdure.adapters.tools.perform import perform_async
from perdure.adapters.tools.seams.link import linked, unfold

if TYPE_CHECKING:
    from types import ModuleType


def check(module: ModuleType) -> str:
    """Why tools cannot be seen here; empty where they can."""
    call_tool = getattr(getattr(module, "CombinedToolset", None), "call_tool", None)
    if call_tool is None:
        return f"{module.__name__} has no CombinedToolset.call_tool"
    names = [*inspect.signature(call_tool).parameters][1:]
    return "" if names == ["name", "tool_args", "ctx", "tool"] else f"CombinedToolset.call_tool takes {names}"


def patch(module: ModuleType) -> None:
    """Have every tool performed through the journal."""
    toolset: Any = module.CombinedToolset
    original = toolset.call_tool

    @functools.wraps(original)
    async def call_tool(self: Any, name: str, tool_args: Any, ctx: Any, tool: Any) -> Any:
        awaited = linked(ctx.tool_call_id, name, getattr(_call_in(ctx), "args", None) or tool_args)
        if awaited is None:
            return await original(self, name, tool_args, ctx, tool)
        metadata = getattr(tool.tool_def, "metadata", None) or {}
        return await perform_async(
            awaited,
            original,
            (self, name, tool_args, ctx, tool),
            {},
            returns=Any,
            annotations=metadata.get("annotations"),
            made_of=_tool_in(tool),
            handed={"deps": ctx.deps},
        )

    toolset.call_tool = call_tool
    control.register("pydantic_ai.exceptions", "CallDeferred")
    control.register("pydantic_ai.exceptions", "ApprovalRequired")


def check_manager(module: ModuleType) -> str:
    """Why answers that are given as tool calls cannot be told from tools here; empty where they can."""
    manager = getattr(module, "ToolManager", None)
    names = ("validate_tool_call", "execute_output_tool_call")
    missing = [name for name in names if not callable(getattr(manager, name, None))]
    return f"ToolManager has no {missing[0]}" if missing else ""


def patch_manager(module: ModuleType) -> None:
    """Have an answer that is given as a tool call, and one with arguments that do not fit, known for what they are."""
    manager: Any = module.ToolManager
    validate, execute = manager.validate_tool_call, manager.execute_output_tool_call

    @functools.wraps(validate)
    async def validate_tool_call(self: Any, call: Any, *args: Any, **options: Any) -> Any:
        validated = await validate(self, call, *args, **options)
        if not validated.args_valid:
            unfold(linked(call.tool_call_id, call.tool_name, call.args))
        return validated

    @functools.wraps(execute)
    async def execute_output_tool_call(self: Any, validated: Any, **options: Any) -> Any:
        call = validated.call
        awaited = linked(call.tool_call_id, call.tool_name, call.args)
        if awaited is None or not _has_function(validated.tool):
            unfold(awaited)
            return await execute(self, validated, **options)
        handed = {"deps": validated.ctx.deps}
        return await perform_async(awaited, execute, (self, validated), options, returns=Any, handed=handed)

    manager.validate_tool_call = validate_tool_call
    manager.execute_output_tool_call = execute_output_tool_call


def _call_in(ctx: Any) -> Any:
    """The call as the model made it, where the context of a tool has it."""
    messages = getattr(ctx, "messages", None) or []
    parts = [part for message in reversed(messages[-2:]) for part in getattr(message, "parts", ())]
    return next((part for part in parts if getattr(part, "tool_call_id", None) == ctx.tool_call_id), None)


def _tool_in(tool: Any) -> Any:
    """The tool of the toolset that it came from: there its function is found."""
    inner = getattr(tool, "source_tool", tool)
    return getattr(getattr(inner, "call_func", None), "__self__", None) or getattr(inner, "call_func", None) or inner


def _has_function(tool: Any) -> bool:
    """Whether an answer is handed to a function of the user's."""
    processors = getattr(getattr(tool, "toolset", None), "processors", {})
    processor = processors.get(getattr(getattr(tool, "tool_def", None), "name", ""))
    function = getattr(getattr(processor, "_function_schema", None), "function", None)
    return function is not None and not inspect.isclass(function)
