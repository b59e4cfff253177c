"""LangGraph's own suite for savers, in every store, by the async and by the sync methods."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from perdure.adapters.langgraph import PerdureSaver


@pytest.mark.parametrize("kind", ["PerdureSaver", "BySyncMethods"])
def test_the_saver_passes_the_conformance_suite_in_full(kind: str, location: str) -> None:
    from langgraph.checkpoint.conformance import checkpointer_test, validate
    from langgraph.checkpoint.conformance.capabilities import Capability

    from tests.adapters import sync_saver

    made_of: type[PerdureSaver] = getattr(sync_saver, kind)

    @checkpointer_test(name=f"{kind} in {location}")
    async def made() -> AsyncGenerator[PerdureSaver, None]:
        async with made_of(location) as opened:
            yield opened

    report = asyncio.run(validate(made))
    assert {name: result.failures for name, result in report.results.items() if not result.passed} == {}
    assert set(report.results) == {capability.value for capability in Capability}
    assert all(result.tests_skipped == 0 for result in report.results.values())
