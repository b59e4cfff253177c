"""Whether a value can have been made of what a model wrote, whatever people and frameworks parse JSON to; pure."""

from __future__ import annotations

import base64
import binascii
import dataclasses
import json
import math
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from fractions import Fraction
from typing import Any, Final

_NUMBERS: Final = (int, float, Decimal, Fraction)
_DURATION: Final = re.compile(
    r"(?P<sign>[+-]?)P(?:(?P<weeks>[\d.]+)W)?(?:(?P<days>[\d.]+)D)?"
    r"(?:T(?:(?P<hours>[\d.]+)H)?(?:(?P<minutes>[\d.]+)M)?(?:(?P<seconds>[\d.]+)S)?)?"
)
_CLOCK: Final = re.compile(
    r"(?:(?P<days>\d+)(?: days?,?)? )?(?P<hours>\d+):(?P<minutes>\d{2})(?::(?P<seconds>[\d.]+))?"
)
_DEPTH: Final = 100


def is_json(value: Any, depth: int = _DEPTH) -> bool:
    """Whether a value is as a model could have written it."""
    if value is None or type(value) in (bool, int, float, str):
        return True
    if depth and type(value) is list:
        return all(is_json(item, depth - 1) for item in value)
    if depth and type(value) is dict:
        return all(type(key) is str and is_json(item, depth - 1) for key, item in value.items())
    return False


def same(value: Any, asked: Any, *, is_whole: bool = False) -> bool:
    """Whether this value was made of what was asked; with `is_whole`, its JSON text is as good."""
    try:
        return _is_same(value, asked) or (is_whole and _is_text_of(value, asked))
    except Exception:  # noqa: BLE001 - values of any kind: one that cannot be compared is not the same
        return False


def _is_same(value: Any, asked: Any) -> bool:
    if value is asked:
        return True
    if isinstance(value, Enum):
        return _is_same(value.value, asked) or (isinstance(asked, str) and value.name == asked)
    if isinstance(value, bool) or isinstance(asked, bool):
        return _as_bool(value) is _as_bool(asked) is not None
    match asked:
        case None:
            return value is None
        case int() | float():
            return _is_number(value, asked)
        case str():
            return _is_of_text(value, asked)
        case Mapping():
            return _is_of_object(value, asked)
        case list() | tuple():
            return _is_of_list(value, asked)
    return bool(value == asked)


def _as_bool(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    return {"true": True, "false": False}.get(value.lower()) if isinstance(value, str) else None


def _is_number(value: Any, asked: float) -> bool:
    """A number, a text of it, seconds since 1970 or of a duration."""
    if isinstance(value, float) and math.isnan(value):
        return math.isnan(asked)
    if isinstance(value, (int, float)):
        return value == asked
    if isinstance(value, (Decimal, str)):
        return _decimal(str(value)) == Decimal(repr(asked))
    if isinstance(value, datetime):
        return (value if value.tzinfo else value.replace(tzinfo=UTC)).timestamp() in (asked, asked / 1000)
    if isinstance(value, timedelta):
        return value.total_seconds() == asked
    return isinstance(value, Fraction) and value == Fraction(repr(asked))


def _is_of_text(value: Any, asked: str) -> bool:
    if isinstance(value, str):
        return str.__str__(value) == asked
    if isinstance(value, _NUMBERS):
        return _decimal(asked) == _decimal(str(value)) if not isinstance(value, Fraction) else Fraction(asked) == value
    if isinstance(value, datetime):
        return _is_moment(value, asked)
    if isinstance(value, date):
        return datetime.fromisoformat(asked) == datetime.combine(value, time())
    if isinstance(value, time):
        return time.fromisoformat(asked) == value
    if isinstance(value, timedelta):
        return _duration(asked) == value
    if isinstance(value, (bytes, bytearray)):
        return _is_of_bytes(bytes(value), asked)
    return _is_text_of_object(value, asked)


def _is_moment(value: datetime, asked: str) -> bool:
    moment = datetime.fromisoformat(asked)
    if (moment.tzinfo is None) != (value.tzinfo is None):
        # One that was written without a zone was read as UTC, or one in UTC was kept without it.
        moment, value = (each if each.tzinfo else each.replace(tzinfo=UTC) for each in (moment, value))
        return moment == value and moment.utcoffset() == timedelta(0)
    return moment == value


def _is_of_bytes(value: bytes, asked: str) -> bool:
    if value == asked.encode():
        return True
    try:
        return base64.b64decode(asked.replace("-", "+").replace("_", "/") + "==", validate=False) == value
    except binascii.Error:
        return False


def _is_text_of_object(value: Any, asked: str) -> bool:
    """An id, a path, an address, a pattern, a secret: objects whose text is all there is to them."""
    kind: Any = type(value)
    if hasattr(value, "get_secret_value"):
        return _is_same(value.get_secret_value(), asked)
    if isinstance(value, re.Pattern):
        return bool(value.pattern == asked)
    if kind.__module__ == "uuid":
        return bool(value.hex == asked.lower().removeprefix("urn:uuid:").strip("{}").replace("-", ""))
    if kind.__str__ is object.__str__ and not hasattr(value, "__fspath__"):
        return False  # its text says nothing of what it is
    return not _fields(value) and asked.rstrip("/") == str(value).rstrip("/")


def _is_of_object(value: Any, asked: Mapping[str, Any]) -> bool:
    if isinstance(value, Mapping):
        keys = {_key(key): item for key, item in value.items()}
        return keys.keys() == asked.keys() and all(_is_same(keys[key], item) for key, item in asked.items())
    fields = _fields(value)
    if fields is None:
        return False
    return _is_made_of(value, fields, asked) or _is_validated(value, asked)


def _is_of_list(value: Any, asked: Sequence[Any]) -> bool:
    if isinstance(value, (str, bytes, Mapping)):
        return False
    if isinstance(value, AbstractSet):
        left = list(value)
        for item in asked:
            found = next((each for each in left if _is_same(each, item)), None)
            if found is None and None not in left:
                # A set keeps one of two equal items.
                if any(_is_same(each, item) for each in value):
                    continue
                return False
            left.remove(found)
        return not left
    items = list(value) if isinstance(value, Sequence) or hasattr(value, "__iter__") else None
    return (
        items is not None
        and not hasattr(value, "__next__")
        and len(items) == len(asked)
        and all(_is_same(each, item) for each, item in zip(items, asked, strict=True))
    )


def _fields(value: Any) -> dict[str, tuple[str, ...]] | None:
    """The fields of an instance of a model or data class, by name, with the names that JSON may have for them."""
    kind: Any = type(value)
    if dataclasses.is_dataclass(value):
        return {field.name: () for field in dataclasses.fields(value)}
    if hasattr(kind, "model_fields"):
        return {name: tuple(_aliases(field)) for name, field in kind.model_fields.items()}
    if hasattr(kind, "__fields__"):
        return {name: (getattr(field, "alias", name),) for name, field in kind.__fields__.items()}
    if hasattr(kind, "__struct_encode_fields__"):
        names = zip(kind.__struct_fields__, kind.__struct_encode_fields__, strict=True)
        return {name: (encoded,) for name, encoded in names}
    if hasattr(kind, "__attrs_attrs__"):
        return {field.name: (field.alias or field.name,) for field in kind.__attrs_attrs__}
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return dict.fromkeys(kind._fields, ())
    return None


def _aliases(field: Any) -> list[str]:
    """The names that a field of a pydantic model is read by."""
    found = []
    for alias in (field.alias, field.validation_alias):
        choices = getattr(alias, "choices", None) or [alias]
        found += [choice for choice in choices if isinstance(choice, str)]
    return found


def _is_made_of(value: Any, fields: dict[str, tuple[str, ...]], asked: Mapping[str, Any]) -> bool:
    """Whether every field that was asked for holds that, and the others hold what nobody had to ask for."""
    asked_of = {}
    for name, aliases in fields.items():
        for key in (*aliases, name):
            if key in asked:
                asked_of[name] = key
                break
    if set(asked_of.values()) != set(asked):
        return False
    given = value.model_fields_set if hasattr(value, "model_fields_set") else getattr(value, "__fields_set__", None)
    if given is not None and not set(given) <= set(asked_of):
        return False
    return all(_is_same(getattr(value, name), asked[key]) for name, key in asked_of.items()) and (
        given is not None or _are_defaults(value, [name for name in fields if name not in asked_of])
    )


def _are_defaults(value: Any, names: list[str]) -> bool:
    """Whether these fields hold their defaults, as far as that can be told: a factory may have made anything."""
    kind: Any = type(value)
    if dataclasses.is_dataclass(kind):
        defaults = {field.name: field.default for field in dataclasses.fields(kind)}
        made = {field.name for field in dataclasses.fields(kind) if field.default_factory is not dataclasses.MISSING}
    elif hasattr(kind, "__struct_defaults__"):
        count = len(kind.__struct_defaults__)
        defaults = dict(zip(kind.__struct_fields__[-count:] if count else (), kind.__struct_defaults__, strict=True))
        made = {name for name, default in defaults.items() if type(default).__name__ == "Factory"}
    elif hasattr(kind, "__attrs_attrs__"):
        defaults = {field.name: field.default for field in kind.__attrs_attrs__}
        made = {name for name, default in defaults.items() if type(default).__name__ == "Factory"}
    else:
        defaults, made = dict(getattr(kind, "_field_defaults", {})), set()
    return all(name in made or (name in defaults and getattr(value, name) == defaults[name]) for name in names)


def _is_validated(value: Any, asked: Mapping[str, Any]) -> bool:
    """Whether the model's own reading of what was asked gives the same: its validators may change what they read."""
    validate = getattr(type(value), "model_validate", None)
    return validate is not None and bool(validate(dict(asked)) == value)


def _is_text_of(value: Any, asked: Any) -> bool:
    """Whether this is the JSON that the model wrote."""
    return isinstance(value, (str, bytes)) and bool(json.loads(value) == asked)


def _key(key: Any) -> Any:
    return str(key.value if isinstance(key, Enum) else key)


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text.strip().replace("_", ""))
    except InvalidOperation:
        return None


def _duration(text: str) -> timedelta | None:
    found = _DURATION.fullmatch(text) or _CLOCK.fullmatch(text)
    if found is None:
        number = _decimal(text)
        return None if number is None else timedelta(seconds=float(number))
    parts = found.groupdict()
    is_negative = parts.pop("sign", "") == "-"
    length = timedelta(**{name: float(amount) for name, amount in parts.items() if amount})
    return -length if is_negative else length
