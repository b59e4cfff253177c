"""Two texts beside each other, cut around the first place where they differ."""

from __future__ import annotations

from typing import Final

AROUND: Final = 30
"""Characters that are shown in front of the first difference."""

WIDTH: Final = 90
"""Characters that are shown of each text."""


def contrast(name: str, before: str, now: str) -> list[str]:
    """Three lines: what differs, as it was recorded, and as it is now; none where both are the same."""
    if before == now:
        return []
    at = first_difference(before, now)
    return [f"{name} differs:", f"  recorded: {excerpt(before, at)}", f"  now:      {excerpt(now, at)}"]


def first_difference(one: str, other: str) -> int:
    """The first place at which two texts differ: the length of the shorter one where it begins the other."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def excerpt(text: str, at: int) -> str:
    """One line of a text around a place in it; `…` stands for what is left out."""
    if not text:
        return "(nothing)"
    start = max(0, at - AROUND)
    if len(text) <= WIDTH:
        start = 0
    shown = text[start : start + WIDTH]
    line = "".join(letter if letter.isprintable() else " " for letter in shown)
    return ("…" if start else "") + line + ("…" if start + WIDTH < len(text) else "")
