"""Bug: what a run consumes from its mailbox is not marked as taken in the same transaction, so it is consumed again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perdure.records import Append
from perdure.store.memory import MemoryStore
from perdure.store.postgres.store import PostgresStore
from perdure.store.protocol import Outcome
from perdure.store.sqlite.store import SqliteStore
from tests.planted.soil import replace


def untaken(right: Callable[..., list[Outcome]]) -> Callable[..., list[Outcome]]:
    def append_all(self: Any, batch: Sequence[Append], *, power: bool) -> list[Outcome]:
        return right(self, [msgspec.structs.replace(append, taken=()) for append in batch], power=power)

    return append_all


for store in (MemoryStore, SqliteStore, PostgresStore):
    replace(store, "append_all", untaken(vars(store)["append_all"]))
