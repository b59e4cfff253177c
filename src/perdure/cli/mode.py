"""To whom a command speaks: a person at a terminal, a pipe or a coding agent (plainly), or a program (JSON)."""

from __future__ import annotations

import os
import sys
from typing import Final

CODING_AGENTS: Final = (
    "AI_AGENT",
    "CLAUDECODE",
    "CODEX_SANDBOX",
    "CURSOR_AGENT",
    "GEMINI_CLI",
    "OPENCODE",
)
"""Variables by which coding agents say that they are the ones who type."""

COMPLETING: Final = "_PERDURE_COMPLETE"
"""The variable by which a shell asks for completions instead of running a command."""

_FALSE: Final = frozenset({"", "0", "false", "no"})


class Mode:
    """How the command of this process answers; `--json` sets it before the command begins."""

    as_json = False
    acts = False
    """Whether the command does something: then its exit code tells of that, also where its answer cannot be shown."""
    logs_events = False
    """Whether every event is written as a line for programs already."""

    def forget(self) -> None:
        """The command is over; the next one in this process is asked for in its own way."""
        self.as_json = self.acts = self.logs_events = False


mode: Final = Mode()


def is_terminal() -> bool:
    """Whether a person watches standard output and lines may be rewritten."""
    return not is_driven() and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def is_plain() -> bool:
    """Whether nobody is there to be asked, or to look at columns: full ids, whole texts, no prompts."""
    return mode.as_json or not is_terminal()


def may_ask() -> bool:
    """Whether a question on the terminal would be answered by a person."""
    return not is_plain() and sys.stdin.isatty()


def is_driven() -> bool:
    """Whether a coding agent types."""
    return any(os.environ.get(name, "").lower() not in _FALSE for name in CODING_AGENTS)


def is_coloured() -> bool:
    """Whether colour is wanted at all; click leaves it out by itself where there is no terminal."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb" and not is_driven()
