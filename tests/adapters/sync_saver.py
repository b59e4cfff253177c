"""A saver for LangGraph's suite, which calls async methods alone."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from langgraph.checkpoint.base import CheckpointTuple

from perdure.adapters.langgraph import PerdureSaver


class BySyncMethods(PerdureSaver):
    """Its async methods are the sync ones."""

    async def aput(self, *arguments: Any) -> Any:
        return self.put(*arguments)

    async def aput_writes(self, *arguments: Any, **named: Any) -> None:
        self.put_writes(*arguments, **named)

    async def aget_tuple(self, *arguments: Any) -> Any:
        return self.get_tuple(*arguments)

    async def alist(self, *arguments: Any, **named: Any) -> AsyncIterator[CheckpointTuple]:
        for found in self.list(*arguments, **named):
            yield found

    async def adelete_thread(self, thread_id: str) -> None:
        self.delete_thread(thread_id)

    async def adelete_for_runs(self, run_ids: Any) -> None:
        self.delete_for_runs(run_ids)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self.copy_thread(source_thread_id, target_thread_id)

    async def aprune(self, thread_ids: Any, *, strategy: str = "keep_latest") -> None:
        self.prune(thread_ids, strategy=strategy)
