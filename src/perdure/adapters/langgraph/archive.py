"""The threads of one store, open: saving with what is known to be kept already, and reading with distrust."""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from langgraph.checkpoint.base import CheckpointTuple
from msgspec import Struct, field

from perdure.adapters.langgraph import rows as kept_rows
from perdure.adapters.langgraph import sweep
from perdure.adapters.langgraph.likeness import Likenesses
from perdure.adapters.langgraph.pieces import Opener, Sealer
from perdure.adapters.langgraph.rows import CheckpointRow, Found, Place, Write
from perdure.adapters.langgraph.stored import Stored
from perdure.errors import StoreUnavailable
from perdure.settings import current_settings
from perdure.store import open_cabinet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import DeltaChannelHistory
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from perdure.store.cabinet import Cabinet, Rows


class Change(Struct):
    """What names the pieces that were sealed for it: rows to keep or to put, and the checkpoint among them."""

    keep: dict[bytes, bytes] = field(default_factory=dict)
    put: dict[bytes, bytes] = field(default_factory=dict)
    newest: Place | None = None


class Archive:
    """Opened when it is first used, so that a process may fork before; safe to use from any thread."""

    def __init__(self, location: str | None) -> None:
        self._location = location
        self._opening = threading.Lock()
        self._opened: Cabinet | None = None
        self._is_closed = False
        self._power = True
        self._likenesses = Likenesses()
        self._stored = Stored()

    def save(self, thread: str, build: Callable[[Sealer], Change], *, serde: SerializerProtocol) -> None:
        """Write a change with the pieces it needs, in one transaction.

        Pieces that were known to be kept may be gone with an older edition of the thread: then all are sent.
        """
        edition = b""
        while not edition:
            expected, kept = self._stored.of(thread)
            sealer = Sealer(serde, self._likenesses, kept)
            change = build(sealer)
            edition = self._cabinet.write(
                partial(
                    kept_rows.save,
                    thread=thread,
                    expected=expected,
                    pieces=sealer.new,
                    keep=change.keep,
                    put=change.put,
                    newest=change.newest,
                ),
                power=self._power,
            )
            if not edition:
                self._stored.forget(thread)
        self._stored.add(thread, edition, sealer.new)

    def load(
        self, place: Place, *, serde: SerializerProtocol, matching: dict[str, Any] | None = None
    ) -> CheckpointTuple | None:
        """The checkpoint at a place, if its metadata match; None where there is none."""

        def read(rows: Rows) -> tuple[Found, dict[bytes, bytes], bytes] | None:
            found = kept_rows.find(rows, place)
            if found is None or not _matches(metadata_of(found.row, serde), matching):
                return None
            pieces = kept_rows.read_pieces(rows, place.thread, found.references())
            return found, pieces, kept_rows.edition_of(rows, place.thread)

        answer = self._cabinet.read(read)
        if answer is None:
            return None
        found, pieces, edition = answer
        rebuilt = _rebuilt(found, self._opener(found.place, pieces, serde=serde), serde=serde)
        self._stored.add(place.thread, edition, pieces)
        return rebuilt

    def places(self, *, thread: str | None, namespace: str | None, before: str) -> Iterator[Place]:
        """Where checkpoints are, newest first, a page at a time."""
        while page := self._cabinet.read(partial(kept_rows.page, thread=thread, namespace=namespace, before=before)):
            yield from page
            if thread is None or namespace is None:
                return
            before = page[-1].checkpoint_id

    def history(
        self, place: Place, channels: Sequence[str], *, serde: SerializerProtocol
    ) -> Mapping[str, DeltaChannelHistory]:
        """For each channel the value at the nearest ancestor that holds one, and what was written to it since."""

        def read(rows: Rows) -> tuple[dict[str, list[Write]], dict[str, bytes], dict[bytes, bytes]]:
            written, seeds = kept_rows.trace(rows, place, channels)
            references = [write.row.reference for writes in written.values() for write in writes]
            return written, seeds, kept_rows.read_pieces(rows, place.thread, [*references, *seeds.values()])

        written, seeds, pieces = self._cabinet.read(read)
        opener = self._opener(place, pieces, serde=serde)
        answer: dict[str, DeltaChannelHistory] = {}
        for channel, writes in written.items():
            what = f"What was written to channel {channel!r}"
            opened = [(write.task_id, channel, opener.open(write.row.reference, what=what)) for write in writes]
            answer[channel] = {"writes": opened}
            if channel in seeds:
                answer[channel]["seed"] = opener.open(seeds[channel], what=f"Channel {channel!r}")
        return answer

    def delete_thread(self, thread: str) -> None:
        """Remove everything of a thread."""
        self._cabinet.write(lambda rows: sweep.delete_thread(rows, thread))

    def copy_thread(self, source: str, target: str) -> None:
        """Copy everything of a thread."""
        self._cabinet.write(lambda rows: sweep.copy_thread(rows, source, target))

    def prune(self, thread: str, *, serde: SerializerProtocol) -> None:
        """Remove all but the newest checkpoint of each namespace of a thread."""
        self._sweep(thread, sweep.all_but_newest, serde=serde)

    def delete_runs(self, run_ids: set[str], *, serde: SerializerProtocol) -> None:
        """Remove the checkpoints of runs, whatever their threads."""

        def meant(found: dict[Place, CheckpointRow]) -> set[Place]:
            return {place for place, row in found.items() if metadata_of(row, serde).get("run_id") in run_ids}

        for thread in self._cabinet.read(sweep.threads):
            if meant(self._cabinet.read(partial(sweep.checkpoints, thread=thread))):
                self._sweep(thread, meant, serde=serde)

    def close(self) -> None:
        """Let go of the store."""
        with self._opening:
            self._is_closed = True
            if self._opened is not None:
                self._opened.close()

    @property
    def _cabinet(self) -> Cabinet:
        if self._opened is not None and not self._is_closed:
            return self._opened
        with self._opening:
            if self._is_closed:
                raise StoreUnavailable(
                    "The saver was closed.", safe="what it acknowledged stands.", hint="make a new PerdureSaver"
                )
            if self._opened is None:
                settings = current_settings()
                location = self._location or settings.store
                self._power = settings.durability == "power"
                self._opened = open_cabinet(msgspec.structs.replace(settings, store=location))
            return self._opened

    def _sweep(
        self,
        thread: str,
        which: Callable[[dict[Place, CheckpointRow]], set[Place]],
        *,
        serde: SerializerProtocol,
    ) -> None:
        self._cabinet.write(
            lambda rows: sweep.sweep(rows, thread, which=which, metadata=lambda row: metadata_of(row, serde))
        )

    def _opener(self, place: Place, pieces: Mapping[bytes, bytes], *, serde: SerializerProtocol) -> Opener:
        def met(value: Any, reference: bytes) -> None:
            self._likenesses.remember(value, reference)

        return Opener(serde, pieces, where=str(place), met=met)


def metadata_of(row: CheckpointRow, serde: SerializerProtocol) -> dict[str, Any]:
    """The metadata of a checkpoint."""
    metadata: dict[str, Any] = serde.loads_typed(row.metadata)
    return metadata


def config_of(place: Place) -> RunnableConfig:
    """How LangGraph names a checkpoint."""
    return {
        "configurable": {
            "thread_id": place.thread,
            "checkpoint_ns": place.namespace,
            "checkpoint_id": place.checkpoint_id,
        }
    }


def _matches(metadata: dict[str, Any], matching: dict[str, Any] | None) -> bool:
    return all(metadata.get(name) == value for name, value in (matching or {}).items())


def _rebuilt(found: Found, opener: Opener, *, serde: SerializerProtocol) -> CheckpointTuple:
    """Everything of a checkpoint as LangGraph gave it to us."""
    place, row = found.place, found.row
    values = {name: opener.open(reference, what=f"Channel {name!r}") for name, reference in row.channels.items()}
    return CheckpointTuple(
        config=config_of(place),
        checkpoint={**serde.loads_typed(row.body), "channel_values": values},  # type: ignore[typeddict-item]
        metadata=metadata_of(row, serde),  # type: ignore[arg-type]
        parent_config=config_of(Place(place.thread, place.namespace, row.parent)) if row.parent else None,
        pending_writes=[
            (
                write.task_id,
                write.row.channel,
                opener.open(write.row.reference, what=f"A write to channel {write.row.channel!r}"),
            )
            for write in found.writes
        ],
    )
