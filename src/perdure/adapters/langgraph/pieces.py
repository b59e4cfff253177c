"""Values as pieces under the digest of their content: lists and dicts are trees that share what did not change.

Layout of a piece: a value is the length of its type's name (1 byte), that name, and what the serializer made of it. A
node is its kind (`l` list, `d` dict), its level (1 byte; 0 names items) and a MessagePack array of references, for
items of a dict each with its key. Layout of a reference: `v` or `n` and the content itself where that is short, `V` or
`N` and a digest where a value or a node is kept as a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.errors import CheckpointCorrupt, PerdureError, ResumeError
from perdure.records import blob_digest
from perdure.store import blobs

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator, Mapping

    from langgraph.checkpoint.serde.base import SerializerProtocol

    from perdure.adapters.langgraph.likeness import Likenesses

INLINE_BYTES: Final = 64
"""Content up to this size stays inside the reference to it."""

SPLIT_BYTES: Final = 4096
"""A list or a dict inside another one becomes a tree of its own above this size."""

PLAIN_BYTES: Final = 8192
"""A piece is compressed above this size."""

_PLAIN: Final = b"r"
"""As `store.blobs` has it: what follows is not compressed."""

_FEWEST, _MOST = 8, 256
_USUAL: Final = 32
"""How many references a node has: on the average, and at least and at most."""

_VALUE, _KEPT_VALUE, _NODE, _KEPT_NODE = b"v", b"V", b"n", b"N"
_LIST, _DICT = b"l", b"d"
_NEVER_NONE: Final = frozenset({"msgpack", "json"})
"""Types under which LangGraph never stores None; where it reads one, its serializer failed to rebuild a value."""

_encode: Final = msgspec.msgpack.Encoder().encode
_references: Final = msgspec.msgpack.Decoder(list[bytes]).decode
_pair: Final = msgspec.msgpack.Decoder(tuple[str, bytes]).decode


class Sealer:
    """Makes pieces of values; those that are not kept yet are collected."""

    def __init__(self, serde: SerializerProtocol, likenesses: Likenesses, kept: Container[bytes]) -> None:
        self._serde = serde
        self._likenesses = likenesses
        self._kept = kept
        self.new: dict[bytes, bytes] = {}
        """What must be written, by reference."""

    def seal(self, value: Any) -> bytes:
        """A reference to this value."""
        if type(value) is list:
            return self._tree(_LIST, self._seal_all(value))
        if type(value) is dict and all(type(key) is str for key in value):
            items = self._seal_all([*value.values()])
            return self._tree(_DICT, [_encode(pair) for pair in zip(value, items, strict=True)])
        return self._refer(_value_content(*self._serde.dumps_typed(value)), _VALUE, _KEPT_VALUE)

    def _seal_all(self, items: list[Any]) -> list[bytes]:
        kept = self._kept
        return [
            known if known is not None and known in kept else self._seal_item(item)
            for known, item in zip(self._likenesses.find(items), items, strict=True)
        ]

    def _seal_item(self, item: Any) -> bytes:
        content = _value_content(*self._serde.dumps_typed(item))
        if len(content) > SPLIT_BYTES and type(item) in (list, dict):
            return self.seal(item)
        reference = self._refer(content, _VALUE, _KEPT_VALUE)
        if reference[:1] == _KEPT_VALUE:
            self._likenesses.remember(item, reference)
        return reference

    def _tree(self, kind: bytes, references: list[bytes]) -> bytes:
        level = 0
        while True:
            nodes = [
                self._refer(kind + bytes((level,)) + _encode(chunk), _NODE, _KEPT_NODE) for chunk in _chunks(references)
            ]
            if len(nodes) == 1:
                return nodes[0]
            references, level = nodes, level + 1

    def _refer(self, content: bytes, inline: bytes, kept: bytes) -> bytes:
        if len(content) <= INLINE_BYTES:
            return inline + content
        reference = kept + blob_digest(content)
        if reference not in self._kept and reference not in self.new:
            self.new[reference] = blobs.pack(content)[1] if len(content) > PLAIN_BYTES else _PLAIN + content
        return reference


class Opener:
    """Makes values of pieces that were read; what is missing or damaged is named."""

    def __init__(
        self,
        serde: SerializerProtocol,
        stored: Mapping[bytes, bytes],
        *,
        where: str,
        met: Callable[[Any, bytes], None] | None = None,
    ) -> None:
        self._serde = serde
        self._stored = stored
        self._where = where
        self._met = met

    def open(self, reference: bytes, *, what: str) -> Any:
        """The value; `what` says to a person which one it is."""
        try:
            return self._open(reference)
        except CheckpointCorrupt as error:
            raise CheckpointCorrupt(
                f"{what} of {self._where} cannot be read: {error.message}",
                safe="nothing was changed; every other checkpoint that does not share this piece can be read.",
                hint="perdure verify lists the damage; put back a copy of the store, or go on from an older checkpoint",
            ) from error
        except PerdureError:
            raise
        except Exception as error:
            raise _unreadable(f"{what} of {self._where} cannot be rebuilt: {type(error).__name__}: {error}") from error

    def _open(self, reference: bytes) -> Any:
        content = _content(reference, self._stored)
        if reference[:1] in (_VALUE, _KEPT_VALUE):
            value = loaded(self._serde, content)
            if reference[:1] == _KEPT_VALUE and self._met is not None:
                self._met(value, reference)
            return value
        items = self._items(content)
        if content[:1] == _LIST:
            return [self._open(item) for item in items]
        return {key: self._open(item) for key, item in map(_pair, items)}

    def _items(self, content: bytes) -> Iterator[bytes]:
        """What a tree names below all of its nodes, in order."""
        for reference in _references(content[2:]):
            if content[1]:
                yield from self._items(_content(reference, self._stored))
            else:
                yield reference


def loaded(serde: SerializerProtocol, content: bytes) -> Any:
    """What the serializer makes of a value's content; a None that was not one is refused."""
    split = 1 + content[0]
    kind = content[1:split].decode()
    value = serde.loads_typed((kind, content[split:]))
    if value is None and kind in _NEVER_NONE:
        raise _unreadable("The serializer answers with None for a value that was not None.")
    return value


def kept_among(references: Iterable[bytes]) -> tuple[set[bytes], set[bytes]]:
    """The values and the nodes that are kept as rows, among references and inside short nodes."""
    values: set[bytes] = set()
    nodes: set[bytes] = set()
    waiting = list(references)
    while waiting:
        reference = waiting.pop()
        if reference[:1] == _KEPT_VALUE:
            values.add(reference)
        elif reference[:1] == _KEPT_NODE:
            nodes.add(reference)
        elif reference[:1] == _NODE:
            waiting += named_by(reference[1:])
    return values, nodes


def named_by(content: bytes) -> list[bytes]:
    """The references in a node."""
    references = _references(content[2:])
    if content[:1] == _DICT and not content[1]:
        return [reference for _, reference in map(_pair, references)]
    return references


def _content(reference: bytes, stored: Mapping[bytes, bytes]) -> bytes:
    if reference[:1] in (_VALUE, _NODE):
        return reference[1:]
    return unpacked(reference, stored.get(reference))


def unpacked(reference: bytes, stored: bytes | None) -> bytes:
    """The content of a piece that is kept as a row, proved to be what its reference says."""
    return blobs.unpack(reference[1:], stored)


def _value_content(kind: str, data: bytes) -> bytes:
    name = kind.encode()
    return bytes((len(name),)) + name + data


def _chunks(references: list[bytes]) -> Iterator[list[bytes]]:
    """Cut where a reference itself says so: what is in front of a cut does not move it."""
    start = 0
    for cut in [*(at for at, reference in enumerate(references, 1) if not reference[-1] % _USUAL), len(references)]:
        while cut - start > _MOST:
            yield references[start : start + _MOST]
            start += _MOST
        if cut - start >= _FEWEST:
            yield references[start:cut]
            start = cut
    if start < len(references) or not references:
        yield references[start:]


def _unreadable(message: str) -> ResumeError:
    return ResumeError(
        message,
        safe="it is kept as it was written, and nothing was changed.",
        hint="give the saver the serializer that wrote it, and see that its classes can be imported",
    )
