"""`PerdureSaver`: what LangGraph calls to keep and to read checkpoints, sync and async."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
from langgraph.checkpoint.base import WRITES_IDX_MAP, BaseCheckpointSaver, CheckpointTuple, get_checkpoint_metadata

from perdure import clock
from perdure.adapters.langgraph import rows as kept_rows
from perdure.adapters.langgraph.archive import Archive, Change, config_of
from perdure.adapters.langgraph.rows import CheckpointRow, Place, WriteRow
from perdure.errors import PerdureError, UnstorableValue, UsageError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata, DeltaChannelHistory
    from langgraph.checkpoint.serde.base import SerializerProtocol

    from perdure.adapters.langgraph.pieces import Sealer

_STRATEGIES: Final = ("keep_latest", "delete")


class PerdureSaver(BaseCheckpointSaver[Any]):
    """Keeps the checkpoints of LangGraph graphs in a perdure store: synced, verified, and in the room of what changed.

    `store` is a path, `sqlite:PATH`, `postgresql://…` or `memory:`; without one, the store that the settings name. It
    is opened when it is first used. Any number of threads, processes and event loops may use the same store.
    """

    def __init__(self, store: str | os.PathLike[str] | None = None, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._archive = Archive(None if store is None else os.fspath(store))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Let go of the store; what was acknowledged stays."""
        self._archive.close()

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002 - values are kept by what they are, not by their version
    ) -> RunnableConfig:
        """Keep a checkpoint; when this returns it is synced, with everything that it names."""
        above = _place(config)
        place = msgspec.structs.replace(above, checkpoint_id=checkpoint["id"])
        body = {name: value for name, value in checkpoint.items() if name != "channel_values"}

        def write(sealer: Sealer) -> Change:
            row = CheckpointRow(
                format=kept_rows.FORMAT,
                parent=above.checkpoint_id,
                body=self.serde.dumps_typed(body),
                metadata=self.serde.dumps_typed(get_checkpoint_metadata(config, metadata)),
                channels={name: _sealed(sealer, name, value) for name, value in checkpoint["channel_values"].items()},
            )
            return Change(put={place.row: kept_rows.encode(row)}, newest=place)

        self._archive.save(place.thread, write, serde=self.serde)
        return config_of(place)

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """Keep what a task wrote, all of it or nothing; it is seen through its checkpoint alone."""
        place = _place(config)
        if not place.checkpoint_id:
            raise _incomplete("checkpoint_id")

        def write(sealer: Sealer) -> Change:
            change = Change()
            for position, (channel, value) in enumerate(writes):
                number = WRITES_IDX_MAP.get(channel, position)
                row = kept_rows.encode(WriteRow(channel, _sealed(sealer, channel, value), task_path))
                into = change.put if number < 0 else change.keep
                into[kept_rows.write_key(place, task_id, number)] = row
            return change

        self._archive.save(place.thread, write, serde=self.serde)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """The checkpoint that a config names, or the newest of its thread and namespace; None where there is none."""
        return self._archive.load(_place(config), serde=self.serde)

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - as LangGraph names it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """The checkpoints that match, newest first."""
        left = limit
        for place in self._places(config, before):
            if left is not None and left <= 0:
                return
            found = self._archive.load(place, serde=self.serde, matching=filter)
            if found is not None:
                left = None if left is None else left - 1
                yield found

    def delete_thread(self, thread_id: str) -> None:
        """Remove every checkpoint and write of a thread."""
        self._archive.delete_thread(str(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Remove the checkpoints of runs; one that delta channels of others are rebuilt from stays."""
        if run_ids:
            self._archive.delete_runs(set(run_ids), serde=self.serde)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copy every checkpoint and write of a thread to another one."""
        self._archive.copy_thread(str(source_thread_id), str(target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keep the newest checkpoint of every namespace and what it is rebuilt from, or delete everything."""
        if strategy not in _STRATEGIES:
            raise UsageError(
                f"prune: {strategy!r} is no strategy.", safe="nothing was removed.", hint="keep_latest or delete"
            )
        for thread in map(str, thread_ids):
            if strategy == "delete":
                self._archive.delete_thread(thread)
            else:
                self._archive.prune(thread, serde=self.serde)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """What the ancestors of a checkpoint wrote to delta channels since one of them held their value."""
        return self._archive.history(_place(config), list(channels), serde=self.serde) if channels else {}

    def get_next_version(self, current: Any, channel: None) -> Any:
        """The next version of a channel: a number, or a text where a thread from another saver has those."""
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}.{clock.new_fraction():016}"
        return super().get_next_version(current, channel)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """`put`, without holding up the event loop."""
        return await asyncio.to_thread(self.put, config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        """`put_writes`, without holding up the event loop."""
        await asyncio.to_thread(self.put_writes, config, writes, task_id, task_path)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """`get_tuple`, without holding up the event loop."""
        return await asyncio.to_thread(self.get_tuple, config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - as LangGraph names it
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """`list`, without holding up the event loop."""
        found = self.list(config, filter=filter, before=before, limit=limit)
        while (one := await asyncio.to_thread(next, found, None)) is not None:
            yield one

    async def adelete_thread(self, thread_id: str) -> None:
        """`delete_thread`, without holding up the event loop."""
        await asyncio.to_thread(self.delete_thread, thread_id)

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """`delete_for_runs`, without holding up the event loop."""
        await asyncio.to_thread(self.delete_for_runs, run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """`copy_thread`, without holding up the event loop."""
        await asyncio.to_thread(self.copy_thread, source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """`prune`, without holding up the event loop."""
        await asyncio.to_thread(self.prune, thread_ids, strategy=strategy)

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """`get_delta_channel_history`, without holding up the event loop."""
        return await asyncio.to_thread(self.get_delta_channel_history, config=config, channels=channels)

    def _places(self, config: RunnableConfig | None, before: RunnableConfig | None) -> Iterator[Place]:
        """Where the checkpoints are that a config means, newest first."""
        meant = _place(config) if config else None
        namespace = config["configurable"].get("checkpoint_ns") if config else None
        for place in self._archive.places(
            thread=meant.thread if meant else None, namespace=namespace, before=_before(before)
        ):
            if meant is None or meant.checkpoint_id in ("", place.checkpoint_id):
                yield place


def _place(config: RunnableConfig) -> Place:
    """The checkpoint that a config names, or whose child it asks for."""
    given = config.get("configurable") or {}
    if given.get("thread_id") is None:
        raise _incomplete("thread_id")
    return Place(str(given["thread_id"]), str(given.get("checkpoint_ns") or ""), str(given.get("checkpoint_id") or ""))


def _sealed(sealer: Sealer, channel: str, value: Any) -> bytes:
    try:
        return sealer.seal(value)
    except PerdureError:
        raise
    except Exception as error:
        raise UnstorableValue(
            f"Channel {channel!r} cannot be saved: {type(error).__name__}: {error}",
            safe="every checkpoint before is saved.",
            hint="keep plain data in the state, or give PerdureSaver a serde that can store this value",
        ) from error


def _before(config: RunnableConfig | None) -> str:
    return str(config["configurable"].get("checkpoint_id") or "") if config else ""


def _incomplete(name: str) -> UsageError:
    return UsageError(
        f"The config names no {name}.",
        safe="nothing was changed.",
        hint=f'pass config={{"configurable": {{"{name}": …}}}} to the graph',
    )
