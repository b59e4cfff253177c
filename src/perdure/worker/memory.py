"""How large this process is."""

from __future__ import annotations

import os
import resource
import sys


def resident_bytes() -> int:
    """The memory it occupies now; where the system does not say, the most it ever did."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 - read often
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
