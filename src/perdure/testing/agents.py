"""Which agents the code has that a check is made against: modules, files, agents; loaded where only named."""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from perdure.engine.agent import AgentSpec, spec_of
from perdure.engine.loading import load_file
from perdure.engine.session import refusing_runs
from perdure.errors import PerdureError, UsageError

Code = ModuleType | Callable[..., Any] | str | Path | Mapping[str, Callable[..., Any]]
"""Code to check: a module, its name, a Python file, an agent, or agents by the name that their runs carry."""


def agents_in(code: Code | Iterable[Code], opened: contextlib.ExitStack) -> dict[str, AgentSpec]:
    """The agents of this code, by the name that their runs carry; files stay loaded until the stack is closed."""
    if isinstance(code, (str, Path)):
        code = _loaded(code, opened)
    if isinstance(code, ModuleType):
        members = [value for each in vars(code).values() for value in (each, *_members(each))]
        return {spec.name: spec for spec in map(_spec, members) if spec is not None}
    if isinstance(code, Mapping):
        return {name: spec_of(agent) for name, agent in code.items()}
    if callable(code):
        spec = spec_of(code)
        return {spec.name: spec}
    found: dict[str, AgentSpec] = {}
    for each in cast("Iterable[Code]", code):
        found |= agents_in(each, opened)
    return found


def _loaded(named: str | Path, opened: contextlib.ExitStack) -> ModuleType:
    path = Path(named)
    is_file = isinstance(named, Path) or path.suffix == ".py" or len(path.parts) > 1
    if is_file and not path.is_file():
        raise _unusable(named, "is a directory" if path.is_dir() else "does not exist")
    guard = _unusable(
        named, "starts a run as soon as it is loaded", hint='put the call below `if __name__ == "__main__":`'
    )
    try:
        with refusing_runs(guard):
            if not is_file:
                return importlib.import_module(str(named))
            opened.enter_context(_imports_kept(path.stem))
            return load_file(path.absolute())
    except PerdureError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{named}.".startswith(f"{error.name}."):
            raise _unusable(named, "is neither a file nor a module that can be imported here") from None
        what = f"cannot be loaded: {type(error).__name__}: {error}"
        raise _unusable(named, what, hint="mend it, then try again") from error


@contextlib.contextmanager
def _imports_kept(name: str) -> Iterator[None]:
    """A module of this name that the test has, and where it looks for others, are afterwards what they were before."""
    paths, before = list(sys.path), sys.modules.get(name)
    try:
        yield
    finally:
        sys.path[:] = paths
        sys.modules.pop(name, None)
        if before is not None:
            sys.modules[name] = before


def _unusable(
    named: str | Path, what: str, *, hint: str = "name a Python file, or a module as in: import …"
) -> UsageError:
    return UsageError(f"{named} {what}.", safe="nothing was checked.", hint=hint)


def _members(value: object) -> list[object]:
    return list(vars(value).values()) if isinstance(value, type) else []


def _spec(value: object) -> AgentSpec | None:
    found = getattr(getattr(value, "__func__", value), "__perdure_agent__", None)
    return found if isinstance(found, AgentSpec) else None
