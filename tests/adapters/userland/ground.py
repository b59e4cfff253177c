"""A script in a folder of its own, executed by plain Python and as for a run: both must show the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

RUNNER = Path(__file__).with_name("runner.py")
_OURS = re.compile(r'  File "[^"]*/(?:runner\.py|perdure/[^"]*)", line \d+, in .*\n(?:    .*\n)*')
_OF_NOTHING = re.compile(r'Traceback \(most recent call last\):\n(?=  File "[^"]*", line \d+\n)')
"""A syntax error of the script is shown without a stack, which `perdure run` sees to by dropping our frames."""


class Shown(NamedTuple):
    """What a process wrote, and how it ended."""

    out: str
    err: str
    code: int


def written(folder: Path, text: str, name: str = "script.py") -> Path:
    """A file of the user's."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip("\n"))
    return path


def plain(script: Path, *args: str) -> Shown:
    """What plain Python shows."""
    return executed([str(script), *args], folder=script.parent)


def guarded(script: Path, *args: str) -> Shown:
    """What the same script shows with its modules compiled for a run, without the runner's own frames."""
    return executed([str(RUNNER), str(script), *args], folder=script.parent)


def executed(command: list[str], *, folder: Path) -> Shown:
    """What a process of Python's shows."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-W", "error::SyntaxWarning", *command],
        cwd=folder,
        env={**environment, "PYTHONHASHSEED": "0"},
        capture_output=True,
        text=True,
        check=False,
    )
    return Shown(done.stdout, _OF_NOTHING.sub("", _OURS.sub("", done.stderr)), done.returncode)


def same(script: Path, *args: str) -> Shown:
    """What both show, which must be the same."""
    expected, found = plain(script, *args), guarded(script, *args)
    assert found == expected
    return found
