"""A process whose script reads time and chance: `python watcher.py SCRIPT SEED REPLAYED`, which is JSON.

Writes what the script printed, and then, as one line of JSON, what is to be written.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

from perdure.adapters.userland import values
from perdure.adapters.userland.modules import roots_of
from perdure.adapters.userland.source import compiled_script, install
from perdure.engine.scope import Frame, Scope, carriers, enter_frame

if __name__ == "__main__":
    path, seed, replayed = sys.argv[1:]
    sys.path[0] = str(Path(path).parent)
    install(roots_of(Path(path)), script=Path(path))
    made = values.Values(seed.encode(), json.loads(replayed))
    values.begin(made)
    module = ModuleType("__main__")
    module.__dict__.update({"__file__": path, "enter": enter_frame, "Frame": Frame, "Scope": Scope})
    sys.modules["__main__"] = module
    enter_frame(Frame(None, Scope("main")))
    carriers.acquire()
    exec(compiled_script(path), module.__dict__)  # noqa: S102
    print(json.dumps(made.take_unwritten()))
