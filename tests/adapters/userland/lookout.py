"""A process whose script is watched: `python lookout.py SCRIPT STRICT DECLARED...`; writes what it is told."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from perdure.adapters.userland.modules import roots_of
from perdure.adapters.userland.outside import watch
from perdure.adapters.userland.source import compiled_script, install
from perdure.engine.scope import Frame, Scope, enter_frame

if TYPE_CHECKING:
    from perdure.adapters.userland.outside import Seen


class Stopped(BaseException):
    """What a strict run raises."""


def tell(seen: Seen) -> None:
    """Write it at once: a process that was forked off may end in any way."""
    os.write(1, f"{seen.what} {Path(seen.file).name}:{seen.line}\n".encode())
    if is_strict:
        raise Stopped


if __name__ == "__main__":
    path, strict, *declared = sys.argv[1:]
    is_strict = strict == "strict"
    sys.path[0] = str(Path(path).parent)
    userland = install(roots_of(Path(path)), script=Path(path))
    module = ModuleType("__main__")
    module.__dict__.update({"__file__": path, "enter": enter_frame, "Frame": Frame, "Scope": Scope})
    sys.modules["__main__"] = module
    code = compiled_script(path)
    unwatch = watch(userland, tell, declared=declared, ignored=[Path("store").resolve()])
    try:
        exec(code, module.__dict__)  # noqa: S102
    except Stopped:
        print("stopped")
    finally:
        unwatch()
        Path("unseen").write_text("x")
