"""What two uncrashed runs agree on in their results, field by field, and whether another result has the same; pure."""

from __future__ import annotations

from typing import Any


class Agreed:
    """A result in which only some fields are compared."""

    def __init__(self, one: Any, other: Any) -> None:
        self._one = one
        self._other = other

    @property
    def is_whole(self) -> bool:
        """Whether all of it is compared."""
        return bool(self._one == self._other)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of it is compared."""
        return _is_empty(self._one, self._other)

    def differs(self, found: Any) -> str:
        """The first field in which a result is not what both agree on, as a path; `.` for all of it, empty for none."""
        return next(iter(_differences(self._one, self._other, found, "")), "")


def _is_empty(one: Any, other: Any) -> bool:
    if one == other:
        return False
    return all(_is_empty(*pair) for pair in _fields(one, other).values())


def _differences(one: Any, other: Any, found: Any, path: str) -> list[str]:
    if one == other:
        return [] if found == one else [path or "."]
    fields = _fields(one, other)
    inside = _fields(one, found)
    missing = [f"{path}.{name}" for name, pair in fields.items() if name not in inside and not _is_empty(*pair)]
    return missing + [
        difference
        for name, pair in fields.items()
        if name in inside
        for difference in _differences(*pair, inside[name][1], f"{path}.{name}")
    ]


def _fields(one: Any, other: Any) -> dict[Any, tuple[Any, Any]]:
    """The fields that both have, with both values; none where they are no two of a kind."""
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: (one[name], other[name]) for name in one if name in other}
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return dict(enumerate(zip(one, other, strict=True)))
    return {}
