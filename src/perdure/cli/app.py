"""Loading the code a person named, and finding agents in it.

Only what the command line names is ever imported; what a record names is compared, never followed.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from perdure.cli.misuse import did_you_mean
from perdure.engine.agent import heard_declarations, spec_of
from perdure.engine.loading import load_file
from perdure.engine.session import refusing_runs
from perdure.errors import PerdureError, UsageError
from perdure.telemetry.text import legible
from perdure.worker.reload import is_own

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from perdure.cli.target import AgentTarget
    from perdure.engine.agent import AgentSpec
    from perdure.records import Run

    Agents = dict[str, Callable[..., Any]]

_FRAMES: Final = 3
"""So many of the user's own lines are named, the last ones."""

_LINE_CHARACTERS: Final = 60
_NAME_ONE: Final = "name a Python file, or a module as in: import …"


def load_agent(apps: Sequence[str], run: Run) -> Callable[..., Any]:
    """The agent of this run, from the files or modules that were named."""
    agents = load_agents(apps)
    if run.agent in agents:
        return agents[run.agent]
    known = ", ".join(sorted(agents)) or "none"
    raise UsageError(
        f"{' and '.join(apps)} has no agent {legible(run.agent)}; its agents are: {known}.",
        safe=f"run {run.name} was not touched.",
        hint=f"name the file that defines {legible(run.agent)}",
    )


def load_agents(apps: Sequence[str], *, option: str = "--app ") -> Agents:
    """Every agent in these files or modules, by the name its runs carry; refused where two have one name."""
    found: Agents = {}
    with heard_declarations() as declared:
        for app in apps:
            for function in _agents_of(load(app, said=f"{option}{app}")).values():
                found.setdefault(spec_of(function).name, function)
    _refuse_namesakes([spec_of(function) for function in found.values()], declared)
    return found


def targeted_agent(target: AgentTarget) -> Callable[..., Any]:
    """The agent a person named, by how its module calls it or by its own name; without a name, the only one."""
    agents = _agents_of(load(target.app, said=target.app))
    if not agents:
        raise UsageError(
            f"{target.app} has no agent.", safe="nothing was started.", hint="put @perdure.agent above a def in it"
        )
    if not target.agent and len({spec_of(function).name for function in agents.values()}) == 1:
        return next(iter(agents.values()))
    for name, function in agents.items():
        if target.agent in (name, spec_of(function).name):
            return function
    raise _not_there(target, agents)


def load(app: str, *, said: str) -> ModuleType:
    """The file or module that was named, loaded; `said` is how errors call it."""
    path = Path(app).expanduser()
    is_file = path.suffix == ".py" or path.exists()
    if is_file and not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise _unusable(said, what, hint=f"{_file_like(app)}{_NAME_ONE}")
    if ":" in app and not is_file:
        raise _names_agent(said, app.rpartition(":")[2])
    try:
        with refusing_runs(_guard_needed(app)):
            return load_file(path.absolute()) if is_file else _load_module(app)
    except PerdureError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and not is_file and f"{app}.".startswith(f"{error.name}."):
            raise _unusable(
                said, "is neither a file nor a module here", hint=f"{_file_like(app)}{_NAME_ONE}"
            ) from error
        raise _unusable(said, f"cannot be loaded: {_located(error)}", hint=_mend(error)) from error


def _names_agent(said: str, agent: str) -> UsageError:
    typed = said.removesuffix(agent).removesuffix(":")
    context = click.get_current_context(silent=True)
    if context is not None and not said.startswith("-"):
        typed = f"{context.command_path} {typed}"
    return _unusable(
        said,
        "names an agent where a file or a module is needed",
        hint=f"{typed}, without :{agent}: every agent in it is meant",
    )


def _file_like(app: str) -> str:
    """A question after the Python file that may have been meant."""
    path = Path(app)
    scripts = [str(path.parent / each.name) for each in path.parent.glob("*.py") if each.is_file()]
    return did_you_mean(app if path.suffix == ".py" else f"{app}.py", scripts, cutoff=0.7)


def _load_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def _agents_of(module: ModuleType) -> Agents:
    """Every agent the module names at its top, or in a class there, by how the module calls it."""
    found: Agents = {}
    for name, value in list(vars(module).items()):
        inside = vars(value).items() if isinstance(value, type) else ()
        for called, candidate in ((name, value), *((f"{name}.{inner}", member) for inner, member in inside)):
            with contextlib.suppress(UsageError):
                function = getattr(candidate, "__func__", candidate)
                spec_of(function)  # it is refused here if it is no agent
                found.setdefault(called, function)
    return found


def _not_there(target: AgentTarget, agents: Agents) -> UsageError:
    listed = ", ".join(f"{target.app}:{name}" for name in sorted(agents))
    safe = "nothing was started."
    if not target.agent:
        return UsageError(
            f"{target.app} has {len(agents)} agents, and none is named.", safe=safe, hint=f"one of: {listed}"
        )
    near = difflib.get_close_matches(target.agent, agents, n=1, cutoff=0.5)
    meant = f"did you mean {target.app}:{near[0]}? " if near else ""
    return UsageError(
        f"{target.app} has no agent {legible(target.agent, 60)!r}.", safe=safe, hint=f"{meant}its agents are: {listed}"
    )


def _guard_needed(app: str) -> UsageError:
    return UsageError(
        f"{app} starts a run as soon as it is loaded.",
        safe="nothing was started.",
        hint='put the call below `if __name__ == "__main__":`, or start the script itself: it resumes',
    )


def _refuse_namesakes(found: list[AgentSpec], declared: list[AgentSpec]) -> None:
    """Two agents with one name would take each other's runs; one that was loaded twice is still one."""
    known: dict[str, str] = {}
    for spec in (*declared, *found):
        first, place = known.setdefault(spec.name, _declared_at(spec)), _declared_at(spec)
        if first != place and any(other.name == spec.name for other in found):
            raise UsageError(
                f"Two agents are called {legible(spec.name)}: {first}, and {place}.",
                safe="nothing was started.",
                hint='give one of them a name of its own: @perdure.agent(name="…")',
            )


def _declared_at(spec: AgentSpec) -> str:
    code = getattr(inspect.unwrap(spec.function), "__code__", None)
    return (
        f"{_shown(code.co_filename)}, line {code.co_firstlineno}" if code is not None else "a place that is not known"
    )


def _located(error: BaseException) -> str:
    """The error, with the lines of the user's own through which it came, the last of them last."""
    places = " → ".join(f"{_shown(frame.filename)}, line {frame.lineno}" for frame in _own_frames(error)[-_FRAMES:])
    return f"{type(error).__name__}: {error}" + (f" ({places})" if places else "")


def _mend(error: BaseException) -> str:
    """Where to look first, with the line as it stands there."""
    if isinstance(error, SyntaxError) and error.filename and is_own(error.filename):
        place, line = f"{_shown(error.filename)}, line {error.lineno}", error.text or ""
    elif frames := _own_frames(error):
        place, line = f"{_shown(frames[-1].filename)}, line {frames[-1].lineno}", frames[-1].line or ""
    else:
        return "mend it, then try again"
    return f"mend {place}, then try again: {legible(line.strip(), _LINE_CHARACTERS)}"


def _own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(error.__traceback__) if is_own(frame.filename)]


def _shown(filename: str) -> str:
    """A file as somebody who is here would call it."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def _unusable(said: str, what: str, *, hint: str) -> UsageError:
    return UsageError(f"{said} {what}.", safe="nothing was started.", hint=hint)
