"""Where each framework performs its tools: a table, and how each seam takes hold when its module is imported.

A seam that is missing in the installed version is said at once: what is left then are the functions of the user's own
modules, and what the wire shows of the rest.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import metadata
from types import ModuleType
from typing import Final

from msgspec import Struct

from perdure.adapters.hooks import when_imported
from perdure.adapters.tools.seams import langchain, mcp, openai_agents, pydantic_ai
from perdure.telemetry.text import legible

_MARK: Final = "__perdure_seam__"


class Seam(Struct, frozen=True):
    """One place at which a framework performs tools, or leaves them."""

    distribution: str
    module: str
    """The module that has it."""
    verified: tuple[str, ...]
    """The versions that it was seen with."""
    check: Callable[[ModuleType], str]
    """Why it is missing in the installed version; empty where it is there."""
    patch: Callable[[ModuleType], None]
    matters: str = "its tools are recorded only where they are functions of your own modules"
    """What is so where it is missing."""

    def problem(self, module: ModuleType) -> str:
        """What is to be said of the installed version; empty where the seam is there."""
        try:
            why = self.check(module)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is another thing than we know
            why = f"{type(error).__name__}: {error}"
        if not why:
            return ""
        known = ", ".join(self.verified)
        return f"{self.distribution} {self.version()} is not as perdure knows it ({known}): {why}; {self.matters}"

    def version(self) -> str:
        """The installed version."""
        try:
            return metadata.version(self.distribution)
        except metadata.PackageNotFoundError:
            return "of an unknown version"


SEAMS: Final = (
    Seam("openai-agents", "agents.tool", ("0.24",), openai_agents.check, openai_agents.patch),
    Seam(
        "openai-agents",
        "agents.handoffs",
        ("0.24",),
        openai_agents.check_handoffs,
        openai_agents.patch_handoffs,
        "handoffs are reported as unprotected tools",
    ),
    Seam("langchain-core", "langchain_core.tools.base", ("1.7",), langchain.check, langchain.patch),
    Seam(
        "langgraph",
        "langgraph.errors",
        ("1.2",),
        langchain.check_errors,
        langchain.patch_errors,
        "an interrupt inside a tool is taken for its failure",
    ),
    Seam(
        "langchain",
        "langchain.agents.structured_output",
        ("1.4",),
        langchain.check_output,
        langchain.patch_output,
        "a structured answer is reported as an unprotected tool",
    ),
    Seam("mcp", "mcp.client.session", ("2.3",), mcp.check, mcp.patch, "calls of MCP tools are not recorded"),
    Seam("pydantic-ai-slim", "pydantic_ai.toolsets.combined", ("2.66",), pydantic_ai.check, pydantic_ai.patch),
    Seam(
        "pydantic-ai-slim",
        "pydantic_ai.tool_manager",
        ("2.66",),
        pydantic_ai.check_manager,
        pydantic_ai.patch_manager,
        "a structured answer is reported as an unprotected tool",
    ),
)


def install() -> None:
    """Have every seam take hold when its module is imported."""
    for seam in SEAMS:
        when_imported(seam.module, functools.partial(_hold, seam))


def _hold(seam: Seam, module: ModuleType) -> None:
    if getattr(module, _MARK, False):
        return
    setattr(module, _MARK, True)
    if problem := seam.problem(module):
        sys.stderr.write(f"perdure: NOT PROTECTED as usual: {legible(problem)}\n")
    else:
        seam.patch(module)
