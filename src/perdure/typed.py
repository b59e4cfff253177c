"""JSON and plain data to types, from any thread.

msgspec learns a class when it first meets it. Another thread that meets the same class meanwhile is given what has been
learnt so far, and the process ends with a segmentation fault. Whoever reads data to a class therefore does so here:
each type is learnt as a whole, by one thread at a time, before it is used.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

T = TypeVar("T")
_learning: Final = threading.RLock()
_learnt: Final[set[Hashable]] = set()


def read(content: bytes | str, kind: type[T]) -> T:
    """What a JSON text says, as that type; raises what msgspec does where it does not fit."""
    return msgspec.json.decode(content, type=known(kind))


def convert(value: object, kind: type[T], *, strict: bool = True) -> T:
    """The same for plain data."""
    return msgspec.convert(value, known(kind), strict=strict)


def decoder(kind: type[T]) -> Callable[[bytes | str], T]:
    """Reads JSON to a type again and again."""
    return msgspec.json.Decoder(known(kind)).decode


def unpacker(kind: type[T]) -> Callable[[bytes], T]:
    """Reads MessagePack to a type again and again."""
    return msgspec.msgpack.Decoder(known(kind)).decode


def holder(annotation: Hashable) -> Any:  # noqa: ANN401 - a struct that is made here
    """A struct with one field, `value`, of that type: msgspec remembers types of fields of structs, and no others."""
    return learnt(msgspec.defstruct("Holder", [("value", annotation)]))


def known(kind: T) -> T:
    """A type of our own, once all of it is known."""
    if kind not in _learnt:
        learnt(kind)
        _learnt.add(kind)
    return kind


def learnt(kind: T) -> T:
    """A type, after all that it is made of has been learnt."""
    with _learning:
        msgspec.msgpack.Decoder(kind)  # which knows the most types; what it has learnt, all others know
    return kind
