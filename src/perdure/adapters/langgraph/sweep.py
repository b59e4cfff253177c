"""Removing checkpoints and copying threads: each thread in one transaction, with the pieces that nobody names any more.

A checkpoint that a kept one is rebuilt from stays, whatever was asked: the value of a delta channel is the writes since
the last checkpoint that holds it whole, and without one of these it would silently be another value.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure.adapters.langgraph import rows as kept_rows
from perdure.adapters.langgraph.rows import (
    CHECKPOINT,
    HEAD,
    PIECE,
    THREAD,
    WRITE,
    CheckpointRow,
    Place,
    decoded_checkpoint,
    decoded_write,
    new_edition,
    open_thread,
    piece_key,
    place_of,
    reachable,
)
from perdure.store.cabinet import key_of, names_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from perdure.store.cabinet import Rows

    Metadata = Callable[[CheckpointRow], dict[str, Any]]

_DELTA: Final = "counters_since_delta_snapshot"
"""Where LangGraph's metadata names the delta channels of a checkpoint."""


def delete_thread(rows: Rows, thread: str) -> None:
    """Remove everything of a thread."""
    rows.hold(key_of(THREAD, thread), alone=True)
    for kind in (CHECKPOINT, HEAD, WRITE, PIECE, THREAD):
        rows.clear(key_of(kind, thread))


def threads(rows: Rows) -> list[str]:
    """Every thread there is."""
    return [names_of(key)[0] for key, _ in rows.scan(THREAD)]


def all_but_newest(found: dict[Place, CheckpointRow]) -> set[Place]:
    """The checkpoints that are not the newest of their namespace."""
    newest: dict[str, Place] = {}
    for place in sorted(found):
        newest[place.namespace] = place
    return found.keys() - set(newest.values())


def checkpoints(rows: Rows, thread: str) -> dict[Place, CheckpointRow]:
    """Every checkpoint of a thread."""
    stored = ((place_of(key), value) for key, value in rows.scan(key_of(CHECKPOINT, thread)))
    return {place: decoded_checkpoint(value, place) for place, value in stored}


def sweep(
    rows: Rows, thread: str, *, which: Callable[[dict[Place, CheckpointRow]], set[Place]], metadata: Metadata
) -> None:
    """Remove the checkpoints that `which` picks, their writes, and the pieces that were theirs alone."""
    if not kept_rows.edition_of(rows, thread):
        return
    open_thread(rows, thread, alone=True)
    found = checkpoints(rows, thread)
    doomed = which(found)
    kept = found.keys() - doomed
    kept |= _needed(found, kept, metadata)
    if len(kept) == len(found):
        return
    rows.put({key_of(THREAD, thread): new_edition()})
    _move_heads(rows, found, kept)
    rows.remove([place.row for place in found.keys() - kept])
    references = _sweep_writes(rows, thread, found, kept)
    references += [reference for place in kept for reference in found[place].channels.values()]
    _sweep_pieces(rows, thread, references)


def copy_thread(rows: Rows, source: str, target: str) -> None:
    """Copy every checkpoint, write and piece, under the same ids."""
    if source == target or not kept_rows.edition_of(rows, source):
        return
    open_thread(rows, source, alone=False)
    open_thread(rows, target, alone=True)
    for kind in (PIECE, WRITE, CHECKPOINT, HEAD):
        before, after = key_of(kind, source), key_of(kind, target)
        copied = {after + key[len(before) :]: value for key, value in rows.scan(before)}
        if kind == HEAD:
            there = rows.get(copied)
            copied = {key: max(value, there.get(key, b"")) for key, value in copied.items()}
        rows.put(copied)


def _needed(found: dict[Place, CheckpointRow], kept: Iterable[Place], metadata: Metadata) -> set[Place]:
    """The ancestors without which delta channels of kept checkpoints cannot be rebuilt."""
    needed: set[Place] = set()
    for place in kept:
        row = found[place]
        missing = set(metadata(row).get(_DELTA) or ()) - row.channels.keys()
        while missing and row.parent:
            place = Place(place.thread, place.namespace, row.parent)  # noqa: PLW2901 - the next ancestor
            if place not in found:
                break
            needed.add(place)
            row = found[place]
            missing -= row.channels.keys()
    return needed


def _move_heads(rows: Rows, found: dict[Place, CheckpointRow], kept: set[Place]) -> None:
    newest = {place.head: place.checkpoint_id.encode("utf-8", "surrogatepass") for place in sorted(kept)}
    rows.remove({place.head for place in found} - newest.keys())
    rows.put(newest)


def _sweep_writes(rows: Rows, thread: str, found: dict[Place, CheckpointRow], kept: set[Place]) -> list[bytes]:
    """Remove the writes of what goes, and of what never came; answers with what the others name.

    A write may be older than its checkpoint, which is then newer than all there are.
    """
    newest: dict[str, str] = {}
    for place in sorted(found):
        newest[place.namespace] = place.checkpoint_id
    gone: list[bytes] = []
    references: list[bytes] = []
    for key, value in rows.scan(key_of(WRITE, thread)):
        place = place_of(key)
        if place in kept or place.checkpoint_id > newest.get(place.namespace, ""):
            references.append(decoded_write(value).reference)
        else:
            gone.append(key)
    rows.remove(gone)
    return references


def _sweep_pieces(rows: Rows, thread: str, references: Iterable[bytes]) -> None:
    reached = {piece_key(thread, reference) for reference in reachable(rows, thread, references)}
    rows.remove([key for key in rows.newest(key_of(PIECE, thread)) if key not in reached])
