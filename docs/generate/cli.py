"""The page of the commands: what `--help` says of each, in the order in which `perdure --help` lists them."""

from __future__ import annotations

import click

from docs.generate.markdown import block, joined, opened, table
from perdure.cli import COMMANDS, perdure
from perdure.errors import PerdureError

COLUMNS = 88
_FAMILIES = {
    0: "done",
    1: "the agent failed; or the answer of a command that only looks could not be written",
    2: "usage: nothing was changed",
    3: "the run waits for a person",
    4: "an effect is in doubt",
    5: "the run is parked",
    6: "the store",
    130: "interrupted with Ctrl-C",
    137: "killed with SIGKILL",
    141: "nobody reads the answer of a command that only looks",
}
_RUN = """A `RUN` is an id, a readable name, the beginning of either if it is unique, or `-` for the run that
was started last. What a command answers goes to standard output. What perdure says beside an agent's own output
goes to standard error, and so does an error: what happened, what is safe, and what to do. Every command takes
`--store PATH`, before or after its name. With `--json` exactly one JSON object goes to standard output (one a
line where a command follows something); [its fields](json.md) are a contract. Where no person can be asked (no
terminal, or a coding agent types) nothing is asked, and what cannot be taken back needs `--yes`. The exit
code of a command that does something tells of that, also where standard output is closed or full: that its answer
got lost is said on standard error."""


def page() -> str:
    """The whole page."""
    parts = opened("The command line", _RUN, "## Exit codes", table(("code", "meaning"), _codes()))
    parts += ["## perdure", block(_help(perdure, "perdure"))]
    for name in COMMANDS:
        command = perdure.get_command(click.Context(perdure), name)
        assert command is not None
        parts += _sections(command, f"perdure {name}", level=2)
    return joined(parts)


def _sections(command: click.Command, path: str, *, level: int) -> list[str]:
    parts = [f"{'#' * level} {path}", block(_help(command, path))]
    for name, child in getattr(command, "commands", {}).items():
        parts += _sections(child, f"{path} {name}", level=level + 1)
    return parts


def _help(command: click.Command, path: str) -> str:
    context = click.Context(command, info_name=path, terminal_width=COLUMNS, max_content_width=COLUMNS)
    context.help_option_names = ["-h", "--help"]
    return click.unstyle(command.get_help(context))


def _codes() -> list[tuple[str, ...]]:
    used = {kind.exit_code for kind in _every(PerdureError)}
    assert used <= set(_FAMILIES), used
    return [(str(code), meaning) for code, meaning in _FAMILIES.items()]


def _every(kind: type[PerdureError]) -> list[type[PerdureError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in _every(child))]
