"""CrewAI: tools are run by `BaseTool.run`, or invoked through `CrewStructuredTool`; their calls have no id here."""

from __future__ import annotations

import functools
import inspect
import re
from typing import TYPE_CHECKING, Any, Final

from perdure.adapters.tools.perform import perform, perform_async
from perdure.adapters.tools.seams.link import as_arguments, linked_by_name

if TYPE_CHECKING:
    from types import ModuleType

_RUNS: Final = ("run", "arun")
_INVOKES: Final = ("invoke", "ainvoke")


def check(module: ModuleType) -> str:
    """Why tools cannot be seen here; empty where they can."""
    return _missing(module, "BaseTool", _RUNS)


def patch(module: ModuleType) -> None:
    """Have every tool that is run performed through the journal."""
    for kind in (module.BaseTool, getattr(module, "Tool", None)):
        for name in _RUNS:
            if kind is not None and name in vars(kind):
                setattr(kind, name, _performing(vars(kind)[name], _given_to_run))


def check_structured(module: ModuleType) -> str:
    """Why tools cannot be seen here; empty where they can."""
    return _missing(module, "CrewStructuredTool", _INVOKES)


def patch_structured(module: ModuleType) -> None:
    """Have every tool that is invoked performed through the journal."""
    kind: Any = module.CrewStructuredTool
    for name in _INVOKES:
        setattr(kind, name, _performing(getattr(kind, name), _given_to_invoke))


def _performing(original: Any, given: Any) -> Any:
    @functools.wraps(original)
    def call(self: Any, *args: Any, **options: Any) -> Any:
        awaited = linked_by_name(_wire_name(self.name), given(args, options))
        if awaited is None:
            return original(self, *args, **options)
        return perform(awaited, original, (self, *args), options, returns=Any, made_of=self)

    @functools.wraps(original)
    async def call_async(self: Any, *args: Any, **options: Any) -> Any:
        awaited = linked_by_name(_wire_name(self.name), given(args, options))
        if awaited is None:
            return await original(self, *args, **options)
        return await perform_async(awaited, original, (self, *args), options, returns=Any, made_of=self)

    return call_async if inspect.iscoroutinefunction(original) else call


def _given_to_run(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return options if not args else args[0]


def _given_to_invoke(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return as_arguments(args[0] if args else options.get("input"))


def _wire_name(name: str) -> str:
    """The name that the model knows a tool by."""
    return re.sub(r"[^a-z0-9_]+", "_", name.lower()).strip("_")


def _missing(module: ModuleType, kind: str, names: tuple[str, ...]) -> str:
    found = getattr(module, kind, None)
    missing = [name for name in names if not callable(getattr(found, name, None))]
    return f"{module.__name__} has no {kind}.{missing[0]}" if missing else ""
