"""Digests of a call's arguments: equal for equal arguments, in every process and on every supported Python.

    sha256 over, for each argument in the order of names:   name, content        cut to 16 bytes
    content up to 16 KB                                     its MessagePack
    content above                                           its MessagePack header, then sha256 of the rest

MessagePack keeps what matters for telling calls apart and forgets what does not: a tuple is a list, an instance is its
fields. The header of a long list or text holds its length; because it stands apart, a conversation that only grows can
be hashed from where the last call stopped.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from hashlib import sha256
from pathlib import PurePath
from typing import Any, Final

import msgspec

from perdure.codec.growth import ArgumentKey, BytesSoFar, ListSoFar, PrefixCache
from perdure.codec.plain import examine
from perdure.codec.refusal import Refused
from perdure.codec.shapes import parts_of, shape_of

DIGEST_BYTES: Final = 16
LARGE_BYTES: Final = 16 * 1024
REFRESH_BYTES: Final = 64 * 1024
"""Remembered bytes are replaced once this much follows them; copying megabytes at every call would cost more."""

_HEADER_BYTES: Final = {0xDA: 3, 0xDB: 5, 0xDC: 3, 0xDD: 5} | dict.fromkeys(range(0x90, 0xA0), 1)
"""Lengths of the headers of texts and lists, by first byte."""

_HASHED: Final = b"\xc7\x20\x01"
"""Opens a MessagePack extension of 32 bytes, which no argument encodes to."""

_FLOAT: Final = 0xCB
"""How a float begins in MessagePack."""

_NOT_FINITE: Final = re.compile(rb"\xcb[\x7f\xff][\xf0-\xff]")
"""How NaN and the infinities begin in MessagePack. Other bytes may look the same, so a match is a suspicion."""

_FEW: Final[dict[type, int]] = {list: 64, dict: 64, tuple: 64, set: 64, str: 4096, bytes: 4096}
"""Up to how many items a value is taken for a short one, unseen."""

_SHORT_LIST: Final = 16
_MIDDLE_LIST: Final = 2**16
"""Lists of at least so many items have longer headers."""

_SHORT_MAP: Final = 15
"""A MessagePack map of so many entries has a header of one byte."""

_LONG_ITEM_BYTES: Final = 256
"""Lists whose items are about this long are remembered item by item; others are encoded as quickly as compared."""

_UNENCODABLE: Final = (TypeError, ValueError, OverflowError, RuntimeError, AttributeError)
"""What encoding may raise: too deep, and changed by another thread meanwhile, are errors of the runtime."""

_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1


def digest_arguments(
    arguments: Mapping[str, object] | tuple[object, ...], *, of: str = "the call", cache: PrefixCache | None = None
) -> bytes:
    """16 bytes that identify the arguments; `UnstorableValue` names one that has no value to go by, such as a client.

    The order of keyword arguments does not count. The cache changes the time this takes and never the result.
    """
    short = _short(arguments) if type(arguments) is dict else None
    if short is not None:
        return sha256(short).digest()[:DIGEST_BYTES]
    named = list(enumerate(arguments)) if isinstance(arguments, tuple) else sorted(arguments.items())
    written = []
    for name, value in named:
        try:
            written.append(_encode(name))
            written.append(_written(value, (of, name), cache))
        except Refused as refused:
            raise refused.as_error(f"argument {name}", of=of) from None
    return sha256(b"".join(written)).digest()[:DIGEST_BYTES]


def _short(arguments: dict[str, Any]) -> bytes | None:
    """What is hashed, for a few small plain arguments, written in one go; None where they need a closer look."""
    if len(arguments) > _SHORT_MAP:
        return None
    for value in arguments.values():
        kind = type(value)
        if kind in _FEW and len(value) > _FEW[kind]:  # it may be hashed apart; a wrong guess only costs time
            return None
    try:
        content = _encode(arguments)
    except _UNENCODABLE:
        return None
    if len(content) > LARGE_BYTES or (_FLOAT in content and _NOT_FINITE.search(content)):
        return None
    return content[1:]


def _content(value: object) -> bytes:
    try:
        return _encode(value)
    except _UNENCODABLE:
        return _encode(_in_order(_examined(value)))


def _written(value: object, key: ArgumentKey, cache: PrefixCache | None) -> bytes:
    """What stands for an argument in the hash of all."""
    grown = _grown(value, key, cache) if cache is not None and type(value) is list else None
    if grown is not None:
        return grown
    content = _content(value)
    if len(content) > LARGE_BYTES:
        return _hashed(content, key, cache, of=value)
    if _NOT_FINITE.search(content):
        _refuse_not_finite(content)
    return content


def _grown(value: list[object], key: ArgumentKey, cache: PrefixCache) -> bytes | None:
    """The same for a list that opens as it did at the last call; None where it does not, or is not plain any more."""
    memory = cache.take(key, ListSoFar)
    if memory is None:
        return None
    try:
        following = memory.extend(value[len(memory) :])
    except _UNENCODABLE:
        return None
    if not memory.is_of(value) or (_FLOAT in following and _NOT_FINITE.search(following)):
        return None
    cache.keep(key, memory)
    return _list_header(len(memory)) + _HASHED + memory.digest()


def _list_header(length: int) -> bytes:
    """How MessagePack opens a list of so many items."""
    if length < _SHORT_LIST:
        return bytes((0x90 + length,))
    return b"\xdc" + length.to_bytes(2) if length < _MIDDLE_LIST else b"\xdd" + length.to_bytes(4)


def _hashed(content: bytes, key: ArgumentKey, cache: PrefixCache | None, *, of: object) -> bytes:
    start = _HEADER_BYTES.get(content[0], 0)
    memory = cache.take(key, BytesSoFar) if cache is not None else None
    resumed = memory.resume(content, start) if memory is not None else None
    state, done = resumed or (sha256(), start)
    # One byte is found far quicker than a pattern, and what a remembered prefix holds has been looked at before.
    if content.find(_FLOAT, done) >= 0 and _NOT_FINITE.search(content, done):
        _refuse_not_finite(content)
    state.update(memoryview(content)[done:])
    if cache is None:
        pass
    elif type(of) is list and len(content) > _LONG_ITEM_BYTES * len(of):
        _remember_items(of, key, cache, state.digest())
    elif memory is not None and resumed is not None and len(content) - done <= REFRESH_BYTES:
        cache.keep(key, memory)
    else:
        cache.keep(key, BytesSoFar(content[start:], state))
    return content[:start] + _HASHED + state.digest()


def _remember_items(value: list[object], key: ArgumentKey, cache: PrefixCache, digest: bytes) -> None:
    """Remember a list by its items, if they are still what was hashed."""
    memory = ListSoFar(_encode)
    with contextlib.suppress(*_UNENCODABLE):
        memory.extend(value)
        if memory.digest() == digest:
            cache.keep(key, memory)


def _refuse_not_finite(content: bytes) -> None:
    examine(msgspec.msgpack.decode(content))


def _examined(value: object) -> object:
    try:
        return examine(value)
    except RecursionError:
        raise Refused("nests too deeply for the stack that is left", "make it flatter") from None


def _in_order(flat: object) -> object:
    """What MessagePack can hold, with the entries of a dict in the order of their keys' bytes."""
    if type(flat) is int and not _MIN_INT <= flat <= _MAX_INT:
        return {"$int": str(flat)}
    if type(flat) is list:
        return [_in_order(item) for item in flat]
    if type(flat) is not dict:
        return flat
    ordered = {key: _in_order(item) for key, item in flat.items()}
    if "$dict" in ordered and len(ordered) == 1:
        ordered["$dict"] = sorted(ordered["$dict"], key=_encode)  # type: ignore[call-overload]
    return ordered


def _encode_unknown(value: Any) -> object:
    """The encoder's hook: pydantic models by their fields, paths as text. TypeError leaves the rest to `examine`."""
    if isinstance(value, PurePath):
        return str(value)
    shape = shape_of(type(value))
    if shape is None:
        raise TypeError
    parts = parts_of(value, shape)
    return parts[0][2] if shape.form == "bare" else {key: item for _, key, item in parts}


_encode: Final = msgspec.msgpack.Encoder(enc_hook=_encode_unknown, order="sorted").encode
