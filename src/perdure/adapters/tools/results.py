"""What a tool returned, as it is kept: plain data as it is, anything else with what is needed to read it back.

Nothing stored makes anything be imported: a class is looked for among the modules that the script has loaded itself.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import msgspec
from msgspec import Struct

from perdure import codec, typed
from perdure.adapters.tools.context import Changes
from perdure.adapters.tools.shapes import Shapeless, shaped, unshaped
from perdure.errors import UnstorableValue

_MARK: Final = "perdure.kept"
"""The only key of a result that is not kept as it is."""

_DECLARED: Final = "$"
"""Stands for what the tool itself says that it returns, which is not looked up by its name."""


_SHAPED: Final = "~"
"""Stands for what says itself, part by part, of which classes it is."""


class Kept(Struct, frozen=True, omit_defaults=True):
    """A result that is more than plain data."""

    sealed: str = ""
    type: str = ""
    """The class to read it back with, as module:name, of each item where it is a list; empty for plain data."""
    lost: str = ""
    """What it was, where it could not be kept."""
    changed: Changes | None = None
    """What the tool changed in memory beside."""


class Lost(Exception):
    """What a tool returned is not there any more, or never could be kept."""


def kept(value: Any, annotation: object) -> Any:
    """A result as it is kept; one that would not come back as it was is lost, and said to be."""
    if not _is_marked(value) and _is_faithful(value, Any):
        return value
    for name in ("", _DECLARED, class_name(value)):
        try:
            sealed, _ = codec.seal_faithfully(value, _annotation(name, annotation))
        except (UnstorableValue, ValueError, TypeError):
            continue
        return {_MARK: msgspec.to_builtins(Kept(sealed.decode(), name))}
    try:
        return {_MARK: msgspec.to_builtins(Kept(shaped(value).decode(), _SHAPED))}
    except Shapeless:
        pass
    return {_MARK: msgspec.to_builtins(Kept(lost=codec.describe(value)))}


def with_changes(result: Any, changed: Changes | None) -> Any:
    """A kept result, with what the tool changed in memory."""
    if changed is None:
        return result
    if _is_marked(result):
        return {_MARK: {**result[_MARK], "changed": msgspec.to_builtins(changed)}}
    return {_MARK: msgspec.to_builtins(Kept(codec.seal(result).decode(), changed=changed))}


def changes_in(result: Any) -> Changes | None:
    """What the tool changed in memory when it returned this."""
    return typed.convert(result[_MARK], Kept).changed if _is_marked(result) else None


def given(result: Any, annotation: object) -> Any:
    """What the tool returned, or what a person said that it did; `Lost` where that cannot be read any more."""
    if not _is_marked(result):
        return result
    found = typed.convert(result[_MARK], Kept)
    if found.lost:
        raise Lost(f"{found.lost}, which cannot be stored")
    try:
        if found.type == _SHAPED:
            return unshaped(found.sealed)
        return codec.unseal(found.sealed, _annotation(found.type, annotation))
    except ValueError as error:
        raise Lost(f"what cannot be read any more: {error}") from error


def is_lost(result: Any) -> bool:
    """Whether a result could not be kept."""
    return _is_marked(result) and "lost" in result[_MARK]


def class_name(value: Any) -> str:
    """The name under which the class of a value, or of all items of a list, can be found."""
    if isinstance(value, list) and value and len({type(item) for item in value}) == 1:
        return f"list of {class_name(value[0])}"
    kind = type(value)
    return f"{kind.__module__}:{kind.__qualname__}"


def _is_marked(value: Any) -> bool:
    return type(value) is dict and value.keys() == {_MARK}


def _is_faithful(value: Any, annotation: object) -> bool:
    try:
        codec.seal_faithfully(value, annotation)
    except (UnstorableValue, ValueError, TypeError):
        return False
    return True


def _annotation(name: str, declared: object) -> object:
    if not name:
        return Any
    if name == _DECLARED:
        return declared
    if name.startswith("list of "):
        return list[_annotation(name.removeprefix("list of "), declared)]  # type: ignore[misc]
    module, _, qualname = name.partition(":")
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise ValueError(f"the class {name} is not there any more")  # noqa: TRY004 - what is stored does not fit
    return found
