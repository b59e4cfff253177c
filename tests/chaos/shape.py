"""What an errand consists of, for those who perform it and those who judge it."""

from __future__ import annotations

from typing import Final

PLACES: Final = 20
_ORDER: Final = ("step", "step", "keyed", "step", "checked", "step", "step", "plain", "late", "step")


def kind_of(number: int, place: int) -> str:
    """What an errand does at a place: all kinds in every errand, and every kind at every place of some."""
    return _ORDER[(number + place) % len(_ORDER)]


def run_id_of(number: int) -> str:
    """The id under which an errand is accepted, however often."""
    return f"chaos-{number:04}"
