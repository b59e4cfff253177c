"""Builds what an annotation in the user's code asks for out of plain data, and reads the annotations of a function.

msgspec does the work for every type it knows. What it does not take, most of all unions of several classes, is taken
apart here, one level at a time. An annotation that neither understands leaves plain data as it is.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections import abc
from collections.abc import Callable, Hashable, Iterable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Annotated, Any, Final, NotRequired, Required, Union, Unpack, get_args, get_origin
from uuid import UUID

import msgspec

from perdure import typed
from perdure.codec.plain import flatten
from perdure.codec.shapes import Shape, is_pydantic, shape_of

MAX_REASON_CHARACTERS: Final = 300

_RESTORED: Final = (bytes, datetime, date, time, timedelta, Decimal, UUID)
"""Types that arrive as themselves. Naming them keeps msgspec from reading a str as a date because a hint says so."""

_COLLECTIONS: Final = (list, tuple, set, frozenset)
_LISTS: Final = frozenset({list, abc.Sequence, abc.MutableSequence, abc.Collection, abc.Iterable})
_DICTS: Final = frozenset({dict, abc.Mapping, abc.MutableMapping})
_SETS: Final[dict[object, Callable[[Iterable[Any]], object]]] = {
    set: set,
    abc.Set: set,
    abc.MutableSet: set,
    frozenset: frozenset,
}
_PLAIN: Final = frozenset({str, int, bool, float, type(None)})
_WRAPPERS: Final = frozenset({Annotated, Required, NotRequired, typing.Final})


def load(value: Any, annotation: Any) -> Any:
    """The value as the annotation wants it; `ValueError` if it does not fit."""
    try:
        return _load(value, annotation)
    except msgspec.ValidationError as error:
        reason = str(error).removesuffix(" - at `$.value`").replace("`$.value", "`$", 1)
        raise ValueError(_in_one_line(reason)) from error
    except ValueError as error:
        raise ValueError(_in_one_line(error)) from error
    except Exception as error:  # A class of the user's may raise anything while it is built.
        raise ValueError(_in_one_line(f"{type(error).__name__}: {error}")) from error


def resolve_annotations(function: Callable[..., object]) -> tuple[object, dict[str, object]]:
    """The return annotation and one per parameter, `Any` wherever there is none or a name does not resolve."""
    hints = _hints_of(_underlying(function))
    returned = hints.pop("return", Any)
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return returned, hints
    return returned, {name: _as_bound(parameter, hints.get(name, Any)) for name, parameter in parameters.items()}


def plain_decoder(annotation: Any) -> Callable[[bytes | str], Any] | None:
    """Reads JSON straight to an annotation that names nothing but what JSON has; None for all others."""
    try:
        return _plain_decoder(annotation)
    except TypeError:  # an annotation that cannot be hashed
        return None


@functools.lru_cache(maxsize=1024)
def _plain_decoder(annotation: Hashable) -> Callable[[bytes | str], Any] | None:
    return msgspec.json.Decoder(annotation).decode if _is_plain(annotation) else None


def _is_plain(annotation: Any) -> bool:
    if annotation in _PLAIN:
        return True
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is list:
        return all(map(_is_plain, arguments))
    return origin is dict and arguments[:1] == (str,) and all(map(_is_plain, arguments))


class _Unsupported(Exception):
    """msgspec was asked for a type that it can only pass on."""


def _load(value: Any, annotation: Any) -> Any:
    if annotation is Any or annotation is object or annotation is inspect.Parameter.empty:
        return value
    try:
        holder = _holder(annotation)
        return msgspec.convert({"value": value}, holder, builtin_types=_RESTORED, dec_hook=_load_unknown).value
    except (TypeError, NameError, AttributeError, _Unsupported):
        return _load_by_parts(value, annotation)


_holder: Final = functools.lru_cache(maxsize=1024)(typed.holder)


def _load_unknown(kind: Any, value: Any) -> Any:
    """The hook for types msgspec does not know. It insists on an instance of the type; what is none is unsupported."""
    loaded = _load_by_parts(value, kind)
    try:
        is_instance = isinstance(loaded, get_origin(kind) or kind)
    except TypeError:
        is_instance = False
    if not is_instance:
        raise _Unsupported
    return loaded


def _load_by_parts(value: Any, annotation: Any) -> Any:
    origin, arguments = get_origin(annotation) or annotation, get_args(annotation)
    if not isinstance(origin, Hashable):
        return value  # Python takes any expression for an annotation, even `-> [int]`.
    if origin is Union or origin is types.UnionType:
        return _load_union(value, arguments)
    if origin in _WRAPPERS:
        return _load(value, arguments[0])
    if alias := getattr(origin, "__supertype__", None) or _aliased(origin):
        return _load(value, alias)
    if is_pydantic(origin):
        return _load_pydantic(value, origin)
    if typing.is_typeddict(origin):
        return _load_typed_dict(value, origin)
    if isinstance(origin, type) and (shape := shape_of(origin)):
        return _load_instance(value, origin, shape)
    return _load_container(value, origin, arguments) if arguments else value


def _load_union(value: Any, members: tuple[Any, ...]) -> Any:
    """The first member that takes the value without adding or losing anything, or else the first that takes it at all.

    Classes go first: a dict takes every object, so it would never leave one to the class beside it.
    """
    taken = []
    for annotation in sorted(members, key=_is_no_class):
        try:
            loaded = _load(value, annotation)
        except Exception:  # noqa: BLE001, S112  Whatever a class raises, the value is none of its instances.
            continue
        if flatten(loaded) == flatten(value):
            return loaded
        taken.append(loaded)
    if not taken:
        raise ValueError(f"Expected one of {', '.join(map(_name_of, members))}, got {type(value).__name__}")
    return taken[0]


def _load_typed_dict(value: Any, kind: Any) -> dict[str, Any]:
    _expect(dict, value, kind)
    if missing := sorted(kind.__required_keys__ - value.keys()):
        raise ValueError(f"{_name_of(kind)} lacks {', '.join(missing)}")
    hints = _hints_of(kind)
    return {key: _load(item, hints.get(key, Any)) for key, item in value.items()}


def _load_pydantic(value: Any, kind: Any) -> Any:
    """Not in strict mode, even for a strict model: an Enum inside it arrives as its value."""
    try:
        return value if isinstance(value, kind) else kind.model_validate(value, strict=False)
    except ValueError as error:
        faults = error.errors() if hasattr(error, "errors") else []
        raise ValueError("; ".join(f"{_dotted(fault['loc'])}: {fault['msg']}" for fault in faults) or error) from error


def _load_instance(value: Any, kind: type, shape: Shape) -> Any:
    if shape.form == "bare":
        return kind(value)
    if shape.form == "array":
        _expect((list, tuple), value, kind)
        keys = (*([shape.tag[0]] if shape.tag else []), *shape.keys)
        value = dict(zip(keys, value, strict=False))
    _expect(dict, value, kind)
    if shape.tag is not None and value.get(shape.tag[0]) != shape.tag[1]:
        raise ValueError(f"{_name_of(kind)} has another tag")
    hints = _hints_of(kind)
    fields = zip(shape.names, shape.keys, shape.parameters, strict=True)
    present = [(name, parameter, value[key]) for name, key, parameter in fields if key in value]
    loaded = [(name, parameter, _load_field(item, hints.get(name, Any), name)) for name, parameter, item in present]
    instance = kind(**{parameter: item for _, parameter, item in loaded if parameter})
    for name, parameter, item in loaded:
        if not parameter:
            object.__setattr__(instance, name, item)
    return instance


def _load_field(value: Any, annotation: Any, name: str) -> Any:
    """A field of an instance; one that does not fit is named as msgspec itself would name it."""
    try:
        return _load(value, annotation)
    except ValueError as error:
        reason, _, path = str(error).partition(" - at `$")
        inside = path.removesuffix("`").removeprefix(".value")
        raise ValueError(f"{reason} - at `$.{name}{inside}`") from error


def _load_container(value: Any, origin: Any, arguments: tuple[Any, ...]) -> Any:
    if origin in _DICTS:
        _expect(dict, value, origin)
        return {_load(key, arguments[0]): _load(item, arguments[1]) for key, item in value.items()}
    if origin in _LISTS:
        _expect(_COLLECTIONS, value, origin)
        return [_load(item, arguments[0]) for item in value]
    if origin in _SETS:
        _expect(_COLLECTIONS, value, origin)
        return _SETS[origin](_load(item, arguments[0]) for item in value)
    return _load_tuple(value, arguments) if origin is tuple else value


def _load_tuple(value: Any, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    _expect(_COLLECTIONS, value, tuple)
    if len(arguments) > 1 and arguments[1] is ...:
        return tuple(_load(item, arguments[0]) for item in value)
    return tuple(_load(item, annotation) for item, annotation in zip(value, arguments, strict=True))


def _expect(kinds: type | tuple[type, ...], value: object, asked_for: Any) -> None:
    if not isinstance(value, kinds):
        raise ValueError(f"Expected {_name_of(asked_for)}, got {type(value).__name__}")  # noqa: TRY004  It is data.


def _is_no_class(annotation: Any) -> bool:
    origin = get_origin(annotation) or annotation
    return not (isinstance(origin, type) and (typing.is_typeddict(origin) or shape_of(origin)))


def _aliased(annotation: Any) -> Any:
    """What `type Name = ...` of Python 3.12 stands for."""
    return annotation.__value__ if type(annotation).__name__ == "TypeAliasType" else None


def _name_of(annotation: Any) -> str:
    return str(getattr(annotation, "__name__", annotation))


def _dotted(location: tuple[object, ...]) -> str:
    return ".".join(map(str, location))


def _in_one_line(error: object) -> str:
    line = " ".join(str(error).split())
    return line if len(line) <= MAX_REASON_CHARACTERS else line[: MAX_REASON_CHARACTERS - 1] + "…"


def _underlying(function: Any) -> Any:
    """The function whose annotations count: below partials and wrappers, or an instance's `__call__`."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    return function if inspect.isroutine(function) or isinstance(function, type) else type(function).__call__


def _hints_of(target: Any) -> dict[str, Any]:
    """Names that do not resolve, such as imports under TYPE_CHECKING, cost only the annotations that use them."""
    enclosing = _enclosing_names(target)
    try:
        return typing.get_type_hints(target, localns=enclosing, include_extras=True)
    except Exception:  # noqa: BLE001  An annotation is an expression, and may raise anything.
        return _hints_one_by_one(target, enclosing)


def _hints_one_by_one(target: Any, enclosing: dict[str, Any] | None) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    names = getattr(inspect.getmodule(target), "__dict__", {}) | getattr(target, "__globals__", {})
    for name, annotation in getattr(target, "__annotations__", {}).items():
        alone = types.SimpleNamespace(__annotations__={name: annotation})
        try:
            hints |= typing.get_type_hints(alone, globalns=names, localns=enclosing, include_extras=True)
        except Exception:  # noqa: BLE001, S112  As above.
            continue
    return hints


def _enclosing_names(target: Any) -> dict[str, Any] | None:
    """A class defined inside a function can be named in an annotation there; a closure knows it if the body uses it."""
    cells = getattr(target, "__closure__", None)
    if not cells:
        return None
    return {
        name: cell.cell_contents for name, cell in zip(target.__code__.co_freevars, cells, strict=True) if _is_set(cell)
    }


def _is_set(cell: types.CellType) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:
        return False


def _as_bound(parameter: inspect.Parameter, hint: Any) -> Any:
    """The annotation of the argument as it is bound: `*args: str` binds a tuple of str, `**kwargs: str` a dict."""
    if hint is not Any and parameter.kind is inspect.Parameter.VAR_POSITIONAL:
        return types.GenericAlias(tuple, (hint, ...))
    if hint is not Any and parameter.kind is inspect.Parameter.VAR_KEYWORD:
        return get_args(hint)[0] if get_origin(hint) is Unpack else types.GenericAlias(dict, (str, hint))
    return hint
