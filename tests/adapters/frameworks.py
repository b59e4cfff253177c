"""Frameworks that are too heavy for the tests' own environment, or do not go with what is in it, and their guides."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from tests import environments

ROOT = Path(__file__).parents[2]


def python_with(*extras: str) -> str:
    """The interpreter of an environment with perdure's own dependencies, those of these extras, and pytest."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [package for extra in extras for package in project["optional-dependencies"][extra]]
    return environments.python_with([*project["dependencies"], *wanted, "pytest>=8.3"], name="-".join(extras))


def file_of(page: str, folder: Path) -> Path:
    """The one file that a page of the guides shows and does not execute by itself, written into a folder."""
    text = (ROOT / "docs" / "guides" / page).read_text(encoding="utf-8")
    shown = re.findall(r"^```py\n(# ([\w.]+)\n.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(shown) == 1
    written, name = shown[0]
    path: Path = folder / name
    path.write_text(written)
    return path
