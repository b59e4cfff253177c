"""Pages whose Python blocks are files and whose console blocks are what commands print, executed in order."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src"
_FENCED = re.compile(r"^```(python|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_VOLATILE = (
    (re.compile(r"\b[a-z]+-[a-z]+-\d+\b"), "NAME"),
    (re.compile(r"\bpid \d+ on \S+?(?=[ )])"), "HOLDER"),
    (re.compile(r"\bid [0-9a-z]+-[0-9a-z]+"), "id ID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"), "INSTANT"),
    (re.compile(r" *\+?\d+(\.\d+)? ?(s|min|h)\b"), " TIME"),
    (re.compile(r"\bby [\w-]+@[\w.-]+"), "by WHO"),
    (re.compile(r" {2,}"), "  "),
)


class Said(NamedTuple):
    """A command of a page and what the page says that it prints."""

    command: str
    printed: str


def steps_of(page: str) -> list[tuple[str, str] | Said]:
    """The files and the commands of a page, in order; a file is its name and its text."""
    found: list[tuple[str, str] | Said] = []
    for language, text in _FENCED.findall(page):
        if language == "python":
            name = text.partition("\n")[0].removeprefix("# ")
            assert name.endswith(".py"), f"a block begins with the name of its file: {text[:60]!r}"
            found.append((name, text))
            continue
        for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append(Said(command, printed))
    return found


def perform(command: str, folder: Path) -> str:
    """What a command prints on a terminal, in this folder."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
    python = shlex.quote(sys.executable)
    functions = f'python() {{ {python} "$@"; }}; perdure() {{ {python} -P -m perdure "$@"; }}'
    done = subprocess.run(
        ["bash", "-c", f"{functions}; {command}"],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(SOURCE), "COLUMNS": "80"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout


def settled(text: str) -> str:
    """A text without what differs from run to run."""
    for pattern, word in _VOLATILE:
        text = pattern.sub(word, text)
    return text.strip()
