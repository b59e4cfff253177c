"""Values to the JSON shape that the package's first page describes, and back; classes are for `hints.py`.

Plain text and ints pass unexamined here, because the encoder refuses the few that JSON cannot hold. When it does,
`examine` walks again and looks at each of them, so that the error can name the path.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from math import isfinite, isnan
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from types import CoroutineType
from typing import Any, Final
from uuid import UUID

import msgspec

from perdure.codec.refusal import Refused, a_kind, member
from perdure.codec.shapes import Shape, parts_of, shape_of

MAX_DEPTH: Final = 100
"""Far below what the stack allows, so that what could be written can be read wherever it is asked for."""

MAX_DECIMAL_EXPONENT: Final = 10_000
"""Twelve characters can name a Decimal whose integer fills the memory; nothing reads such a number back."""

Types = frozenset[type]

_UNEXAMINED: Final[Types] = frozenset({str, int, bool, type(None)})
_EXAMINED: Final[Types] = frozenset({bool, type(None)})
_in_bytes: Final = msgspec.json.Encoder().encode


def flatten(value: object) -> object:
    """The value's JSON shape; `Refused` for what has none. Lone surrogates and endless ints are left to the encoder."""
    return _flatten(value, 0, _UNEXAMINED)


def examine(value: object) -> object:
    """The same, looking at every text and int as well, so that whatever the encoder refuses is named with its path."""
    return _flatten(value, 0, _EXAMINED)


def restore(flat: object) -> object:
    """The value whose shape this is, builtin types in place of their tags; `ValueError` for a tag nobody writes."""
    if type(flat) is list:
        return [item if type(item) in _UNEXAMINED else restore(item) for item in flat]
    if type(flat) is not dict:
        return flat
    if len(flat) == 1:
        (tag,) = flat
        if tag.startswith("$"):
            return _restore_tagged(tag, flat[tag])
    return {key: item if type(item) in _UNEXAMINED else restore(item) for key, item in flat.items()}


def _flatten(value: object, depth: int, plain: Types) -> object:
    kind = type(value)
    if kind in plain:
        return value
    write = _WRITERS.get(kind)
    if write is not None:
        return write(value, depth, plain)
    shape = shape_of(kind)
    if shape is not None:
        return _write_instance(value, shape, depth, plain)
    if kind is CoroutineType:
        raise Refused("is a coroutine", "await it, and return what it gives")
    raise Refused(f"is {a_kind(value)}")


def _write_dict(value: dict[Any, Any], depth: int, plain: Types) -> object:
    _refuse_too_deep(value, depth)
    if str not in plain:
        return _write_pairs(value, depth, plain)
    written = {}
    for key, item in value.items():
        if type(key) is not str:
            return _write_pairs(value, depth, plain)
        kind = type(item)
        if kind in plain or (kind is float and isfinite(item)):
            written[key] = item
            continue
        try:
            written[key] = _flatten(item, depth + 1, plain)
        except Refused as refused:
            raise refused.under(member(key), value) from None
    return _write_pairs(value, depth, plain) if len(value) == 1 and key.startswith("$") else written


def _write_pairs(value: dict[Any, Any], depth: int, plain: Types) -> object:
    """A dict that has keys which JSON lacks, or must not be taken for a tag, or is examined."""
    pairs: list[tuple[object, object]] = []
    for key, item in value.items():
        try:
            written = _flatten(key, depth + 1, plain)
        except Refused as refused:
            raise refused.under(".keys()", value) from None
        try:
            pairs.append((written, _flatten(item, depth + 1, plain)))
        except Refused as refused:
            raise refused.under(member(key), value) from None
    _refuse_changed_keys(value, [written for written, _ in pairs])
    return _object(pairs)


def _write_list(value: list[Any], depth: int, plain: Types) -> list[object]:
    _refuse_too_deep(value, depth)
    return value if plain.issuperset(map(type, value)) else _flattened_items(value, depth, plain)


def _write_tuple(value: tuple[object, ...], depth: int, plain: Types) -> object:
    _refuse_too_deep(value, depth)
    return {"$tuple": _flattened_items(value, depth, plain)}


def _write_set(value: set[object] | frozenset[object], depth: int, plain: Types) -> object:
    _refuse_too_deep(value, depth)
    try:
        items = [_flatten(item, depth + 1, plain) for item in value]
    except Refused as refused:
        raise refused.under("{…}", value) from None
    return {"$set" if type(value) is set else "$frozenset": sorted(items, key=_in_bytes)}


def _write_instance(value: object, shape: Shape, depth: int, plain: Types) -> object:
    _refuse_too_deep(value, depth)
    pairs: list[tuple[str, object]] = []
    for name, key, item in _fields(value, shape):
        try:
            pairs.append((key, item if type(item) in plain else _flatten(item, depth + 1, plain)))
        except Refused as refused:
            raise refused.under(f".{name}", value) from None
    if shape.form == "object":
        return _object(pairs)
    return [item for _, item in pairs] if shape.form == "array" else pairs[0][1]


def _write_str(value: str, _depth: int, _plain: Types) -> str:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Refused(
            f"holds a lone surrogate (\\u{ord(value[error.start]):04x})",
            "clean the text first: text.encode('utf-8', 'replace').decode()",
        ) from None
    return value


def _write_int(value: int, _depth: int, _plain: Types) -> int:
    try:
        str(value)
    except ValueError:
        raise Refused("is an int of more than 4300 digits", "return it as text or bytes") from None
    return value


def _write_float(value: float, _depth: int, _plain: Types) -> float:
    if not isfinite(value):
        raise Refused(f"is {_not_finite(value)}", "replace it, for example with None")
    return value


def _write_decimal(value: Decimal, _depth: int, _plain: Types) -> object:
    if not value.is_finite():
        raise Refused(f"is {_not_finite(value)}", "replace it, for example with None")
    if abs(value.adjusted()) > MAX_DECIMAL_EXPONENT:
        raise Refused(f"is a Decimal with an exponent beyond {MAX_DECIMAL_EXPONENT}", "return it as text")
    return {"$decimal": str(value)}


def _write_path(value: PurePath, depth: int, plain: Types) -> object:
    return {_PATH_TAGS[type(value)]: _flatten(str(value), depth, plain)}


def _write_bytes(value: bytes, _depth: int, _plain: Types) -> object:
    return {"$bytes": base64.b64encode(value).decode()}


def _write_timedelta(value: timedelta, _depth: int, _plain: Types) -> object:
    return {"$timedelta": [value.days, value.seconds, value.microseconds]}


def _fields(value: object, shape: Shape) -> list[tuple[str, str, object]]:
    try:
        return parts_of(value, shape)
    except AttributeError as error:
        raise Refused(f"is {a_kind(value)} with a field that was never set ({error})", "set every field") from None


def _flattened_items(value: list[object] | tuple[object, ...], depth: int, plain: Types) -> list[object]:
    items: list[object] = []
    for index, item in enumerate(value):
        try:
            items.append(item if type(item) in plain else _flatten(item, depth + 1, plain))
        except Refused as refused:
            raise refused.under(f"[{index}]", value) from None
    return items


def _refuse_changed_keys(value: dict[object, object], keys: list[object]) -> None:
    """A class instance is stored as its fields, and those are no key; an Enum may meet its own value."""
    seen = set()
    for key, written in zip(value, keys, strict=True):
        try:
            seen.add(restore(written))
        except TypeError:
            raise Refused(f"has a key that is {a_kind(key)}", "use plain keys: text, numbers, tuples of them") from None
    if len(seen) != len(value):
        raise Refused("has two keys that would be stored as one", "use keys of one kind")


def _object(pairs: list[tuple[Any, object]]) -> object:
    if all(type(key) is str for key, _ in pairs) and not (len(pairs) == 1 and pairs[0][0].startswith("$")):
        return dict(pairs)
    return {"$dict": [[key, item] for key, item in pairs]}


def _refuse_too_deep(value: object, depth: int) -> None:
    if depth >= MAX_DEPTH:
        raise Refused(f"nests deeper than {MAX_DEPTH} levels", "make it flatter", too_deep=value)


def _not_finite(value: float | Decimal) -> str:
    if isinstance(value, Decimal):
        return "NaN" if value.is_nan() else str(value).lower()
    return "NaN" if isnan(value) else "infinity" if value > 0 else "-infinity"


def _restore_tagged(tag: str, content: object) -> object:
    expected, read = _READERS.get(tag, (None, None))
    if read is None:
        raise ValueError(f"stored value has the unknown tag {tag[:40]!r}: damaged, or written by a newer perdure")
    if type(content) is not expected:
        raise ValueError(f"stored value is damaged: {tag} holds a {type(content).__name__}")
    try:
        return read(content)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise ValueError(f"stored value is damaged: {tag} cannot be read ({error})") from error


def _read_tuple(content: list[object]) -> tuple[object, ...]:
    return tuple(restore(content))  # type: ignore[arg-type]


def _read_set(content: list[object]) -> object:
    return _hashed(set, restore(content))


def _read_frozenset(content: list[object]) -> object:
    return _hashed(frozenset, restore(content))


def _hashed(kind: Callable[[Any], object], items: object) -> object:
    """Class instances are still their fields here, which no set can hold: the annotation makes the set of the list."""
    try:
        return kind(items)
    except TypeError:
        return items


def _read_dict(content: list[list[object]]) -> dict[object, object]:
    pairs = [(restore(key), restore(item)) for key, item in content]
    read = dict(pairs)
    if len(read) != len(pairs):
        raise ValueError("a key occurs twice")
    return read


def _read_timedelta(content: list[int]) -> timedelta:
    days, seconds, microseconds = content
    return timedelta(days, seconds, microseconds)


def _read_decimal(content: str) -> Decimal:
    read = Decimal(content)
    if not read.is_finite() or abs(read.adjusted()) > MAX_DECIMAL_EXPONENT:
        raise ValueError("out of range")
    return read


def _read_bytes(content: str) -> bytes:
    return base64.b64decode(content, validate=True)


def _tagged_text(tag: str, text: Callable[[Any], str]) -> Callable[[Any, int, Types], object]:
    def write(value: object, _depth: int, _plain: Types) -> object:
        return {tag: text(value)}

    return write


_PATH_TAGS: Final[dict[type, str]] = {
    type(Path()): "$path",
    PurePosixPath: "$posixpath",
    PureWindowsPath: "$windowspath",
}

_WRITERS: Final[dict[type, Callable[[Any, int, Types], object]]] = {
    str: _write_str,
    int: _write_int,
    float: _write_float,
    dict: _write_dict,
    list: _write_list,
    tuple: _write_tuple,
    set: _write_set,
    frozenset: _write_set,
    bytes: _write_bytes,
    datetime: _tagged_text("$datetime", datetime.isoformat),
    date: _tagged_text("$date", date.isoformat),
    time: _tagged_text("$time", time.isoformat),
    timedelta: _write_timedelta,
    Decimal: _write_decimal,
    UUID: _tagged_text("$uuid", str),
    **dict.fromkeys(_PATH_TAGS, _write_path),
}

_READERS: Final[dict[str, tuple[type, Callable[[Any], object]]]] = {
    "$tuple": (list, _read_tuple),
    "$set": (list, _read_set),
    "$frozenset": (list, _read_frozenset),
    "$dict": (list, _read_dict),
    "$bytes": (str, _read_bytes),
    "$datetime": (str, datetime.fromisoformat),
    "$date": (str, date.fromisoformat),
    "$time": (str, time.fromisoformat),
    "$timedelta": (list, _read_timedelta),
    "$decimal": (str, _read_decimal),
    "$uuid": (str, UUID),
    "$path": (str, Path),
    "$posixpath": (str, PurePosixPath),
    "$windowspath": (str, PureWindowsPath),
}
