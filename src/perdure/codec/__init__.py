"""Value <-> bytes: what a step returned, and what it was called with, as JSON that any tool can read.

    plain data          as JSON has it: str, int of any size, finite float, bool, None, list, dict with str keys
    builtin types       {"$tuple": [...]}   {"$set": [...]}   {"$frozenset": [...]}   {"$bytes": "<base64>"}
                        {"$datetime": "<ISO 8601>"}   {"$date": ...}   {"$time": ...}
                        {"$timedelta": [days, seconds, microseconds]}   {"$decimal": "1.50"}   {"$uuid": "..."}
                        {"$path": "..."}   {"$posixpath": "..."}   {"$windowspath": "..."}
    other dicts         {"$dict": [[key, value], ...]}: keys that are no str, or one single key that starts with "$"
    class instances     their fields, as a JSON object; NamedTuple: an array; Enum: the member's value

A JSON object is a tag if and only if it has one single key and that key starts with "$". A user's dict of that form is
written as `$dict`, so an unknown tag is never a user's data: it is damage, or the work of a newer perdure, and refused.
The elements of a set are written in the order of their bytes, so equal sets have equal bytes in every process.

Nothing stored ever names a class. Builtin types come back by their tag; a class comes back only because an annotation
in the user's code names it. There is no pickle and no import by name: a store that somebody else wrote runs no code
here. An aware datetime comes back with its offset from UTC, not with the name of its time zone.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from perdure.codec.digest import digest_arguments
from perdure.codec.fidelity import require_same
from perdure.codec.growth import PrefixCache
from perdure.codec.hints import load, plain_decoder, resolve_annotations
from perdure.codec.plain import examine, flatten, restore
from perdure.codec.refusal import Refused, describe
from perdure.errors import UnstorableValue

__all__ = [
    "MAX_VALUE_BYTES",
    "PrefixCache",
    "describe",
    "digest_arguments",
    "resolve_annotations",
    "seal",
    "seal_arguments",
    "seal_faithfully",
    "unseal",
    "unseal_arguments",
    "unsealer",
]

MAX_VALUE_BYTES: Final = 64 * 1024 * 1024

_DOLLAR: Final = ord("$")
_MEGABYTE: Final = 1024 * 1024
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder().decode


def seal(value: object, *, what: str = "result", of: str = "") -> bytes:
    """The value's JSON; `UnstorableValue` names the part that cannot be stored, as `what`.part `of` the call.

    A class instance is written as its fields; whether an annotation would bring it back, `seal_faithfully` asks.
    """
    try:
        data = _encode(value if type(value) is str else flatten(value))
    except Refused as refused:
        raise refused.as_error(what, of=of) from None
    except (ValueError, RecursionError) as error:
        raise _unencodable(value, what, of) from error
    if len(data) > MAX_VALUE_BYTES:
        raise _too_large(data, f"{what} of {of}" if of else what)
    return data


def unseal(data: bytes | str, annotation: object = Any) -> Any:
    """What was sealed, decoded to the annotation; `ValueError` if the data is damaged or no longer fits it."""
    decode = plain_decoder(annotation)
    if decode is not None and (annotation is str or not _may_hold_tags(data)):
        try:
            return decode(data)
        except (ValueError, RecursionError):
            pass  # read again below, where the misfit is put into words
    return load(_decoded(data, restored=True), annotation)


def unsealer(annotation: object) -> Callable[[bytes], Any]:
    """`unseal` to one annotation, for whoever does that at every step."""
    decode = plain_decoder(annotation)
    if decode is None or annotation is not str:
        return functools.partial(unseal, annotation=annotation)

    def unseal_text(data: bytes) -> Any:
        try:
            return decode(data)
        except (ValueError, RecursionError):
            return unseal(data, annotation)

    return unseal_text


def seal_faithfully(value: object, annotation: object = Any, *, what: str = "result") -> tuple[bytes, Any]:
    """The sealed value, and the form in which it comes back, which must be what went in.

    The caller hands the decoded form on, so the first run sees what every replay will see.
    """
    data = seal(value, what=what)
    if type(value) is str and (annotation is str or annotation is Any):
        return data, value  # the encoder refuses the few texts that would not come back
    try:
        returned = unseal(data, annotation)
        require_same(value, returned)
    except Refused as refused:
        raise refused.as_error(what) from None
    except (ValueError, RecursionError) as error:
        raise _unreadable(error, what) from error
    return data, returned


def seal_arguments(arguments: Mapping[str, object], *, of: str = "") -> bytes:
    """The arguments of a call as one JSON object, name by name."""
    sealed = {name: msgspec.Raw(seal(value, what=f"argument {name}", of=of)) for name, value in arguments.items()}
    data = _encode(sealed)
    if len(data) > MAX_VALUE_BYTES:
        raise _too_large(data, f"the arguments of {of or 'the call'}")
    return data


def unseal_arguments(data: bytes | str, annotations: Mapping[str, object]) -> dict[str, Any]:
    """The arguments by name, each decoded to its own annotation; `ValueError` if the data is damaged.

    Python lets a caller pass what an annotation does not allow, so an argument that does not fit comes back as plain
    data: the check of an effect in doubt must not fail because somebody once passed a str for a Path.
    """
    flat = _decoded(data, restored=False)
    if type(flat) is not dict:
        raise ValueError(f"stored arguments are {describe(flat)}, not an object")
    return {name: _load_leniently(_restored(value), annotations.get(name, Any)) for name, value in flat.items()}


def _load_leniently(value: object, annotation: object) -> Any:
    try:
        return load(value, annotation)
    except ValueError:
        return value


def _decoded(data: bytes | str, *, restored: bool) -> Any:
    try:
        flat = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"stored value is no JSON: {error}") from error
    except RecursionError as error:
        raise ValueError("stored value nests too deeply") from error
    return _restored(flat) if restored and _may_hold_tags(data) else flat


def _restored(flat: object) -> object:
    try:
        return restore(flat)
    except RecursionError as error:
        raise ValueError("stored value nests too deeply") from error


def _may_hold_tags(data: bytes | str) -> bool:
    """Looking for one character first is far quicker than looking for two, and most values hold no dollar sign."""
    if isinstance(data, str):
        return "$" in data and '"$' in data
    return _DOLLAR in data and b'"$' in data


def _unencodable(value: object, what: str, of: str) -> UnstorableValue:
    """Plain text and ints pass `flatten` unexamined; when the encoder refuses one, it is looked for."""
    try:
        examine(value)
    except Refused as refused:
        return refused.as_error(what, of=of)
    except RecursionError:
        pass
    return _too_deep_for_the_stack().as_error(what, of=of)


def _unreadable(error: Exception, what: str) -> UnstorableValue:
    if isinstance(error, RecursionError) or isinstance(error.__cause__, RecursionError):
        return _too_deep_for_the_stack().as_error(what)
    reason, _, path = str(error).partition(" - at `$")
    return UnstorableValue(
        f"{what}{path.rstrip('`')} does not fit its annotation: {reason}",
        hint="correct the annotation, or return what it says",
    )


def _too_deep_for_the_stack() -> Refused:
    return Refused("nests too deeply for the stack that is left", "make it flatter")


def _too_large(data: bytes, what: str) -> UnstorableValue:
    return UnstorableValue(
        f"{what} is {len(data) / _MEGABYTE:.1f} MB, the limit is {MAX_VALUE_BYTES // _MEGABYTE} MB",
        hint="keep it in a file, and hand on the path",
    )
