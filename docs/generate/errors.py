"""The page of the errors: the tree, and of each class its code, its exit code and its meaning."""

from __future__ import annotations

from typing import TypeVar

from docs.generate.markdown import block, documented, joined, opened, table
from perdure import errors
from perdure.errors import PerdureError, Signal

Kind = TypeVar("Kind", PerdureError, Signal)
_INTRO = """Every error of perdure is a `PerdureError`. It says three things: `message` (what happened, with
names and values), `safe` (what is safe) and `hint` (what to do: mostly the next command). In a script, an error
that nobody catches prints these three lines instead of a traceback, and the process ends with the class's exit
code. With `--json` the same is [an object](json.md#errors) with the class's `code`.

An exception that your own code raises stays your own: `perdure.run` raises it as it was, also when it is
replayed."""
_SIGNALS = """What ends a run from outside derives from `BaseException`, so that an `except Exception` of an
agent or of a framework cannot swallow it. Do not catch these; where you must, raise them again. After one,
every call of that run raises it again, and nothing more is performed. `perdure.run` and `handle.result()` raise
`RunCancelled` for a cancelled run."""


def page() -> str:
    """The whole page."""
    parts = opened("Errors", _INTRO, "## The tree", block("\n".join(_tree(PerdureError))))
    for kind in every(PerdureError):
        parts += [f"### {kind.__name__}", f"`code` `{kind.code}`, exit code {kind.exit_code}", documented(kind)]
    rows = [(f"`{kind.__name__}`", documented(kind)) for kind in every(Signal)]
    return joined([*parts, "## Signals", _SIGNALS, table(("signal", "meaning"), rows)])


def every(kind: type[Kind]) -> list[type[Kind]]:
    """A class of `perdure.errors` and all below it there, in the order of the tree."""
    found = [kind]
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            found += every(child)
    return found


def _tree(kind: type[PerdureError], indent: str = "", above: int | None = None) -> list[str]:
    code = "" if kind.exit_code == above else str(kind.exit_code)
    lines = [f"{indent + kind.__name__:<36}{code}".rstrip()]
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            lines += _tree(child, f"{indent}    ", kind.exit_code)
    return lines
