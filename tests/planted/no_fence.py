"""Bug: a write goes wherever the journal ends now, whoever holds the run: no epoch and no length is compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from perdure.records import Append, Run, extended
from perdure.store.memory import MemoryStore
from perdure.store.postgres.store import PostgresStore
from perdure.store.protocol import Outcome
from perdure.store.sqlite.store import SqliteStore
from tests.planted.soil import replace


def moved(append: Append, current: Run) -> Append:
    """The same records at the end of the journal as it is now, in the name of whoever holds the run now."""
    records = tuple(
        msgspec.structs.replace(record, seq=current.length + number, epoch=current.epoch)
        for number, record in enumerate(append.records)
    )
    wanted = append.run
    after, chained = extended(
        current,
        at=wanted.updated_at,
        records=records,
        state=wanted.state,
        reason=wanted.reason,
        detail=wanted.detail,
        steps=wanted.steps,
    )
    return msgspec.structs.replace(append, run=after, records=chained)


def unfenced(fenced: Callable[..., list[Outcome]]) -> Callable[..., list[Outcome]]:
    def append_all(self: Any, batch: Sequence[Append], *, power: bool) -> list[Outcome]:
        rows: dict[str, Run] = {}
        written = []
        for append in batch:
            current = rows.get(append.run.run_id) or self.read_run(append.run.run_id)
            place = (append.run.epoch, append.run.length - len(append.records))
            fits = current is None or (current.epoch, current.length) == place
            written.append(append if fits else moved(append, current))
            rows[append.run.run_id] = written[-1].run
        return fenced(self, written, power=power)

    return append_all


for store in (MemoryStore, SqliteStore, PostgresStore):
    replace(store, "append_all", unfenced(vars(store)["append_all"]))
