"""Where each framework performs its tools: a table, and how each seam takes hold when its module is imported.

A seam that is missing in the installed version is said at once: what is left then are the functions of the user's own
modules, and what the wire shows of the rest.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Final

from msgspec import Struct

from perdure.adapters.tools.seams import (
    agent_framework,
    crewai,
    google_adk,
    langchain,
    mcp,
    openai_agents,
    pydantic_ai,
)
from perdure.hooks import when_imported
from perdure.telemetry.text import legible

_MARK: Final = "__perdure_seam__"


class Seam(Struct, frozen=True):
    """One place at which a framework performs tools, or leaves them."""

    distribution: str
    module: str
    """What a script imports of it."""
    place: str
    """The module that has it."""
    verified: tuple[str, ...]
    """The versions that it was seen with."""
    check: Callable[[ModuleType], str]
    """Why it is missing in the installed version, once that is imported; empty where it is there."""
    patch: Callable[[ModuleType], None]
    signs: tuple[str, ...]
    """Of these texts one at least is in the module's source, where it is there."""
    matters: str = "only functions of your own modules are recorded"
    """What is so where it is missing."""

    def missing(self) -> str:
        """Why it is missing in the installed version, as far as its source tells; nothing is imported for that."""
        if self.place in sys.modules:
            return self.checked(sys.modules[self.place])
        source = self._source()
        if not source or any(sign in source for sign in self.signs):
            return ""
        return f"{self.place} has no {self.signs[0].split()[-1]}, as {' and '.join(self.verified)} has; {self.matters}"

    def checked(self, module: ModuleType) -> str:
        """Why it is missing in the installed version, of which this is the module; empty where it is there."""
        try:
            why = self.check(module)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is another thing than we know
            why = f"{type(error).__name__}: {error}"
        return f"{why}, as {' and '.join(self.verified)} has; {self.matters}" if why else ""

    def _source(self) -> str:
        path = self.place.replace(".", "/")
        try:
            found = metadata.distribution(self.distribution)
        except metadata.PackageNotFoundError:
            return ""
        for name in (f"{path}.py", f"{path}/__init__.py"):
            with contextlib.suppress(OSError, UnicodeDecodeError):
                return Path(str(found.locate_file(name))).read_text()
        return f"({self.place} is not there)"


_AGENTS: Final = ("0.24",)
_PYDANTIC_AI: Final = ("2.66",)
_LANGCHAIN_TOOLS: Final = ("langchain_core.tools.base", ("1.7",), langchain.check, langchain.patch, ("class BaseTool",))

SEAMS: Final = (
    Seam(
        "openai-agents",
        "agents",
        "agents.tool",
        _AGENTS,
        openai_agents.check,
        openai_agents.patch,
        ("def _invoke_function_tool_with_metadata", "def invoke_function_tool"),
    ),
    Seam(
        "openai-agents",
        "agents",
        "agents.handoffs",
        _AGENTS,
        openai_agents.check_handoffs,
        openai_agents.patch_handoffs,
        ("def handoff",),
        "handoffs are reported as unprotected tools",
    ),
    Seam("langchain-core", "langchain_core", *_LANGCHAIN_TOOLS),
    Seam("langchain-core", "langchain", *_LANGCHAIN_TOOLS),
    Seam("langchain-core", "langgraph", *_LANGCHAIN_TOOLS),
    Seam(
        "langgraph",
        "langgraph",
        "langgraph.errors",
        ("1.2",),
        langchain.check_errors,
        langchain.patch_errors,
        ("class GraphBubbleUp",),
        "an interrupt inside a tool is taken for its failure",
    ),
    Seam(
        "langchain",
        "langchain",
        "langchain.agents.structured_output",
        ("1.4",),
        langchain.check_output,
        langchain.patch_output,
        ("class OutputToolBinding",),
        "structured answers are reported as unprotected tools",
    ),
    Seam(
        "mcp",
        "mcp",
        "mcp.client.session",
        ("2.3",),
        mcp.check,
        mcp.patch,
        ("def call_tool",),
        "MCP tools are not recorded",
    ),
    Seam(
        "pydantic-ai-slim",
        "pydantic_ai",
        "pydantic_ai.toolsets.combined",
        _PYDANTIC_AI,
        pydantic_ai.check,
        pydantic_ai.patch,
        ("class CombinedToolset",),
    ),
    Seam(
        "pydantic-ai-slim",
        "pydantic_ai",
        "pydantic_ai.tool_manager",
        _PYDANTIC_AI,
        pydantic_ai.check_manager,
        pydantic_ai.patch_manager,
        ("class ToolManager",),
        "structured answers are reported as unprotected tools",
    ),
    Seam(
        "agent-framework-core",
        "agent_framework",
        "agent_framework._tools",
        ("1.23",),
        agent_framework.check,
        agent_framework.patch,
        ("class FunctionTool",),
    ),
    Seam(
        "google-adk",
        "google.adk",
        "google.adk.tools.base_tool",
        ("2.13",),
        google_adk.check,
        google_adk.patch,
        ("class BaseTool",),
    ),
    Seam("crewai", "crewai", "crewai.tools.base_tool", ("1.15",), crewai.check, crewai.patch, ("class BaseTool",)),
    Seam(
        "crewai",
        "crewai",
        "crewai.tools.structured_tool",
        ("1.15",),
        crewai.check_structured,
        crewai.patch_structured,
        ("class CrewStructuredTool",),
    ),
)


def install() -> None:
    """Have every seam take hold when its module is imported."""
    for seam in SEAMS:
        when_imported(seam.place, functools.partial(_hold, seam))


def _hold(seam: Seam, module: ModuleType) -> None:
    held: set[object] = vars(module).setdefault(_MARK, set())
    if seam.patch in held:
        return
    held.add(seam.patch)
    if why := seam.checked(module):
        sys.stderr.write(f"perdure: NOT PROTECTED as usual: tools of {seam.distribution} ({legible(why)})\n")
    else:
        seam.patch(module)
