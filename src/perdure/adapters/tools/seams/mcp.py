"""MCP: `ClientSession.call_tool`, linked to what a model asked for by name and arguments, because the wire has no id.

What the server says of its tools, when the script has it list them, decides whether a call may be repeated.
"""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import msgspec

from perdure.adapters.script.conduct import conducted
from perdure.adapters.tools.perform import perform_async
from perdure.adapters.tools.seams.link import is_outside, linked_by_name

if TYPE_CHECKING:
    from types import ModuleType

_annotations: Final[WeakKeyDictionary[Any, dict[str, Any]]] = WeakKeyDictionary()


def check(module: ModuleType) -> str:
    """Why tools cannot be seen here; empty where they can."""
    session = getattr(module, "ClientSession", None)
    if not all(callable(getattr(session, name, None)) for name in ("call_tool", "list_tools")):
        return f"{module.__name__} has no ClientSession.call_tool"
    names = [*inspect.signature(session.call_tool).parameters][1:3]  # type: ignore[union-attr]
    return "" if names == ["name", "arguments"] else f"call_tool takes {', '.join(names)}"


def patch(module: ModuleType) -> None:
    """Have tool calls of a session performed through the journal."""
    session: Any = module.ClientSession
    session.call_tool, session.list_tools = _call_tool(session.call_tool), _list_tools(session.list_tools)


def _call_tool(original: Any) -> Any:
    @functools.wraps(original)
    async def call_tool(self: Any, name: str, arguments: Any = None, *args: Any, **options: Any) -> Any:
        awaited = linked_by_name(name, arguments)
        if awaited is None:
            if is_outside():
                _report(name)
            return await original(self, name, arguments, *args, **options)
        said = _annotations.get(self, {}).get(name)
        result = await perform_async(
            awaited, original, (self, name, arguments, *args), options, returns=Any, annotations=said
        )
        if not hasattr(result, "model_dump"):
            result = _as_result(result)
        conduct = conducted()
        if conduct is not None and type(result).__name__ == "InputRequiredResult":
            conduct.pending.again(awaited)  # the server wants to know more: the same call comes again, with answers
        return result

    return call_tool


def _list_tools(original: Any) -> Any:
    @functools.wraps(original)
    async def list_tools(self: Any, *args: Any, **options: Any) -> Any:
        listed = await original(self, *args, **options)
        known = _annotations.setdefault(self, {})
        known.update({tool.name: tool.annotations for tool in listed.tools})
        return listed

    return list_tools


def _as_result(said: Any) -> Any:
    """What a person said that a tool gave, as a server would have said it."""
    from mcp import types

    text = said if isinstance(said, str) else msgspec.json.encode(said).decode()
    content = [types.TextContent(type="text", text=text)]
    structured = said if isinstance(said, dict) else None
    return types.CallToolResult.model_validate({"content": content, "structuredContent": structured})


def _report(name: str) -> None:
    conduct = conducted()
    if conduct is not None:
        words = f"the MCP tool {name}: the script called it without a model asking for it, a resume calls it again"
        conduct.coverage.report(f"mcp {name}", words)
