"""A step body that kills its own process, and knows when the first fresh step of a resumed run began."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from benchmarks.trial import report


class Interruption:
    """Counts the bodies that really execute: a step that was recorded does not execute again."""

    def __init__(self) -> None:
        self.fresh_steps = 0
        self._fresh_steps_allowed = 0
        self._first_fresh_at = 0.0
        self._report: Callable[[float], None] | None = None

    def kill_after(self, fresh_steps: int) -> None:
        """Let so many fresh steps complete; the next one dies."""
        self._fresh_steps_allowed = fresh_steps

    def measure_resume(self, **also: float) -> None:
        """Take the time from now to the first fresh step; let that one complete, and die in the next."""
        started = time.perf_counter()

        def measured(first_fresh_at: float) -> None:
            report({"resume_ms": (first_fresh_at - started) * 1000, **also})

        self._report = measured
        self.kill_after(1)

    def pass_through(self) -> None:
        """Execute one fresh step; every contender's step body calls this."""
        self.fresh_steps += 1
        if self.fresh_steps == 1:
            self._first_fresh_at = time.perf_counter()
        if self.fresh_steps > self._fresh_steps_allowed:
            if self._report is not None:
                self._report(self._first_fresh_at)
            os.kill(os.getpid(), signal.SIGKILL)
