"""How far a map is: a bar that stays on one line of a terminal, and one line at the end where there is none."""

from __future__ import annotations

import sys
from typing import Final

from perdure import clock, events
from perdure.telemetry.text import counted, duration, legible

REDRAW_SECONDS: Final = 0.1
WORTH_A_LINE_SECONDS: Final = 5.0
"""Outside a terminal a map that took longer is worth a line when it ends; a bar in a file would be noise."""

_CELLS: Final = 24
_CLEAR: Final = "\r\x1b[2K"


class Bar:
    """The one line that moves."""

    def __init__(self) -> None:
        self._drawn_at = 0.0
        self._is_drawn = False

    def line(self, event: events.MapAdvanced) -> str:
        """What is worth a line that stays."""
        if event.stage == "resumed":
            return f"{legible(event.step)} goes on after {counted(event.done, 'item')} that are done"
        if event.stage == "ended" and event.seconds >= WORTH_A_LINE_SECONDS:
            failed = f", {event.failed:,} failed" if event.failed else ""
            items = counted(event.done, "item")
            return f"{legible(event.step)}: {items} done{failed}, {event.rate:,.0f} a second"
        return ""

    def is_due(self, event: events.MapAdvanced) -> bool:
        """Whether standard error is a terminal, and the last time that the bar moved is not just past."""
        is_late = clock.elapsed_seconds() - self._drawn_at >= REDRAW_SECONDS
        return is_late and event.stage == "advanced" and sys.stderr.isatty()

    def draw(self, event: events.MapAdvanced) -> None:
        """Show how far the map is."""
        self._drawn_at, self._is_drawn = clock.elapsed_seconds(), True
        sys.stderr.write(f"{_CLEAR}{drawn(event)}")
        sys.stderr.flush()

    def clear(self) -> None:
        """Make room for a line that stays."""
        if self._is_drawn:
            self._is_drawn = False
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()


def drawn(event: events.MapAdvanced) -> str:
    """The bar of this moment; only a count where the source does not know its length."""
    failed = f", {event.failed:,} failed" if event.failed else ""
    if not event.total:
        return f"perdure: {legible(event.step, 30)} {event.done:,} items{failed}, {event.rate:,.0f} a second"
    share = min(1.0, event.done / event.total)
    cells = "█" * int(share * _CELLS)
    left = f", {duration((event.total - event.done) / event.rate)} left" if event.rate > 0 else ""
    place = f"{event.done:,} of {event.total:,}{failed}{left}"
    return f"perdure: {legible(event.step, 30)} {cells:░<{_CELLS}} {share:>4.0%}  {place}"
