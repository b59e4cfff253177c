"""Time in the hands of a test."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from perdure import clock


class ManualClock:
    """Time that passes only when the test or the engine says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall = clock.wall_seconds()
        self.boot = clock.boot_seconds()
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None
        monkeypatch.setattr(clock, "wall_seconds", lambda: self.wall)
        monkeypatch.setattr(clock, "boot_seconds", lambda: self.boot)
        monkeypatch.setattr(clock, "sleep", self._sleep)

    def pass_seconds(self, seconds: float) -> None:
        """Let time pass."""
        self.wall += seconds
        self.boot += seconds

    def _sleep(self, seconds: float) -> None:
        self.on_sleep()
        self.slept.append(seconds)
        self.pass_seconds(max(0.0, seconds))
