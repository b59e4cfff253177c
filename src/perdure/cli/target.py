"""What `perdure run` and `perdure start` are told to execute: a script, or an agent in a file or a module."""

from __future__ import annotations

import difflib
from pathlib import Path

from msgspec import Struct

from perdure.errors import UsageError
from perdure.telemetry.text import legible


class Script(Struct, frozen=True):
    """A Python file that is executed as a program of its own."""

    path: str


class AgentTarget(Struct, frozen=True):
    """An agent, by its name, in a file or a module; an empty name means the only one there."""

    app: str
    agent: str


Target = Script | AgentTarget


def names_agent(text: str) -> bool:
    """Whether this target is an agent, so that what follows it are arguments of ours to read."""
    return ":" in text and not Path(text).exists()


def parse_target(text: str) -> Target:
    """What a target means; nothing is loaded."""
    if names_agent(text):
        app, _, agent = text.rpartition(":")
        if not app:
            raise _unusable(text, "names no file and no module before its colon")
        return AgentTarget(app, agent)
    if not text.strip():
        raise _unusable(text, "names no script and no agent")
    path = Path(text).expanduser()
    if path.is_dir():
        raise _unusable(text, "is a directory")
    if path.is_file():
        return Script(str(path))
    if path.suffix == ".py" or "/" in text:
        raise _unusable(text, "does not exist")
    raise _unusable(text, "is neither a file nor an agent")


def agent_target(text: str) -> AgentTarget:
    """The same where only an agent will do; a file or module alone means the only agent in it."""
    if names_agent(text):
        target = parse_target(text)
        if isinstance(target, AgentTarget):
            return target
    return AgentTarget(text, "")


def _unusable(text: str, what: str) -> UsageError:
    scripts = [path.name for path in Path.cwd().glob("*.py") if path.is_file()]
    near = difflib.get_close_matches(text, scripts, n=1, cutoff=0.7)
    meant = f"did you mean {legible(near[0])}? " if near else ""
    script = legible(near[0]) if near else "script.py"
    return UsageError(
        f"{legible(text, 100)!r} {what}.",
        safe="nothing was started.",
        hint=f"{meant}a script: perdure run {script}; an agent: perdure run {script}:agent name=value",
    )
