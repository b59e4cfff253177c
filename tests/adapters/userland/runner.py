"""Executes a script as `perdure run` does, with the user's modules compiled for a run, and nothing else of it.

`python runner.py SCRIPT ARGUMENT...`
"""

from __future__ import annotations

import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import ModuleType

if __name__ == "__main__":
    from perdure.adapters.userland.modules import roots_of
    from perdure.adapters.userland.source import compiled_script, install

    path = sys.argv[1]
    sys.argv = sys.argv[1:]
    sys.path[0] = str(Path(path).resolve().parent)
    install(roots_of(Path(path)), script=Path(path))
    module = ModuleType("__main__")
    module.__file__ = path
    module.__loader__ = SourceFileLoader("__main__", path)
    module.__dict__.update({"__builtins__": __builtins__, "__cached__": None, "__spec__": None})
    sys.modules["__main__"] = module
    exec(compiled_script(path), module.__dict__)  # noqa: S102
