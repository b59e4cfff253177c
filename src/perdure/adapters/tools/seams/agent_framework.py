"""The Microsoft Agent Framework: every function tool is invoked by `FunctionTool.invoke`, with the id of its call."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perdure.adapters.tools import control
from perdure.adapters.tools.perform import perform_async
from perdure.adapters.tools.seams.link import linked

if TYPE_CHECKING:
    from types import ModuleType


def check(module: ModuleType) -> str:
    """Why tools cannot be seen here; empty where they can."""
    invoke = getattr(getattr(module, "FunctionTool", None), "invoke", None)
    if invoke is None:
        return f"{module.__name__} has no FunctionTool.invoke"
    missing = {"arguments", "tool_call_id"} - inspect.signature(invoke).parameters.keys()
    return f"FunctionTool.invoke has no {', '.join(sorted(missing))}" if missing else ""


def patch(module: ModuleType) -> None:
    """Have every function tool performed through the journal."""
    tool: Any = module.FunctionTool
    original = tool.invoke

    @functools.wraps(original)
    async def invoke(self: Any, *, arguments: Any = None, tool_call_id: str | None = None, **options: Any) -> Any:
        dump = getattr(arguments, "model_dump", None)
        awaited = linked(tool_call_id, self.name, arguments if dump is None else dump(exclude_none=True))
        if awaited is None:
            return await original(self, arguments=arguments, tool_call_id=tool_call_id, **options)

        async def act() -> Any:
            given = {"arguments": arguments, "tool_call_id": tool_call_id, **options}
            return _plain(await original(self, **given))

        return _parsed(self, await perform_async(awaited, act, (), {}, returns=Any, made_of=self))

    tool.invoke = invoke
    control.register("agent_framework.exceptions", "UserInputRequiredException")
    control.register("agent_framework._middleware", "MiddlewareTermination")


class Contents(Struct, frozen=True):
    """What a tool gave, as the framework writes it."""

    written: list[dict[str, Any]]


def _plain(result: Any) -> Any:
    """Contents as they are stored."""
    if isinstance(result, list) and result and all(hasattr(each, "to_dict") for each in result):
        return Contents([each.to_dict(exclude_none=True) for each in result])
    return result


def _parsed(tool: Any, result: Any) -> Any:
    """Contents again; what a person said that a tool returned is made into some, as the tool's own results are."""
    if isinstance(result, Contents):
        content: Any = sys.modules["agent_framework"].Content
        return [content.from_dict(each) for each in result.written]
    is_said = isinstance(result, (str, int, float, dict)) or result is None
    parse = getattr(tool, "parse_result", None)
    return parse(result) if is_said and parse is not None else result
