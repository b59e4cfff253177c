"""Bug: every answer to a question is accepted, not only the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from perdure.records import Mail
from perdure.store.memory import MemoryStore
from perdure.store.postgres.store import PostgresStore
from perdure.store.sqlite.store import SqliteStore
from tests.planted.soil import replace


def accepting(right: Callable[..., Mail]) -> Callable[..., Mail]:
    def post(self: Any, mail: Mail, *, once: bool = False, heard: bool = False) -> Mail:
        return right(self, mail, once=False, heard=heard)

    return post


for store in (MemoryStore, SqliteStore, PostgresStore):
    replace(store, "post", accepting(vars(store)["post"]))
