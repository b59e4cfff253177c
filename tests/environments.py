"""Environments beside the tests' own: for another Python, or for what does not go with what is in `.venv`.

Each is made when a test first needs it, below `.venv-frameworks` beside `.venv`, and kept until what it holds changes.
"""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[1] / ".venv-frameworks"


class CannotBeMade(RuntimeError):
    """What was wanted, and what was said to it."""


def python_with(packages: Sequence[str], *, name: str, python: str = sys.executable) -> str:
    """The interpreter of the environment of this name, with these packages, made of this Python.

    One that cannot be made is an error: nothing is left out in silence.
    """
    FOLDER.mkdir(exist_ok=True)
    place, contents = FOLDER / name, "\n".join((python, *packages))
    inside, made = str(place / "bin" / "python"), place / "made-of"
    with (FOLDER / f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists() or made.read_text() != contents:
            # Our own pip installs into it: to give each one of its own takes longer than the rest.
            _do(python, "-m", "venv", "--clear", "--without-pip", str(place))
            _do(sys.executable, "-m", "pip", "--python", inside, "install", "-qq", *_QUIET, *packages)
            made.write_text(contents)
    return inside


_QUIET: Final = ("--disable-pip-version-check", "--root-user-action", "ignore")


def _do(*command: str) -> None:
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise CannotBeMade(f"{' '.join(command)}\n{ended.stdout}\n{ended.stderr}")
