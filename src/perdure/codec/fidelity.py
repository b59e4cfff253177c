"""Compares what went in with what came back: the judge of whether a value can be stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, time
from typing import Any, Final

import msgspec

from perdure.codec.plain import flatten
from perdure.codec.refusal import Refused, a_kind, describe, member, short_name
from perdure.codec.shapes import Shape, shape_of

_in_bytes: Final = msgspec.json.Encoder().encode
_SCALARS: Final = frozenset({str, int, bool, float, type(None)})
_SEQUENCES: Final = frozenset({list, tuple})
_SETS: Final = frozenset({set, frozenset})


def require_same(original: Any, returned: Any) -> None:
    """Raise `Refused` at the first part that differs.

    What a typed language accepts is the same: an int where a float was asked for, and list and tuple, set and
    frozenset, whichever the annotation names. Instances are compared field by field, so a class needs no `__eq__`.
    """
    kind = type(original)
    if kind is not type(returned):
        _require_same_family(original, returned)
    if kind in _SCALARS:
        _require_equal(original, returned)
    elif kind is dict:
        _require_same_dict(original, returned)
    elif kind in _SEQUENCES:
        _require_same_items(original, returned)
    elif kind in _SETS:
        _require_same_elements(original, returned)
    elif shape := shape_of(kind):
        _require_same_fields(original, returned, shape)
    elif kind is datetime or kind is time:
        _require_equal(original, returned, compared=(_on_the_clock(original), _on_the_clock(returned)))
    else:
        _require_equal(original, returned)


def _require_same_family(original: Any, returned: Any) -> None:
    kinds = {type(original), type(returned)}
    int_as_float = type(original) is int and type(returned) is float
    if int_as_float or kinds <= _SEQUENCES or kinds <= _SETS:
        return
    class_name = short_name(type(original)) if shape_of(type(original)) else ""
    raise Refused(f"is {a_kind(original)} and would come back as {a_kind(returned)}", class_name=class_name)


def _require_equal(original: Any, returned: Any, *, compared: tuple[object, object] | None = None) -> None:
    before, after = compared or (original, returned)
    if before != after:
        raise Refused(f"is {describe(original)} and would come back as {describe(returned)}")


def _require_same_dict(original: dict[Any, Any], returned: dict[Any, Any]) -> None:
    _require_same_length(original, returned)
    for (key, item), (key_returned, item_returned) in zip(original.items(), returned.items(), strict=True):
        same_key = key == key_returned and type(key) is type(key_returned) is str
        if same_key and type(item) is type(item_returned) and type(item) in _SCALARS and item == item_returned:
            continue
        try:
            require_same(key, key_returned)
        except Refused as refused:
            raise refused.under(".keys()", original) from None
        try:
            require_same(item, item_returned)
        except Refused as refused:
            raise refused.under(member(key), original) from None


def _require_same_items(original: Sequence[Any], returned: Sequence[Any]) -> None:
    _require_same_length(original, returned)
    for index, (item, item_returned) in enumerate(zip(original, returned, strict=True)):
        if type(item) is type(item_returned) and type(item) in _SCALARS and item == item_returned:
            continue
        try:
            require_same(item, item_returned)
        except Refused as refused:
            raise refused.under(f"[{index}]", original) from None


def _require_same_elements(original: Any, returned: Any) -> None:
    """Elements are paired by their bytes, because equality alone would take 1 for True and needs an `__eq__`."""
    _require_same_length(original, returned)
    for item, item_returned in zip(sorted(original, key=_bytes_of), sorted(returned, key=_bytes_of), strict=True):
        try:
            require_same(item, item_returned)
        except Refused as refused:
            raise refused.under("{…}", original) from None


def _require_same_fields(original: Any, returned: Any, shape: Shape) -> None:
    for name in shape.names:
        item, item_returned = getattr(original, name, None), getattr(returned, name, None)
        if type(item) is type(item_returned) and type(item) in _SCALARS and item == item_returned:
            continue
        try:
            require_same(item, item_returned)
        except Refused as refused:
            raise refused.under(f".{name}", original) from None
    if shape.open:
        require_same(original.__pydantic_extra__, returned.__pydantic_extra__)


def _require_same_length(original: Any, returned: Any) -> None:
    if len(original) != len(returned):
        raise Refused(f"has {len(original)} entries, and {len(returned)} would come back")


def _on_the_clock(value: Any) -> object:
    """Wall clock and offset: in the hour that a clock change repeats, equal datetimes of two zones are never `==`."""
    return (value.replace(tzinfo=None), value.utcoffset(), value.tzinfo is None)


def _bytes_of(value: object) -> bytes:
    return _in_bytes(flatten(value))
