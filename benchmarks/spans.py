"""Times between the marks a contender leaves, one mark per step."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise


def tenths(marks: Sequence[float]) -> dict[str, float]:
    """Return the median milliseconds per step in the first tenth of the run and in the last."""
    spans = [later - earlier for earlier, later in pairwise(marks)]
    tenth = max(1, len(spans) // 10)
    return {
        "first_ms": statistics.median(spans[:tenth]) * 1000,
        "last_ms": statistics.median(spans[-tenth:]) * 1000,
    }
