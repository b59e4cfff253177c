"""LangGraph's own suite for savers, in every store, by the async and by the sync methods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import pytest
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import Capability

from perdure.adapters.langgraph import PerdureSaver


class BySyncMethods(PerdureSaver):
    """The suite calls async methods alone; here they are the sync ones."""

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


@pytest.mark.parametrize("kind", [PerdureSaver, BySyncMethods])
def test_the_saver_passes_the_conformance_suite_in_full(kind: type[PerdureSaver], location: str) -> None:
    @checkpointer_test(name=f"{kind.__name__} in {location}")
    async def made() -> AsyncGenerator[PerdureSaver, None]:
        async with kind(location) as opened:
            yield opened

    report = asyncio.run(validate(made))
    assert {name: result.failures for name, result in report.results.items() if not result.passed} == {}
    assert set(report.results) == {capability.value for capability in Capability}
    assert all(result.tests_skipped == 0 for result in report.results.values())
