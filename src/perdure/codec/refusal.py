"""Says which part of a value cannot be stored, and why, in words a user can act on."""

from __future__ import annotations

import reprlib
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from types import FunctionType
from typing import Final
from uuid import UUID

from perdure.codec.shapes import parts_of, shape_of
from perdure.errors import UnstorableValue

DESCRIPTION_CHARACTERS: Final = 80

_PATH_PARTS: Final = 8


class Refused(Exception):
    """A part of a value cannot be stored; every container it passes on its way up puts its own step before the path."""

    def __init__(self, reason: str, hint: str = "", *, too_deep: object = None, class_name: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.hint = hint
        self._too_deep = too_deep
        self._class_name = class_name
        self._parts: list[str] = []

    def under(self, part: str, container: object) -> Refused:
        """The same refusal, seen from the container; one that meets itself again is a cycle, not merely deep."""
        self._parts.append(part)
        if container is self._too_deep:
            self.reason = "contains itself"
            self._parts.clear()
        return self

    def as_error(self, what: str, *, of: str = "") -> UnstorableValue:
        """The error a user meets: `what` is the value's own name, `of` the call it belongs to."""
        subject = what + self._path() + (f" of {of}" if of else "")
        return UnstorableValue(f"{subject} {self.reason}", hint=self._advice(what))

    def _path(self) -> str:
        parts = self._parts[::-1]
        return "".join(parts[:_PATH_PARTS]) + ("…" if len(parts) > _PATH_PARTS else "")

    def _advice(self, what: str) -> str:
        if what.startswith("argument"):
            return self.hint or "pass plain data, and open clients and files inside the call"
        if self._class_name and not self._parts:
            return f"return plain data, or annotate it: -> {self._class_name}, imported outside TYPE_CHECKING"
        if self._class_name:
            return f"return plain data, or annotate the return type so that it names {self._class_name}"
        return self.hint or "return plain data, or annotate the return type"


def member(key: object) -> str:
    """The path's step to a dict's value, written as an attribute where that reads well."""
    return f".{key}" if isinstance(key, str) and key.isidentifier() else f"[{describe(key, limit=40)}]"


def a_kind(value: object) -> str:
    """The value's type with an article: `a lambda`, `an httpx.Client`."""
    if type(value) is FunctionType and value.__name__ == "<lambda>":
        return "a lambda"
    if value is None:
        return "None"
    name = type_name(type(value))
    vowel = name[0] in "aeioAEIO" or (name[0] in "hH" and name[1:2] not in "aeiouy")
    return f"{'an' if vowel else 'a'} {name}"


def type_name(kind: type) -> str:
    """The type's name with its module, except where the module says nothing."""
    return short_name(kind) if kind.__module__ in {"builtins", "__main__"} else f"{kind.__module__}.{short_name(kind)}"


def short_name(kind: type) -> str:
    """The name by which an annotation in the user's code would call the type."""
    return kind.__qualname__.rpartition("<locals>.")[2]


def describe(value: object, limit: int = DESCRIPTION_CHARACTERS) -> str:
    """A preview of a value in one short line, for messages; never raises, and calls no code of the value's class."""
    try:
        text = _preview.repr(value)
    except Exception:  # noqa: BLE001  A message about a broken value must not break in turn.
        text = f"<{type(value).__name__}>"
    return text if len(text) <= limit else text[: limit - 1] + "…"


class _Preview(reprlib.Repr):
    """Shows builtin values themselves, instances by their fields, and of anything else only the type."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = 60
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = self.maxfrozenset = 6

    def repr_instance(self, x: object, level: int) -> str:
        kind = type(x)
        if kind in _SHOWN_WHOLE:
            return repr(x)
        if isinstance(x, bytes):
            return repr(x[: self.maxstring])
        shape = shape_of(kind)
        if shape is None or level <= 0:
            return f"<{type_name(kind)}>"
        shown = [f"{name}={self.repr1(item, level - 1)}" for name, _, item in parts_of(x, shape)[: self.maxdict]]
        return f"{short_name(kind)}({', '.join(shown)})"


_SHOWN_WHOLE: Final = frozenset(
    {float, complex, bool, type(None), datetime, date, time, timedelta, Decimal, UUID, type(Path())}
)
_preview: Final = _Preview()
