"""Loading the code a person named with `--app`, and finding the agent of a run in it.

Only what the command line names is ever imported; what a record names is compared, never followed.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perdure.engine.agent import AgentSpec, spec_of
from perdure.engine.session import refusing_runs
from perdure.errors import PerdureError, UsageError
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from perdure.records import Run


def load_agent(app: str, run: Run) -> Callable[..., Any]:
    """The agent of this run, from the file or module that was named."""
    module = _load(app)
    agents = _agents_of(module)
    if run.agent in agents:
        return agents[run.agent]
    known = ", ".join(sorted(agents)) or "none"
    raise UsageError(
        f"{app} has no agent {legible(run.agent)}; its agents are: {known}.",
        safe=f"run {run.name} was not touched.",
        hint=f"name the file that defines {legible(run.agent)}",
    )


def _load(app: str) -> ModuleType:
    path = Path(app).expanduser()
    is_file = path.suffix == ".py" or path.exists()
    if is_file and not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise _unusable(app, what, hint="name a Python file, or a module as in: import …")
    try:
        with refusing_runs(_guard_needed(app)):
            return _load_file(path.absolute()) if is_file else _load_module(app)
    except PerdureError:
        raise
    except (Exception, SystemExit) as error:
        raise _unusable(app, f"cannot be loaded: {_located(error, path)}", hint="mend it, then resume again") from error


def _load_file(path: Path) -> ModuleType:
    """Load a script under its own name, not as `__main__`, with its folder importable as when it is run."""
    sys.path.insert(0, str(path.parent))
    name = path.stem
    specification = importlib.util.spec_from_file_location(name, path)
    if specification is None or specification.loader is None:
        raise ImportError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    specification.loader.exec_module(module)
    return module


def _load_module(name: str) -> ModuleType:
    sys.path.insert(0, str(Path.cwd()))
    return importlib.import_module(name)


def _agents_of(module: ModuleType) -> dict[str, Callable[..., Any]]:
    """Every agent the module names at its top, or in a class there, by the agent's own name."""
    found: dict[str, Callable[..., Any]] = {}
    for value in list(vars(module).values()):
        inside = list(vars(value).values()) if isinstance(value, type) else []
        for candidate in (value, *inside):
            with contextlib.suppress(UsageError):
                function = getattr(candidate, "__func__", candidate)
                specification: AgentSpec = spec_of(function)
                found[specification.name] = function
    return found


def _guard_needed(app: str) -> UsageError:
    return UsageError(
        f"{app} starts a run as soon as it is loaded.",
        safe="nothing was started.",
        hint='put the call below `if __name__ == "__main__":`, or start the script itself: it resumes',
    )


def _located(error: BaseException, path: Path) -> str:
    """The error, with the line of the named file where it came from."""
    frames = traceback.extract_tb(error.__traceback__)
    mine = [frame for frame in frames if Path(frame.filename).name == path.name]
    place = f" ({path.name}, line {mine[-1].lineno})" if mine else ""
    return f"{type(error).__name__}: {error}{place}"


def _unusable(app: str, what: str, *, hint: str) -> UsageError:
    return UsageError(f"--app {app} {what}.", safe="nothing was started.", hint=hint)
