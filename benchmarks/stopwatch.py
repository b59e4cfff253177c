"""Rates of a piece of work, by the clock and by the processor; the latter hardly depends on disk or neighbours."""

from __future__ import annotations

import time


class Stopwatch:
    """Runs from the moment it is made."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._processor_started = time.process_time()

    def rates(self, steps: int) -> dict[str, float]:
        """Return steps per second, and the microseconds of processor time of one step in all threads."""
        processor = time.process_time() - self._processor_started
        seconds = time.perf_counter() - self._started
        return {"per_second": steps / seconds, "processor_us": processor / steps * 1_000_000}
