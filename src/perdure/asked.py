"""What a process was asked by signals, which may tell it one thing more than once, and at any moment."""

from __future__ import annotations

import contextlib
import signal
from queue import Empty, SimpleQueue
from typing import Final

from perdure import clock

STOPS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
"""The signals that ask a process to end."""

ECHO_SECONDS: Final = 1.0
"""`timeout` signals a process and then its group, as others do that start programs: who hears both is asked once."""


class Asked:
    """The requests to end that a process has heard, as a handler of signals."""

    def __init__(self) -> None:
        self.times = 0
        """How often it was asked; what comes right after the same signal is that request again."""
        self.last = 0
        """The signal it was last asked by."""
        self.is_impatient = False
        """Whether the same was asked twice: a terminal that goes away asks in more ways than one."""
        self._first: dict[int, float] = {}

    def note(self, number: int, frame: object = None) -> None:
        """Hear a signal."""
        del frame
        now = clock.boot_seconds()
        if number not in self._first:
            self._first[number] = now
        elif now - self._first[number] < ECHO_SECONDS:
            return
        else:
            self.is_impatient |= number != signal.SIGHUP
        self.times += 1
        self.last = number


class Bell:
    """Rings, and then has rung; for one who waits.

    It may be rung by a handler of signals, which comes between any two lines: an event of `threading` would wait for
    itself where it interrupts one that is just being set, or waited for.
    """

    def __init__(self) -> None:
        self.has_rung = False
        self._rings: SimpleQueue[None] = SimpleQueue()

    def ring(self) -> None:
        """Let whoever waits go on."""
        self.has_rung = True
        self._rings.put(None)

    def wait(self, seconds: float | None) -> bool:
        """Wait so long at most, or however long it takes; whether it has rung."""
        if not self.has_rung:
            with contextlib.suppress(Empty):
                self._rings.get(timeout=seconds)
        return self.has_rung
