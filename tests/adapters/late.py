"""What clients of models load only when they are first used: a process that forks others loads it once, for all."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import Final

_LATE: Final = {
    "anyio": ("anyio._backends._asyncio",),
    "httpx": ("httpcore",),
    "httpx2": ("httpcore2",),
    "openai": (
        "openai.lib.streaming.chat",
        "openai.resources.chat.completions",
        "openai.resources.responses.responses",
    ),
}


def load() -> None:
    """Load what belongs to those that are loaded already."""
    for library, modules in _LATE.items():
        for module in modules if library in sys.modules else ():
            with contextlib.suppress(ImportError):  # another version has it elsewhere
                importlib.import_module(module)
