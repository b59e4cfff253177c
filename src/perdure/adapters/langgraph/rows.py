"""The rows of checkpoints, writes and pieces in the store's cabinet, and what of them is one transaction.

Keys, each for a thread: `lt` its edition; `lh` and a namespace: the id of the newest checkpoint there; `lc`, a
namespace and an id: a checkpoint; `lw`, the same, a task and a number: a write; `lp` and a reference: a piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from perdure import clock, typed
from perdure.adapters.langgraph.pieces import kept_among, named_by, unpacked
from perdure.errors import CheckpointCorrupt, FormatTooNew
from perdure.store.cabinet import key_of, names_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from perdure.store.cabinet import Rows

THREAD, HEAD, CHECKPOINT, WRITE, PIECE = b"lt", b"lh", b"lc", b"lw", b"lp"
FORMAT: Final = 1
_EDITION_CHARACTERS: Final = 16
_PAGE: Final = 64

Typed = tuple[str, bytes]
"""As LangGraph's serializers have it: the name of a type, and bytes."""


class Place(Struct, frozen=True, order=True):
    """A checkpoint: its thread, its namespace there, its id."""

    thread: str
    namespace: str
    checkpoint_id: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace!r}" if self.namespace else ""
        return f"checkpoint {self.checkpoint_id} of thread {self.thread!r}{where}"

    @property
    def head(self) -> bytes:
        """The key of the row that names the newest checkpoint of the namespace."""
        return key_of(HEAD, self.thread, self.namespace)

    @property
    def row(self) -> bytes:
        """The key of the checkpoint."""
        return key_of(CHECKPOINT, self.thread, self.namespace, self.checkpoint_id)

    @property
    def writes(self) -> bytes:
        """What the keys of its writes begin with."""
        return key_of(WRITE, self.thread, self.namespace, self.checkpoint_id)


class CheckpointRow(Struct, frozen=True, array_like=True):
    """A checkpoint as it is kept: everything but the values of its channels, and a reference for each of those."""

    format: int
    parent: str
    body: Typed
    metadata: Typed
    channels: dict[str, bytes]


class WriteRow(Struct, frozen=True, array_like=True):
    """What a task wrote to a channel."""

    channel: str
    reference: bytes
    task_path: str


class Write(Struct, frozen=True):
    """A write with what its key says."""

    task_path: str
    task_id: str
    number: int
    row: WriteRow


class Found(Struct, frozen=True):
    """A checkpoint with its writes, in the order in which LangGraph applies them."""

    place: Place
    row: CheckpointRow
    writes: list[Write]

    def references(self) -> Iterator[bytes]:
        """Every value it names."""
        yield from self.row.channels.values()
        yield from (write.row.reference for write in self.writes)


encode: Final = msgspec.msgpack.Encoder().encode
_decode_checkpoint: Final = typed.unpacker(CheckpointRow)
_decode_write: Final = typed.unpacker(WriteRow)


def save(
    rows: Rows,
    thread: str,
    *,
    expected: bytes,
    pieces: Mapping[bytes, bytes],
    keep: Mapping[bytes, bytes],
    put: Mapping[bytes, bytes],
    newest: Place | None = None,
) -> bytes:
    """Write pieces and what names them; answers with the edition of the thread, or with nothing if that is another.

    Another edition than the expected one means that pieces may be gone which the caller left out. None is expected
    where none were left out. `newest` is a checkpoint among what is put.
    """
    edition = open_thread(rows, thread, alone=newest is not None)
    if expected not in (b"", edition):
        return b""
    rows.keep({**{piece_key(thread, reference): piece for reference, piece in pieces.items()}, **keep})
    rows.put({**put, **(_moved_head(rows, newest) if newest is not None else {})})
    return edition


def open_thread(rows: Rows, thread: str, *, alone: bool) -> bytes:
    """The edition of a thread, which nobody changes until the transaction ends; a new thread gets one."""
    key = key_of(THREAD, thread)
    rows.hold(key, alone=alone)
    found = rows.get([key])
    if not found:
        rows.keep({key: new_edition()})
        rows.hold(key, alone=alone)
        found = rows.get([key])
    return found[key]


def new_edition() -> bytes:
    """One that no thread had before."""
    return clock.new_token(_EDITION_CHARACTERS).encode()


def edition_of(rows: Rows, thread: str) -> bytes:
    """The edition of a thread; nothing where there is no such thread."""
    key = key_of(THREAD, thread)
    return rows.get([key]).get(key, b"")


def find(rows: Rows, place: Place) -> Found | None:
    """The checkpoint at a place, the newest of the namespace where no id is given."""
    named = rows.get([place.head]).get(place.head, b"").decode()
    if not place.checkpoint_id:
        if not named:
            _refuse_headless(rows, place)
            return None
        place = msgspec.structs.replace(place, checkpoint_id=named)
    stored = rows.get([place.row]).get(place.row)
    if stored is not None:
        return Found(place, decoded_checkpoint(stored, place), writes_of(rows, place))
    if place.checkpoint_id == named:
        raise CheckpointCorrupt(
            f"The newest {place} is missing.",
            safe="nothing was changed; the checkpoints before it can be read.",
            hint="perdure verify; put back a copy of the store, or go on from an older checkpoint_id",
        )
    return None


def writes_of(rows: Rows, place: Place) -> list[Write]:
    """The writes of a checkpoint."""
    found = (_write(key, value) for key, value in rows.scan(place.writes))
    return sorted(found, key=lambda write: (write.task_path, write.task_id, write.number))


def page(rows: Rows, *, thread: str | None, namespace: str | None, before: str) -> list[Place]:
    """Where checkpoints are, newest first: some of one namespace, or all of one thread or of all threads."""
    if thread is not None and namespace is not None:
        last = key_of(CHECKPOINT, thread, namespace, before) if before else b""
        keys = rows.newest(key_of(CHECKPOINT, thread, namespace), before=last, limit=_PAGE)
        return [place_of(key) for key in keys]
    prefix = CHECKPOINT if thread is None else key_of(CHECKPOINT, thread)
    found = [place_of(key) for key in rows.newest(prefix)]
    meant = [
        place
        for place in found
        if namespace in (None, place.namespace) and (not before or place.checkpoint_id < before)
    ]
    return sorted(meant, key=lambda place: place.checkpoint_id, reverse=True)


def trace(rows: Rows, place: Place, channels: Sequence[str]) -> tuple[dict[str, list[Write]], dict[str, bytes]]:
    """What the ancestors of a checkpoint wrote to channels, oldest first, up to one that holds a value; and that value.

    An ancestor that is missing would make another value of it without a word, so it is an error.
    """
    written: dict[str, list[Write]] = {channel: [] for channel in channels}
    seeds: dict[str, bytes] = {}
    found = find(rows, place)
    while found is not None and found.row.parent and len(seeds) < len(written):
        found = _ancestor(rows, found)
        for write in reversed(found.writes):
            if write.row.channel in written and write.row.channel not in seeds:
                written[write.row.channel].append(write)
        seeds |= {
            name: found.row.channels[name] for name in (written.keys() - seeds.keys()) & found.row.channels.keys()
        }
    return {channel: writes[::-1] for channel, writes in written.items()}, seeds


def _ancestor(rows: Rows, found: Found) -> Found:
    above = find(rows, Place(found.place.thread, found.place.namespace, found.row.parent))
    if above is None:
        raise CheckpointCorrupt(
            f"The {found.place} is rebuilt from {found.row.parent}, which is missing.",
            safe="nothing was changed; checkpoints that hold their values whole can be read.",
            hint="put back a copy of the store, or go on from another checkpoint_id",
        )
    return above


def read_pieces(rows: Rows, thread: str, references: Iterable[bytes]) -> dict[bytes, bytes]:
    """Every piece that these values consist of, as stored, by reference; one that is missing is left out."""
    stored: dict[bytes, bytes] = {}
    values, nodes = kept_among(references)
    while wanted := (values | nodes) - stored.keys():
        got = _pieces(rows, thread, wanted)
        stored |= got
        below = [named for node in nodes & got.keys() for named in named_by(unpacked(node, got[node]))]
        values, nodes = kept_among(below)
    return stored


def reachable(rows: Rows, thread: str, references: Iterable[bytes]) -> set[bytes]:
    """The references to all pieces that these values consist of; only nodes are read for it."""
    values, nodes = kept_among(references)
    reached = values | nodes
    while nodes:
        got = _pieces(rows, thread, nodes)
        values, nodes = kept_among(named for node in nodes for named in named_by(unpacked(node, got.get(node))))
        nodes -= reached
        reached |= values | nodes
    return reached


def _pieces(rows: Rows, thread: str, references: Iterable[bytes]) -> dict[bytes, bytes]:
    prefix = key_of(PIECE, thread)
    found = rows.get([prefix + reference for reference in references])
    return {key[len(prefix) :]: value for key, value in found.items()}


def piece_key(thread: str, reference: bytes) -> bytes:
    """The key of a piece."""
    return key_of(PIECE, thread) + reference


def write_key(place: Place, task_id: str, number: int) -> bytes:
    """The key of a write."""
    return key_of(WRITE, place.thread, place.namespace, place.checkpoint_id, task_id, str(number))


def place_of(key: bytes) -> Place:
    """The checkpoint that the key of a checkpoint or of a write names."""
    return Place(*names_of(key)[:3])


def decoded_checkpoint(value: bytes, place: Place) -> CheckpointRow:
    """A checkpoint of a format that this perdure can read."""
    row = _decode_checkpoint(value)
    if row.format > FORMAT:
        raise FormatTooNew(
            f"The {place} was written by a newer perdure.",
            safe="nothing was changed.",
            hint="pip install --upgrade perdure",
        )
    return row


def decoded_write(value: bytes) -> WriteRow:
    """A write as it is kept."""
    return _decode_write(value)


def _write(key: bytes, value: bytes) -> Write:
    *_, task_id, number = names_of(key)
    row = _decode_write(value)
    return Write(row.task_path, task_id, int(number), row)


def _moved_head(rows: Rows, place: Place) -> dict[bytes, bytes]:
    written = place.checkpoint_id.encode("utf-8", "surrogatepass")
    return {place.head: max(written, rows.get([place.head]).get(place.head, b""))}


def _refuse_headless(rows: Rows, place: Place) -> None:
    if rows.newest(key_of(CHECKPOINT, place.thread, place.namespace), limit=1):
        raise CheckpointCorrupt(
            f"Which checkpoint of thread {place.thread!r} is the newest is not on record any more.",
            safe="nothing was changed; each checkpoint can be read by its id.",
            hint="perdure verify; put back a copy of the store, or go on from a checkpoint_id",
        )
