"""Environments for frameworks that are heavy, or do not go with the others: made when a test first asks for one."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).parents[3] / ".venv-frameworks"
PACKAGES: Final = {
    "litellm": ("litellm", "mcp"),
    "agent-framework": ("agent-framework-core", "agent-framework-openai"),
    "google-adk": ("google-adk",),
    "crewai": ("crewai",),
}
_OURS: Final = ("apsw", "click", "msgspec")


def python_of(name: str) -> str:
    """The interpreter of this environment, which is made if it is not there; our own where none is named.

    One that cannot be made fails the test that asked for it: a framework is never left out in silence.
    """
    if not name:
        return sys.executable
    FOLDER.mkdir(exist_ok=True)
    place = FOLDER / name
    with (FOLDER / f"{name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (place / "ready").exists():
            _make(place, (*_OURS, *PACKAGES[name]))
            (place / "ready").touch()
    return str(place / "bin" / "python")


def _make(place: Path, packages: tuple[str, ...]) -> None:
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(place)],
        [str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages],
    ):
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"{' '.join(command)}\n{ended.stdout}\n{ended.stderr}"
