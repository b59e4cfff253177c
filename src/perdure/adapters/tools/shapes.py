"""Objects of any class as JSON and back, for what tools return and change: part by part, each class by its name.

    plain data          as JSON has it
    everything else     {"~": kind, "v": content}: builtin types, enums, containers of the standard library, and
                        instances, whose kind is module:name and whose content is all that they hold

Nothing read here is imported or called: a class is looked for among the modules that the script has loaded itself, and
an instance is given what it held, without its constructor. A class that wants to be asked is refused.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterator
from enum import Enum
from math import isfinite
from typing import Any, Final

import msgspec

from perdure import codec
from perdure.errors import UnstorableValue

_KIND: Final = "~"
_CONTENT: Final = "v"
_MAX_DEPTH: Final = 60
_PLAIN: Final = frozenset({str, int, bool, type(None)})
_FACTORIES: Final[dict[str, Callable[[], Any]]] = {each.__name__: each for each in (list, dict, set, int, float, str)}
_MODEL: Final = ("__pydantic_fields_set__", "__pydantic_extra__", "__pydantic_private__")
"""What an instance of a Pydantic model holds beside its fields."""

_ASKING: Final = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")
_LIBRARIES_OF_DATA: Final = ("pydantic.", "msgspec", "builtins", "copyreg")


class Shapeless(ValueError):
    """What cannot be written, or cannot be read any more."""


def shaped(value: Any) -> bytes:
    """A value as JSON; `Shapeless` where a part of it has no form that comes back as it was."""
    written = _write(value, ())
    try:
        return msgspec.json.encode(written)
    except (ValueError, RecursionError) as error:
        raise Shapeless(str(error)) from error


def unshaped(data: bytes | str) -> Any:
    """What was written; `Shapeless` where its classes are not there any more."""
    try:
        return _read(msgspec.json.decode(data))
    except (msgspec.DecodeError, RecursionError, TypeError, KeyError, AttributeError) as error:
        raise Shapeless(f"{type(error).__name__}: {error}") from error


def fields_of(value: object) -> Iterator[tuple[str, Any]]:
    """What an instance holds: what is in its dictionary, and in its slots."""
    yield from list(getattr(value, "__dict__", {}).items())
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and not name.startswith("__pydantic") and hasattr(value, name):
                yield name, getattr(value, name)


def _write(value: Any, above: tuple[int, ...]) -> Any:
    kind = type(value)
    if kind in _PLAIN or (kind is float and isfinite(value)):
        return value
    if id(value) in above or len(above) > _MAX_DEPTH:
        raise Shapeless("it holds itself")
    inner = (*above, id(value))
    if kind is list:
        return [_write(item, inner) for item in value]
    if kind is dict:
        return _write_dict(value, inner)
    if kind in (tuple, set, frozenset, deque):
        items = [_write(item, inner) for item in value]
        return _tagged(kind.__name__, sorted(items, key=msgspec.json.encode) if kind in (set, frozenset) else items)
    if kind in (Counter, OrderedDict, defaultdict):
        return _write_mapping(value, inner)
    if isinstance(value, Enum):
        return _tagged("enum", [_name_of(kind), value.name])
    if isinstance(value, tuple) and hasattr(kind, "_fields"):
        return _tagged("named", [_name_of(kind), *(_write(item, inner) for item in value)])
    if kind.__module__ in ("builtins", "datetime", "decimal", "uuid", "pathlib"):
        return _tagged("codec", _sealed(value))
    return _write_instance(value, inner)


def _write_dict(value: dict[Any, Any], above: tuple[int, ...]) -> Any:
    if all(type(key) is str for key in value) and _KIND not in value:
        return {key: _write(item, above) for key, item in value.items()}
    return _tagged("dict", _pairs(value, above))


def _write_mapping(value: Any, above: tuple[int, ...]) -> Any:
    factory = getattr(value, "default_factory", None)
    if factory is not None and _FACTORIES.get(getattr(factory, "__name__", "")) is not factory:
        raise Shapeless("it is a defaultdict that makes its own defaults")
    made_by = "" if factory is None else factory.__name__
    return _tagged(type(value).__name__, [made_by, _pairs(value, above)])


def _write_instance(value: Any, above: tuple[int, ...]) -> Any:
    kind = type(value)
    _refuse_asking(kind)
    held = {name: _write(item, above) for name, item in fields_of(value)}
    beside = {name: _write(getattr(value, name, None), above) for name in _MODEL} if _is_model(kind) else {}
    return {_KIND: _name_of(kind), _CONTENT: held, **({"beside": beside} if beside else {})}


def _read(written: Any) -> Any:
    if type(written) is list:
        return [_read(item) for item in written]
    if type(written) is not dict:
        return written
    if _KIND not in written:
        return {key: _read(item) for key, item in written.items()}
    kind, content = written[_KIND], written[_CONTENT]
    read = _READERS.get(kind)
    return _read_instance(kind, content, written.get("beside", {})) if read is None else read(content)


def _read_mapping(kind: Callable[[], Any]) -> Callable[[Any], Any]:
    def read(content: list[Any]) -> Any:
        made: Any = defaultdict(_FACTORIES.get(content[0])) if kind is defaultdict else kind()
        made.update(_read_pairs(content[1]))
        return made

    return read


def _read_enum(content: list[str]) -> Any:
    kind: Any = _class_of(content[0])
    return kind[content[1]]


def _read_named(content: list[Any]) -> Any:
    kind: Any = _class_of(content[0])
    return tuple.__new__(kind, [_read(item) for item in content[1:]])


def _read_instance(name: str, content: dict[str, Any], beside: dict[str, Any]) -> Any:
    kind = _class_of(name)
    _refuse_asking(kind)
    made: Any = object.__new__(kind)
    for field, item in content.items():
        if _is_slot(kind, field):
            object.__setattr__(made, field, _read(item))
        else:
            made.__dict__[field] = _read(item)
    for field, item in beside.items():
        object.__setattr__(made, field, _read(item))
    return made


def _read_pairs(content: list[Any]) -> dict[Any, Any]:
    return {_read(key): _read(item) for key, item in content}


_READERS: Final[dict[str, Callable[[Any], Any]]] = {
    "tuple": lambda content: tuple(map(_read, content)),
    "set": lambda content: set(map(_read, content)),
    "frozenset": lambda content: frozenset(map(_read, content)),
    "deque": lambda content: deque(map(_read, content)),
    "Counter": _read_mapping(Counter),
    "OrderedDict": _read_mapping(OrderedDict),
    "defaultdict": _read_mapping(defaultdict),
    "dict": _read_pairs,
    "codec": codec.unseal,
    "enum": _read_enum,
    "named": _read_named,
}


def _pairs(value: dict[Any, Any], above: tuple[int, ...]) -> list[Any]:
    return [[_write(key, above), _write(item, above)] for key, item in value.items()]


def _tagged(kind: str, content: Any) -> dict[str, Any]:
    return {_KIND: kind, _CONTENT: content}


def _sealed(value: Any) -> str:
    try:
        return codec.seal_faithfully(value)[0].decode()
    except (UnstorableValue, ValueError, TypeError) as error:
        raise Shapeless(str(error)) from error


def _name_of(kind: type) -> str:
    name = f"{kind.__module__}:{kind.__qualname__}"
    if _class_of(name) is not kind:
        raise Shapeless(f"its class {name} cannot be found by its name")
    return name


def _class_of(name: str) -> type:
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise Shapeless(f"the class {name} is not there any more")
    return found


def _refuse_asking(kind: type) -> None:
    """An instance that says itself how it is copied, cleans up behind it, or is more than its fields, is not ours."""
    for each in kind.__mro__[:-1]:
        if each.__module__.startswith(_LIBRARIES_OF_DATA):
            continue
        asking = [vars(each)[name] for name in _ASKING if name in vars(each)]
        own = [function for function in asking if getattr(function, "__module__", "") != "dataclasses"]
        if "__del__" in vars(each) or (own and not _is_model(kind)):
            raise Shapeless(f"{kind.__qualname__} says itself how it is copied")
    if not hasattr(kind, "__dict__") or kind.__basicsize__ > _plain_size(kind):
        raise Shapeless(f"{kind.__qualname__} is more than its fields")


def _plain_size(kind: type) -> int:
    """How large an instance is that holds nothing but fields: its head, a pointer for each slot, two for the rest."""
    slots = sum(len(_slots(each)) for each in kind.__mro__)
    return object.__basicsize__ + 8 * (slots + 2)


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_slot(kind: type, name: str) -> bool:
    return any(name in _slots(each) for each in kind.__mro__)


def _is_model(kind: type) -> bool:
    return hasattr(kind, "__pydantic_fields_set__")
