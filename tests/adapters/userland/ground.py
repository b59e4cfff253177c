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
_HEAD = r"(?<=Traceback \(most recent call last\):\n)"
_OURS = re.compile(_HEAD + r'(?:  File "[^"]*/(?:runner\.py|perdure/[^"]*)", line \d+, in .*\n(?:    .*\n)*)+')
"""Only what is above the script's own first line, which `perdure run` does not show."""

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


def executed(command: list[str], *, folder: Path, **environment: str) -> Shown:
    """What a process of Python's shows."""
    return _shown(_started(command, folder, **environment))


def _started(command: list[str], folder: Path, **more: str) -> subprocess.Popen[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return subprocess.Popen(
        [sys.executable, "-W", "error::SyntaxWarning", *command],
        cwd=folder,
        env={**environment, "PYTHONHASHSEED": "0", **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _shown(process: subprocess.Popen[str]) -> Shown:
    out, err = process.communicate()
    return Shown(out, _OF_NOTHING.sub("", _OURS.sub("", err)), process.returncode)


def same(script: Path, *args: str) -> Shown:
    """What both show, which must be the same."""
    commands = [str(script), *args], [str(RUNNER), str(script), *args]
    expected, found = map(_shown, [_started(command, script.parent) for command in commands])
    assert found == expected
    return found
