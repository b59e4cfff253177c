"""Words for people: stored text made safe to print, durations and ages in a few characters.

What a journal holds may come from a model or a tool. Printed as it is, it could move the cursor, hide lines or retitle
the window; so every character that is not printable is shown by its escape.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure import clock

if TYPE_CHECKING:
    from collections.abc import Sequence

_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_DAY: Final = 24 * _HOUR
_STEP: Final = 1000


def legible(text: str, limit: int = 0) -> str:
    """Text on one line without control codes, shortened to `limit` characters where one is given."""
    shown = text if text.isprintable() else "".join(map(_escaped, text))
    return shown if not limit or len(shown) <= limit else shown[: limit - 1] + "…"


def legible_lines(text: str) -> str:
    """Text whose lines stay lines, without any other control code."""
    return "\n".join(legible(line) for line in text.split("\n"))


def duration(seconds: float) -> str:
    """How long something took, such as 0.3 s, 48 s, 3 min, 2 h, 5 d."""
    if seconds < 9.95:  # noqa: PLR2004 - what is below 10.0 once rounded
        return f"{max(0.0, seconds):.1f} s"
    return age(seconds)


def age(seconds: float) -> str:
    """How long ago something was, such as 6 s, 3 min, 2 h, 5 d."""
    if seconds < _MINUTE:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min"
    if seconds < 2 * _DAY:
        return f"{seconds // _HOUR:.0f} h"
    return f"{seconds // _DAY:.0f} d"


def utc(at: float) -> str:
    """An instant, such as 2026-11-16 08:00:00 UTC."""
    return clock.instant(at).strftime("%Y-%m-%d %H:%M:%S UTC")


def counted(count: int, noun: str) -> str:
    """A number with its noun: 1 step, 46 steps."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed(words: Sequence[str], *, most: int) -> str:
    """The first of them, and how many more there are: a, b and 3 more."""
    more = f" and {len(words) - most:,} more" if len(words) > most else ""
    return f"{', '.join(words[:most])}{more}"


def octets(count: int) -> str:
    """A number of bytes, such as 512 bytes, 34 KB, 1.2 MB."""
    if count < _STEP:
        return counted(count, "byte")
    size, units = float(count), iter(("KB", "MB", "GB", "TB"))
    unit = next(units)
    size /= _STEP
    while size >= _STEP and unit != "TB":
        size, unit = size / _STEP, next(units)
    return f"{size:.0f} {unit}" if unit == "KB" or size >= 99.5 else f"{size:.1f} {unit}"  # noqa: PLR2004 - three digits


def _escaped(character: str) -> str:
    return character if character.isprintable() else character.encode("unicode_escape").decode()
