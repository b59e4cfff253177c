"""A file of agents as the module that it is: by its own name, or as a part of the package that it lies in."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType


def load_file(path: Path) -> ModuleType:
    """Load a file under its own name, not as `__main__`, with its folder importable as when it is run.

    One that cannot be run like that, because it needs the package it lies in, is loaded as a part of it.
    """
    sys.path.insert(0, str(path.parent))
    try:
        return _executed(path)
    except ImportError as error:
        above, name = _place(path)
        if not _needs(error, name):
            raise
    sys.modules.pop(path.stem, None)
    sys.path[0] = str(above)
    return importlib.import_module(name)


def _executed(path: Path) -> ModuleType:
    specification = importlib.util.spec_from_file_location(path.stem, path)
    if specification is None or specification.loader is None:
        raise ImportError(f"{path.name} is not a Python file")
    module = importlib.util.module_from_spec(specification)
    sys.modules[path.stem] = module
    specification.loader.exec_module(module)
    return module


def _place(path: Path) -> tuple[Path, str]:
    """The folder above the packages that a file lies in, and its name as a part of them."""
    folder, names = path.parent, [path.stem]
    while (folder / "__init__.py").is_file():
        names.insert(0, folder.name)
        folder = folder.parent
    return folder, ".".join(names)


def _needs(error: ImportError, name: str) -> bool:
    """Whether an import failed for want of the package: a relative one, or one of the package by its name."""
    package, dot, _ = name.partition(".")
    is_relative = error.name is None and "relative import" in str(error)
    return bool(dot) and (is_relative or (error.name or "").partition(".")[0] == package)
