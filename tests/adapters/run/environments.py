"""Environments for frameworks that are heavy, or do not go with the others."""

from __future__ import annotations

import sys
from typing import Final

from tests.environments import python_with

PACKAGES: Final = {
    "litellm": ("litellm", "mcp"),
    "agent-framework": ("agent-framework-core", "agent-framework-openai"),
    "google-adk": ("google-adk",),
    "crewai": ("crewai",),
}
_OURS: Final = ("apsw", "click", "msgspec")


def python_of(name: str) -> str:
    """The interpreter of this environment; our own where none is named."""
    return python_with((*_OURS, *PACKAGES[name]), name=name) if name else sys.executable
