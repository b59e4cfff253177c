"""What a campaign kills: an agent in a file or a module, or a script as it is; and how a process gets hold of it."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from perdure import codec
from perdure.engine.agent import spec_of
from perdure.engine.loading import load_file
from perdure.engine.session import refusing_runs
from perdure.engine.signature import shown_signature
from perdure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from perdure.engine.agent import AgentSpec

RUN_ID: Final = "crash"
"""The id of the run of an agent, in each trial's own store."""


class Subject(Struct, frozen=True, kw_only=True):
    """What is started in every process of a campaign."""

    kind: Literal["agent", "script"]
    app: str
    """A path, absolute, or the name of a module."""
    name: str = ""
    """How the agent is called in there."""
    arguments: str = "{}"
    """The arguments of the agent, sealed as its run would keep them."""
    words: tuple[str, ...] = ()
    """The arguments of the script, or of the agent as they were typed."""
    shown: str = ""
    """The target as it was typed."""
    setup: tuple[str, ...] = ()
    """Modules or files that every process imports first."""
    stubs: dict[str, str] = {}
    """What bodies return instead of being executed, as JSON, by the name of the step or effect."""
    paths: tuple[str, ...] = ()
    """Where modules are looked for, before anywhere else."""

    def command(self, *options: str) -> str:
        """The command that starts a campaign of this subject, as a person can paste it."""
        setup = [word for module in self.setup for word in ("--setup", module)]
        stubs = [word for name, value in self.stubs.items() for word in ("--stub", f"{name}={value}")]
        arguments = ["--", *self.words] if self.words else []
        return shlex.join(["perdure", "crash", self.shown or self.app, *setup, *stubs, *options, *arguments])


def agent_subject(agent: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Subject:
    """A call of an agent that is at hand; every process imports it anew, so it must be found where it was defined."""
    spec = spec_of(agent)
    function = inspect.unwrap(spec.function)
    name = function.__qualname__
    if "<locals>" in name:
        raise UsageError(
            f"{name} is defined inside a function: no other process can import it.",
            safe="nothing was started.",
            hint="define the agent at the top of its module",
        )
    try:
        arguments = spec.signature.bind(args, kwargs)
    except TypeError as error:
        raise UsageError(
            f"{error}.", safe="nothing was started.", hint=f"it is called as {shown_signature(function)}"
        ) from None
    sealed = codec.seal_arguments(arguments, of=spec.name).decode()
    module = function.__module__
    file = getattr(sys.modules.get(module), "__file__", None) or inspect.getsourcefile(function) or ""
    app = module if module != "__main__" and _is_importable(module) else str(Path(file).absolute())
    return Subject(
        kind="agent", app=app, name=name, arguments=sealed, shown=f"{app}:{name}", paths=tuple(filter(None, sys.path))
    )


def _is_importable(name: str) -> bool:
    """Whether another process that looks in the same places would find the module under this name."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def load_setup(subject: Subject) -> None:
    """Import what every process needs first."""
    for each in subject.setup:
        load_module(each)


def load_agent(subject: Subject) -> Callable[..., Any]:
    """The agent, in this process."""
    guard = UsageError(f"{subject.app} starts a run as soon as it is loaded.", safe="nothing was started.")
    with refusing_runs(guard):
        found: Any = load_module(subject.app)
    return _named(found, subject)


def _named(module: ModuleType, subject: Subject) -> Callable[..., Any]:
    """What the module calls so, or the agent in it that carries this name."""
    found: Any = module
    for part in subject.name.split("."):
        found = getattr(found, part, None)
    if found is not None:
        function: Callable[..., Any] = getattr(found, "__func__", found)
        return function
    for value in vars(module).values():
        with contextlib.suppress(UsageError):
            if spec_of(value).name == subject.name:
                return value  # type: ignore[no-any-return]
    raise UsageError(f"{subject.app} has no agent {subject.name!r}.", safe="nothing was started.")


def load_module(app: str) -> ModuleType:
    """A file or a module, loaded under its own name."""
    return load_file(Path(app)) if app.endswith(".py") else importlib.import_module(app)


def bound_arguments(subject: Subject, spec: AgentSpec) -> inspect.BoundArguments:
    """The arguments of the agent, as its own types."""
    arguments = codec.unseal_arguments(subject.arguments.encode(), spec.signature.parameters)
    return spec.signature.call(arguments)


def environment(settings: dict[str, str]) -> dict[str, str]:
    """The environment of every process: ours, without settings of perdure but the given ones."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    return {**plain, **settings}
