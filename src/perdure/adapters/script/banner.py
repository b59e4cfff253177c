"""Two lines before the script's own: what is protected, and what is not; and at its end what turned out not to be."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure.adapters.script.reading import imports_of
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from perdure.adapters.script.conduct import Conduct

_MODELS: Final = {
    "anthropic": "anthropic",
    "openai": "openai",
    "google.genai": "google-genai",
    "litellm": "litellm",
    "httpx": "httpx",
    "httpx2": "httpx2",
    "aiohttp": "aiohttp",
    "requests": "requests",
    "urllib3": "urllib3",
    "boto3": "boto3",
    "botocore": "botocore",
}
"""Libraries whose model calls are recorded, by the module that a script imports, and their distributions."""


def say_beginning(script: Conduct, path: str) -> None:
    """Say what is protected and what is not, where the script imports anything that can be."""
    imported = imports_of(path)
    models = [name for module, name in _MODELS.items() if _imports(imported, module)]
    frameworks = [seam for seam in script.seams if _imports(imported, seam.module)]
    if not (models or frameworks):
        return
    own = legible(Path(path).name)
    named = ", ".join(
        dict.fromkeys([*(_versioned(seam.distribution) for seam in frameworks), *map(_versioned, models)])
    )
    _tell(f"protected: model calls and tools of {named}; the functions, clock and chance of {own}")
    missing = [f"tools of {_versioned(seam.distribution)} ({why})" for seam in frameworks if (why := seam.missing())]
    rest = f"files, programs and requests of {own} outside its tools; they are named as they come"
    _tell(f"not protected: {'; '.join([*missing, rest])}")


def say_unprotected(script: Conduct) -> None:
    """Say how much was not protected beyond what was named as it came."""
    if unsaid := script.coverage.unsaid():
        _tell(f"not protected: {counted(unsaid, 'more thing')} of the same kind")


def _imports(imported: set[str], module: str) -> bool:
    return any(name == module or name.startswith(f"{module}.") for name in imported)


def _versioned(distribution: str) -> str:
    try:
        return f"{distribution} {metadata.version(distribution)}"
    except metadata.PackageNotFoundError:
        return distribution


def _tell(words: str) -> None:
    sys.stderr.write(f"perdure: {words}\n")
