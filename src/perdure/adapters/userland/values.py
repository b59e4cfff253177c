"""Time and chance for the user's modules: what they read and draw is the same at every replay of the run.

Chance comes from one recorded seed: every scope has a generator and a stream of bytes made from it and the scope's
path, so nothing is written for a draw. Clock readings are kept by scope and number, handed out to be written with the
next record (`take_unwritten`), and come back in their order. Inside a tool's body, in a process that was forked off,
and while no run is conducted, the library's own functions are called (`userland.stand_ins`).
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING, Any, Final

from perdure.adapters.userland.chance import Chance
from perdure.engine.scope import current_frame

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Reading = tuple[str, Any] | list[Any]
    """What kind of reading, and what was read, as JSON."""
    Drawn = dict[str, tuple[int, list[Reading]]]
    """By scope: the number of the first of these readings, and the readings."""

STRAY: Final = "stray"
"""The scope of code that runs where no code of the script started it."""


class Values:
    """The time and the chance of one run; safe from any thread."""

    def __init__(self, seed: bytes, replayed: Mapping[str, Sequence[Reading]] | None = None) -> None:
        self.chance = Chance(seed)
        self._replayed = {scope: list(readings) for scope, readings in (replayed or {}).items()}
        self._counts: dict[str, int] = {}
        self._unwritten: Drawn = {}
        self._lock = threading.Lock()

    def take_unwritten(self) -> Drawn:
        """The readings since this was last asked, to be written with the next record; empty for none."""
        if not self._unwritten:
            return {}
        with self._lock:
            taken, self._unwritten = self._unwritten, {}
        return taken

    def drawn(self, scope: str, kind: str, make: Callable[[], Any]) -> Any:
        """The next reading of this scope: as it was recorded, else made now.

        Where a reading of another kind was recorded the code has changed: what was recorded after it in this scope is
        not used either. A request that differs for it is shown as a divergence; nothing is guessed.
        """
        with self._lock:
            number = self._counts.get(scope, 0)
            self._counts[scope] = number + 1
            recorded = self._replayed.get(scope, [])
            if number < len(recorded) and recorded[number][0] == kind:
                return recorded[number][1]
            del recorded[number:]
            value = make()
            self._unwritten.setdefault(scope, (number, []))[1].append((kind, value))
            return value


def merged(written: Iterable[Mapping[str, Sequence[Any]]]) -> dict[str, list[Reading]]:
    """All that was taken to be written, in that order, as `Values` replays it: what was read again counts."""
    replayed: dict[str, list[Reading]] = {}
    for drawn in written:
        for scope, (first, readings) in drawn.items():
            replayed.setdefault(scope, [])[first:] = readings
    return replayed


_values: Values | None = None


def begin(values: Values) -> None:
    """From here on, what the user's modules read and draw is recorded."""
    global _values  # noqa: PLW0603 - one script is executed by one process
    _values = values


def end() -> None:
    """From here on they get what the library gives."""
    global _values  # noqa: PLW0603
    _values = None


os.register_at_fork(after_in_child=end)


def here() -> tuple[Values | None, str]:
    """What stands in for time and chance where this is called, and the scope."""
    values = _values
    if values is None:
        return None, ""
    frame = current_frame()
    if frame is None:
        return values, STRAY
    return (None if frame.body else values), frame.scope.path
