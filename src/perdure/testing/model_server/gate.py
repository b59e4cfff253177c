"""A place where an answer stops until a test lets it go on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from perdure.errors import UsageError

PATIENCE_SECONDS: Final = 60.0
"""How long a test waits for an agent to come to a gate."""

_LOOK_SECONDS: Final = 0.02


class Gate:
    """Closed until it is opened, and then open for good."""

    def __init__(self, name: str = "gate") -> None:
        self.name = name
        self._changed = threading.Condition()
        self._reached = 0
        self._is_open = False

    @property
    def reached(self) -> int:
        """How many answers have come to stand here."""
        return self._reached

    def open(self) -> None:
        """Let everything go on."""
        with self._changed:
            self._is_open = True
            self._changed.notify_all()

    def wait(self, count: int = 1, *, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until so many answers stand, or have stood, here: now the agent can be killed, surely within them."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._reached >= count, seconds):
                raise UsageError(
                    f"No answer came to the gate {self.name!r} within {seconds:g} s ({self._reached} of {count}).",
                    safe="the model server goes on.",
                    hint="see model.requests for what the agent asked",
                )

    def stand(self, *, is_gone: Callable[[], bool]) -> bool:
        """Stop an answer here; False if whoever should get it went away meanwhile."""
        with self._changed:
            self._reached += 1
            self._changed.notify_all()
            while not self._is_open:
                if is_gone():
                    return False
                self._changed.wait(_LOOK_SECONDS)
            return True


class Hold(Struct, frozen=True):
    """A gate on the way of an answer."""

    gate: Gate
    after: int = 0
    """How many chunks go out before."""
