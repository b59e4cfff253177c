"""The disk that the budgets were set for: one whose syncs take 0.2 ms, on a machine whose own disk is quicker.

What a step adds to its commit is processor time, the same on every disk, so its share of the raw limit depends on how
long a sync takes: a quicker disk makes every budget harder, a slower one easier. Therefore syncs are held up to that
time, for the raw limit as for perdure, and the budgets are judged there. What this disk does stands beside it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

SYNC_US: Final = 200
WORDS: Final = f"syncs of {SYNC_US / 1000:g} ms"
_SOURCE: Final = Path(__file__).with_suffix(".c")


def built(directory: Path) -> Path | None:
    """Compile the library that holds syncs up; None where that cannot be done here."""
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    library = directory / "held_sync.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
    compiled = subprocess.run(command, capture_output=True, check=False)
    return library if compiled.returncode == 0 else None


def variables(library: Path) -> dict[str, str]:
    """Return what a process needs in its environment so that its syncs are held up."""
    return {"LD_PRELOAD": str(library), "HELD_SYNC_US": str(SYNC_US)}
