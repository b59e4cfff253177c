"""Environments for frameworks that are too heavy for the tests' own, or do not go with what is in it.

Each is made when a test first needs it, below `.venv-frameworks` beside `.venv`, and kept until what it holds changes.
"""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python_with(extra: str) -> str:
    """The interpreter of an environment with perdure's own dependencies, those of an extra, and pytest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"][extra], "pytest>=8.3"]
    folder = ROOT / ".venv-frameworks" / extra
    folder.parent.mkdir(exist_ok=True)
    with (folder.parent / f"{extra}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        python, made = folder / "bin" / "python", folder / "made-of"
        if not made.exists() or made.read_text() != "\n".join(needed):
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
            subprocess.run([*pip, *needed], check=True)
            made.write_text("\n".join(needed))
    return str(python)


def file_of(page: str, folder: Path) -> Path:
    """The one file that a page of the guides shows and does not execute by itself, written into a folder."""
    text = (ROOT / "docs" / "guides" / page).read_text(encoding="utf-8")
    shown = re.findall(r"^```py\n(# ([\w.]+)\n.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(shown) == 1
    written, name = shown[0]
    path: Path = folder / name
    path.write_text(written)
    return path
