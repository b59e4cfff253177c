"""A store that a worker misses: it is left alone for ever longer, and that is said once, then ever more rarely.

Rights that were taken back, or a server that is away, are nothing that another look four times a second mends.
"""

from __future__ import annotations

from typing import Final

from perdure import clock, events

FIRST_PAUSE_SECONDS: Final = 0.25
LONGEST_PAUSE_SECONDS: Final = 5.0
"""How long a worker waits at most before it looks again: so long after it is back, at most, runs go on."""

FIRST_SILENCE_SECONDS: Final = 1.0
LONGEST_SILENCE_SECONDS: Final = 600.0
"""How long nothing is said at most of a store that is still missed."""


class Absence:
    """Whether the store is missed now, since when, and when that was said last."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._told_at = 0.0
        self._silence_seconds = FIRST_SILENCE_SECONDS
        self._pause_seconds = 0.0

    @property
    def pause_seconds(self) -> float:
        """How long to leave the store alone; 0 while it is not missed. Many that wait must not come back as one."""
        return self._pause_seconds * (0.5 + clock.new_fraction() / 2)

    def begin(self, worker_id: str, error: str) -> None:
        """The store could not be reached, or refused, once more."""
        now = clock.boot_seconds()
        if self._since is None:
            self._since = now
            self._silence_seconds = FIRST_SILENCE_SECONDS / 2
        self._pause_seconds = min(LONGEST_PAUSE_SECONDS, 2 * self._pause_seconds or FIRST_PAUSE_SECONDS)
        if self._since == now or now - self._told_at >= self._silence_seconds:
            self._told_at = now
            self._silence_seconds = min(LONGEST_SILENCE_SECONDS, 2 * self._silence_seconds)
            events.publish(events.StoreMissed(worker_id, error, now - self._since))

    def end(self, worker_id: str) -> None:
        """The store did what it was asked."""
        if self._since is not None:
            events.publish(events.StoreFound(worker_id, clock.boot_seconds() - self._since))
            self._since, self._pause_seconds = None, 0.0
