"""How instances of a class are taken apart: the fields of dataclasses, structs, attrs, pydantic models, tuples, enums.

Knowing a class is never learned from stored data: it is asked of the value at hand, or of an annotation.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

Form = Literal["object", "array", "bare"]
"""What the fields become: a JSON object, a JSON array, or just the one value that an Enum or a RootModel wraps."""


class Shape(NamedTuple):
    """The fields of a class: their names, the keys they are written under, and the parameters that take them back."""

    form: Form
    names: tuple[str, ...]
    keys: tuple[str, ...]
    parameters: tuple[str | None, ...]
    tag: tuple[str, object] | None = None
    open: bool = False
    """Whether an instance may hold more than its fields, as a pydantic model may that allows extra ones."""


def _find_shape(kind: type) -> Shape | None:
    if issubclass(kind, Enum):
        return Shape("bare", ("value",), ("value",), ("value",))
    if issubclass(kind, msgspec.Struct):
        return _struct_shape(kind)
    if issubclass(kind, tuple):
        names = getattr(kind, "_fields", None)
        return Shape("array", names, names, names) if names is not None else None
    if hasattr(kind, "__dataclass_fields__"):
        return _dataclass_shape(kind)
    if hasattr(kind, "__attrs_attrs__"):
        return _attrs_shape(kind)
    return _pydantic_shape(kind) if is_pydantic(kind) else None


shape_of: Callable[[type], Shape | None] = lru_cache(maxsize=1024)(_find_shape)
"""The shape of a class whose instances can be stored field by field, None for any other."""


def is_pydantic(kind: object) -> bool:
    """Whether this is a pydantic model, asked without importing pydantic."""
    return isinstance(kind, type) and hasattr(kind, "model_validate") and hasattr(kind, "__pydantic_validator__")


def parts_of(value: Any, shape: Shape) -> list[tuple[str, str, object]]:
    """Name, written key and content of every field; `AttributeError` for a field that was never set."""
    parts = [(name, key, getattr(value, name)) for name, key in zip(shape.names, shape.keys, strict=True)]
    if shape.tag is not None:
        parts.insert(0, (shape.tag[0], *shape.tag))
    if shape.open:
        parts.extend((name, name, item) for name, item in (value.__pydantic_extra__ or {}).items())
    return [part for part in parts if part[2] is not msgspec.UNSET]


def _struct_shape(kind: type[msgspec.Struct]) -> Shape:
    config = kind.__struct_config__
    names = kind.__struct_fields__
    tag = None if config.tag is None else (config.tag_field or "type", config.tag)
    return Shape("array" if config.array_like else "object", names, kind.__struct_encode_fields__, names, tag)


def _dataclass_shape(kind: Any) -> Shape:
    import dataclasses  # slow to import, and whoever has a dataclass has paid for it

    fields = dataclasses.fields(kind)
    names = tuple(field.name for field in fields)
    return Shape("object", names, names, tuple(field.name if field.init else None for field in fields))


def _attrs_shape(kind: Any) -> Shape:
    fields = kind.__attrs_attrs__
    names = tuple(field.name for field in fields)
    return Shape("object", names, names, tuple(field.alias if field.init else None for field in fields))


def _pydantic_shape(kind: Any) -> Shape:
    """The fields themselves: a dump would add computed fields and apply serializers, and neither comes back."""
    fields = kind.model_fields
    names = tuple(fields)
    if getattr(kind, "__pydantic_root_model__", False):
        return Shape("bare", names, names, names)
    by_alias = kind.model_config.get("validate_by_alias", True) is not False
    keys = tuple(_validation_key(name, fields[name]) if by_alias else name for name in names)
    return Shape("object", names, keys, names, open=kind.model_config.get("extra") == "allow")


def _validation_key(name: str, field: Any) -> str:
    """The first key under which validation looks for the field."""
    alias = field.validation_alias
    choices = getattr(alias, "choices", [alias])
    return next((choice for choice in choices if isinstance(choice, str)), name)
