"""The Google Agent Development Kit: every class of tools has a `run_async`, which is public.

Its calls have ids that the kit makes itself, so they are known by name and arguments. What a tool says of the state, of
artifacts and of who goes on is in the actions of its context, and comes back with the rest.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Final

from perdure.adapters.tools.perform import perform_async
from perdure.adapters.tools.seams.link import is_declared, linked, unfold

if TYPE_CHECKING:
    from types import ModuleType

_AGENTS: Final = ("AgentTool",)
"""Tools that are agents: what these ask and do is recorded by itself."""


def check(module: ModuleType) -> str:
    """Why tools cannot be seen here; empty where they can."""
    tool = getattr(module, "BaseTool", None)
    return "" if callable(getattr(tool, "run_async", None)) else f"{module.__name__} has no BaseTool.run_async"


def patch(module: ModuleType) -> None:
    """Have every tool performed through the journal: the classes are all made after this one."""
    tool: Any = module.BaseTool
    before = tool.__init_subclass__

    def init_subclass(cls: Any, /, **options: Any) -> None:
        before(**options)
        if "run_async" in vars(cls):
            cls.run_async = _run_async(vars(cls)["run_async"])

    tool.__init_subclass__ = classmethod(init_subclass)


def _run_async(original: Any) -> Any:
    @functools.wraps(original)
    async def run_async(self: Any, *, args: Any, tool_context: Any) -> Any:
        awaited = linked(getattr(tool_context, "function_call_id", None), self.name, args)
        if awaited is not None and type(self).__name__ in _AGENTS and not is_declared(self.name):
            unfold(awaited)
            awaited = None
        if awaited is None:
            return await original(self, args=args, tool_context=tool_context)
        return await perform_async(
            awaited,
            original,
            (self,),
            {"args": args, "tool_context": tool_context},
            returns=Any,
            made_of=self,
            handed=_handed(tool_context),
        )

    return run_async


def _handed(context: Any) -> dict[str, Any]:
    state = getattr(context, "state", None)
    found = {"actions": getattr(context, "actions", None), "state": getattr(state, "_value", None)}
    return {name: value for name, value in found.items() if value is not None}
