"""The OpenAI Agents SDK: every function tool goes through one private function; handoffs are made by a public one."""

from __future__ import annotations

import functools
import inspect
import sys
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure.adapters.tools.perform import perform, perform_async
from perdure.adapters.tools.seams.link import is_declared, linked, unfold

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_NAMES: Final = ("_invoke_function_tool_with_metadata", "invoke_function_tool")
"""Since 0.22, and from 0.10 to 0.18."""

_PARAMETERS: Final = {"function_tool", "context", "arguments"}


class Generated(Struct, frozen=True):
    """What the SDK itself says in place of a tool that failed."""

    output: Any


def check(module: ModuleType) -> str:
    """Why tools cannot be seen here; empty where they can."""
    function = _function(module)
    if function is None:
        return f"agents.tool has none of {', '.join(_NAMES)}"
    missing = _PARAMETERS - inspect.signature(function).parameters.keys()
    return f"{function.__name__} has no {', '.join(sorted(missing))}" if missing else ""


def patch(module: ModuleType) -> None:
    """Have every function tool performed through the journal."""
    original: Any = _function(module)
    result_class = getattr(module, "_FunctionToolInvocationResult", None)
    has_metadata = original.__name__ == _NAMES[0] and result_class is not None

    @functools.wraps(original)
    async def invoke(*, function_tool: Any, context: Any, arguments: str) -> Any:
        awaited = linked(getattr(context, "tool_call_id", None), function_tool.name, arguments)
        if awaited is None:
            return await original(function_tool=function_tool, context=context, arguments=arguments)
        if getattr(function_tool, "_is_agent_tool", False) and not is_declared(awaited.call.name):
            unfold(awaited)  # what that agent asks and does is recorded by itself
            return await original(function_tool=function_tool, context=context, arguments=arguments)

        async def act() -> Any:
            result = await original(function_tool=function_tool, context=context, arguments=arguments)
            if not has_metadata:
                return result
            return Generated(result.output) if result.is_sdk_generated_error else result.output

        value = await perform_async(
            awaited,
            act,
            (),
            {},
            returns=Any,
            annotations=getattr(function_tool, "_mcp_annotations", None),
            made_of=function_tool,
            handed={"context": getattr(context, "context", None)},
        )
        return _result(value, result_class) if has_metadata else value

    named: str = original.__name__
    for holder in [each for name, each in list(sys.modules.items()) if name.partition(".")[0] == "agents"]:
        if getattr(holder, named, None) is original:
            setattr(holder, named, invoke)


def check_handoffs(module: ModuleType) -> str:
    """Why handoffs cannot be told from tools here; empty where they can."""
    return "" if callable(getattr(module, "handoff", None)) else "agents.handoffs has no handoff"


def patch_handoffs(module: ModuleType) -> None:
    """Have handoffs known for what they are: only what the user has done at one is recorded."""
    original = module.handoff

    @functools.wraps(original)
    def handoff(*args: Any, **options: Any) -> Any:
        made: list[Any] = []
        if options.get("on_handoff") is not None:
            options["on_handoff"] = _recorded(options["on_handoff"], made)
        made.append(original(*args, **options))
        made[0].on_invoke_handoff = _unfolding(made[0])
        return made[0]

    module.handoff = handoff  # type: ignore[attr-defined]


def _function(module: ModuleType) -> Any:
    return next((getattr(module, name) for name in _NAMES if hasattr(module, name)), None)


def _result(value: Any, result_class: Any) -> Any:
    if isinstance(value, Generated):
        return result_class(value.output, is_sdk_generated_error=True)
    return result_class(value)


def _recorded(callback: Callable[..., Any], made: list[Any]) -> Callable[..., Any]:
    """What the user has done at a handoff, as the outcome of the tool call that asked for it."""

    @functools.wraps(callback)
    def recorded(*args: Any) -> Any:
        awaited = linked(None, made[0].tool_name, _asked_with(made[0].tool_name))
        if awaited is None:
            return callback(*args)
        handed = {"context": getattr(args[0], "context", None)} if args else {}
        performing = perform_async if inspect.iscoroutinefunction(callback) else perform
        return performing(awaited, callback, args, {}, returns=Any, handed=handed)

    return recorded


def _unfolding(handoff: Any) -> Callable[..., Any]:
    original = handoff.on_invoke_handoff

    async def invoke(context: Any, arguments: str | None = None) -> Any:
        agent = await original(context, arguments)
        unfold(linked(None, handoff.tool_name, arguments))
        return agent

    return invoke


def _asked_with(name: str) -> dict[str, Any] | None:
    """What the model said at this handoff, if it asked for one alone."""
    from perdure.adapters.script.conduct import conducted

    conduct = conducted()
    found = conduct.pending.of_name(name) if conduct is not None else []
    return found[0].call.arguments if found else None
