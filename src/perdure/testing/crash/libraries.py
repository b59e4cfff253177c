"""What the processes of a campaign have in common, done once: the libraries of the code under test, never that code.

Code under test is loaded by every process itself, as it is when a program is started again: what it reads, draws or
makes while it is loaded belongs to that process alone.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path

from perdure import typed
from perdure.adapters.script.reading import imports_of
from perdure.bodies import BODY_OF
from perdure.store.sql import load_schema


def load_libraries(app: str) -> None:
    """Load what a file or a module imports of installed packages and of Python itself; what fails, fails later."""
    file = _file_of(app)
    if file is None:
        return
    with contextlib.redirect_stdout(sys.stderr):  # standard output is for whoever asked for processes
        for name in sorted(imports_of(str(file))):
            if _is_installed(name.partition(".")[0]):
                with contextlib.suppress(Exception):
                    importlib.import_module(name)


def rehearse() -> None:
    """Learn what the first run of any process learns: a fifth of what a short one does, and none of it is its own."""
    with contextlib.suppress(OSError):  # installed without its source
        inspect.getsource(rehearse)  # by the grammar of Python's tokens, as the source of any agent is found
    for revision in load_schema("sqlite"):
        tuple(revision)
    for body in BODY_OF.values():
        typed.known(body)


def _file_of(app: str) -> Path | None:
    """The file of a module, found without loading the packages above it."""
    if app.endswith(".py"):
        return Path(app)
    inner = Path(*app.split("."))
    for place in map(Path, sys.path):
        for candidate in (place / inner.with_suffix(".py"), place / inner / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None


def _is_installed(name: str) -> bool:
    if not name or name in sys.modules:
        return bool(name)
    if name in sys.stdlib_module_names:
        return True
    with contextlib.suppress(ImportError, ValueError):
        found = importlib.util.find_spec(name)
        return found is not None and found.origin is not None and "-packages" in found.origin
    return False
