"""Resident memory of this process."""

from __future__ import annotations

import gc
import os
import resource
from pathlib import Path


def resident_bytes() -> int:
    """Return the memory this process holds now; where only the peak is known, the peak."""
    gc.collect()
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return pages * os.sysconf("SC_PAGE_SIZE")
