"""LangChain and LangGraph: every tool is run by `BaseTool.run` or `arun`; an interrupt leaves a tool unfinished."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.adapters.tools import control
from perdure.adapters.tools.perform import perform, perform_async
from perdure.adapters.tools.seams.link import linked, unfold

if TYPE_CHECKING:
    from types import ModuleType

_MOST_INTERRUPTS: Final = 100
_ID: Final = "tool_call_id"


def check(module: ModuleType) -> str:
    """Why tools cannot be seen here; empty where they can."""
    tool = getattr(module, "BaseTool", None)
    missing = [name for name in ("run", "arun") if not callable(getattr(tool, name, None))]
    if tool is None or missing:
        return f"{module.__name__} has no {'BaseTool' if tool is None else f'BaseTool.{missing[0]}'}"
    without = [name for name in ("run", "arun") if _ID not in inspect.signature(getattr(tool, name)).parameters]
    return f"BaseTool.{without[0]} has no {_ID}" if without else ""


def patch(module: ModuleType) -> None:
    """Have every tool performed through the journal."""
    tool: Any = module.BaseTool
    tool.run, tool.arun = _run(module, tool.run), _arun(module, tool.arun)


def _run(module: Any, original: Any) -> Any:
    @functools.wraps(original)
    def run(self: Any, tool_input: Any, *args: Any, **options: Any) -> Any:
        awaited = linked(options.get(_ID), self.name, _asked(tool_input))
        if awaited is None:
            return original(self, tool_input, *args, **options)
        result = perform(awaited, original, (self, tool_input, *args), options, **_around(self))
        return _formatted(module, result, options.get(_ID), self.name)

    return run


def _arun(module: Any, original: Any) -> Any:
    @functools.wraps(original)
    async def arun(self: Any, tool_input: Any, *args: Any, **options: Any) -> Any:
        awaited = linked(options.get(_ID), self.name, _asked(tool_input))
        if awaited is None:
            return await original(self, tool_input, *args, **options)
        result = await perform_async(awaited, original, (self, tool_input, *args), options, **_around(self))
        return _formatted(module, result, options.get(_ID), self.name)

    return arun


def _formatted(module: Any, result: Any, call_id: str | None, name: str) -> Any:
    """The message that a tool call gives, also where a person said what the tool returned."""
    found = result if isinstance(result, list) and result else [result]
    if call_id is None or all(isinstance(each, module.ToolOutputMixin) for each in found):
        return result
    content = result if isinstance(result, str) else msgspec.json.encode(result).decode()
    return module.ToolMessage(content, tool_call_id=call_id, name=name)


def _asked(tool_input: Any) -> Any:
    """What the model asked for; state and stores that a graph adds are no part of it."""
    return tool_input if isinstance(tool_input, dict) else None


def _around(tool: Any) -> dict[str, Any]:
    return {"returns": Any, "made_of": tool, "annotations": getattr(tool, "metadata", None)}


def check_errors(module: ModuleType) -> str:
    """Why interrupts cannot be told from failures here; empty where they can."""
    return "" if hasattr(module, "GraphBubbleUp") else "langgraph.errors has no GraphBubbleUp"


def patch_errors(module: ModuleType) -> None:
    """Know the exceptions by which LangGraph leaves a tool."""
    control.register(module.__name__, "GraphBubbleUp")
    control.register(module.__name__, "GraphInterrupt", again=_interrupted_again)


def _interrupted_again(recorded: BaseException) -> BaseException:
    """The interrupt as LangGraph raises it here and now: it is told from others by where in the graph it is."""
    from langgraph.types import interrupt

    found: Any = recorded.args and recorded.args[0]
    if len(found) != 1:
        return recorded
    try:
        for _ in range(_MOST_INTERRUPTS):
            interrupt(found[0].value)  # those that were answered before this one give their answers
    except Exception as raised:  # noqa: BLE001 - it is what we are after
        return raised
    return recorded


def check_output(module: ModuleType) -> str:
    """Why structured output cannot be told from tools here; empty where it can."""
    binding = getattr(module, "OutputToolBinding", None)
    return "" if hasattr(binding, "parse") else f"{module.__name__} has no OutputToolBinding.parse"


def patch_output(module: ModuleType) -> None:
    """Have a structured answer known for what it is, though the model gives it as a tool call."""
    binding: Any = module.OutputToolBinding
    original = binding.parse

    @functools.wraps(original)
    def parse(self: Any, tool_args: Any) -> Any:
        unfold(linked(None, self.tool.name, tool_args))
        return original(self, tool_args)

    binding.parse = parse
