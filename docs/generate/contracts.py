"""The page of `--json`: every object that a command prints, with its fields, from the structs they are printed from."""

from __future__ import annotations

import collections
import enum
import functools
import operator
import types
import typing
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import click
import msgspec
from msgspec import Meta, Raw, Struct, UnsetType

from docs.generate.markdown import documented, joined, opened, table
from perdure.cli import COMMANDS, perdure
from perdure.cli.contract import Refused
from perdure.cli.options import SHAPE

PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null", Any: "any", Raw: "any"}
_INTRO = """With `--json` a command prints exactly one JSON object on standard output, and nothing else there; a
command that follows something prints one object a line. Fields are added, never renamed or taken away: ignore
what you do not know. Instants end in `_at` and are seconds since 1970, UTC; 0 or null where there is none. What
`perdure show RUN --checkpoint` prints has [a page of its own](checkpoint.md)."""
_FAILED = "A command that fails prints this object instead, and ends with `exit_code`."


def page() -> str:
    """The whole page."""
    shapes = {name: shape for name in COMMANDS if (shape := shape_of(name)) is not None}
    parts = opened("JSON contracts", _INTRO, "## Errors", _FAILED, _fields(Refused))
    for name, shape in shapes.items():
        parts += [f"## perdure {name} --json", documented(shape), _fields(shape)]
    parts += ["## Objects", "What the objects above are made of."]
    for struct, title in sorted(titles().items(), key=operator.itemgetter(1)):
        parts += [f"### {title}", documented(struct), _fields(struct)]
    return joined(parts)


@functools.cache
def titles() -> dict[type[Struct], str]:
    """Every struct inside what is printed, and its heading: its name, and whose it is where two share one."""
    outer: list[type[Struct]] = [Refused, *(shape for name in COMMANDS if (shape := shape_of(name)) is not None)]
    inner = {struct for shape in outer for struct in nested(shape)}
    shared = collections.Counter(struct.__name__ for struct in inner)
    return {
        struct: struct.__name__ if shared[struct.__name__] == 1 else f"{struct.__name__} of {_module(struct)}"
        for struct in inner
    }


def shape_of(name: str) -> type[Struct] | None:
    """What this command prints with `--json`; None where it has no such option."""
    command = perdure.get_command(click.Context(perdure), name)
    shape: type[Struct] | None = getattr(command, "callback", None).__dict__.get(SHAPE)
    return shape


def nested(struct: type[Struct]) -> list[type[Struct]]:
    """The structs inside this one, at any depth."""
    found: dict[type[Struct], None] = {}
    for field in msgspec.structs.fields(struct):
        for inner in _structs(field.type):
            if inner not in found and inner is not struct:
                found |= {inner: None} | dict.fromkeys(nested(inner))
    return list(found)


def described(field: msgspec.structs.FieldInfo) -> str:
    """What a field means; empty where nobody said."""
    if get_origin(field.type) is not Annotated:
        return ""
    notes = [note.description for note in get_args(field.type)[1:] if isinstance(note, Meta)]
    return next((note for note in notes if note), "")


def worded(kind: Any) -> str:
    """A type, in words of JSON."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return worded(inside[0])
    if origin in (Union, types.UnionType):
        return " or ".join(worded(one) for one in inside if one is not UnsetType)
    if origin is Literal:
        return " or ".join(f"`{value}`" for value in inside)
    if origin in (list, tuple, set, frozenset):
        return f"array of {worded(inside[0])}" if inside else "array"
    if origin is dict:
        return "object" if inside[1] is Any else f"object of {worded(inside[1])}"
    if isinstance(kind, type) and issubclass(kind, Struct):
        title = titles()[kind]
        return f"[{title}](#{title.lower().replace(' ', '-')})"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return " or ".join(f"`{one.value}`" for one in kind)
    return PLAIN.get(kind, {dict: "object", list: "array"}.get(kind, "any"))


def _fields(struct: type[Struct]) -> str:
    rows = [
        (f"`{field.encode_name}`", worded(field.type), described(field)) for field in msgspec.structs.fields(struct)
    ]
    return table(("field", "type", "meaning"), rows)


def _module(struct: type[Struct]) -> str:
    return struct.__module__.rpartition(".")[2]


def _structs(kind: Any) -> list[type[Struct]]:
    if isinstance(kind, type) and issubclass(kind, Struct) and typing.get_origin(kind) is None:
        return [kind]
    return [struct for inside in get_args(kind) for struct in _structs(inside)]
