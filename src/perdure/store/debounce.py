"""Starts of one key that become one run: what a start means, given the run that the key leads to. Pure; stores write.

A run that nobody has taken is its row and its first record. The newest start replaces both and keeps id, name and place
in the journal's chain, so that everybody who was given the id has the run that is executed.
"""

from __future__ import annotations

from typing import Final

import msgspec
from msgspec import Struct

from perdure.records import NO_DIGEST, Debounce, Record, Run, RunState, extended, is_whole_row, sealed_debounce
from perdure.store.chain import is_whole

FORGET_SECONDS: Final = 24 * 3600.0
"""A key whose newest start is so old, and whose run was taken, is forgotten."""

FORGET_AT_ONCE: Final = 10
_STARTS: Final = 50
"""So many starts are remembered under a key: one whose answer was lost, and that is sent again, finds its run."""


class Start(Struct, frozen=True):
    """One start: the run as it would be alone, and for how long it waits for another."""

    run: Run
    first: Record
    key: str
    quiet_seconds: float
    most_seconds: float


class Decided(Struct, frozen=True):
    """What a store writes in one transaction; where `replaces`, the row and the first record of a run that is there."""

    run: Run
    first: Record
    debounce: Debounce
    replaces: bool


def landed(known: Debounce | None, start: Start) -> str:
    """The id of the run that this very start became, if it was seen before; else empty."""
    return _starts(known).get(start.run.run_id, "")


def is_untaken(run: Run) -> bool:
    """Whether nobody was ever given the run: it is queued and whole, and its journal is its first record."""
    is_first = (run.epoch, run.length, run.holder) == (0, 1, "")
    return run.state == RunState.QUEUED and is_first and not (run.reason or run.detail) and is_whole(run)


def decide(known: Debounce | None, before: Run | None, start: Start, *, now: float) -> Decided:
    """What a start means; `before` is the run of its key if nobody has taken it nor written to it, else None."""
    if known is None or before is None or not is_whole_row(known):
        run, first = _redrafted(start, start.run, wake_at=now + start.quiet_seconds)
        return Decided(run, first, _noted(start, known, run.run_id, first_at=now, now=now), replaces=False)
    latest_at = known.first_at + start.most_seconds
    bare = msgspec.structs.replace(
        start.run, run_id=before.run_id, name=before.name, created_at=before.created_at, turn=0
    )
    if not before.wake_at and latest_at <= now:  # it may not wait any longer: it keeps its place in the queue
        place = {field: getattr(before, field) for field in ("queue", "priority", "tenant", "turn", "version")}
        bare = msgspec.structs.replace(bare, **place)
        run, first = _redrafted(start, bare, wake_at=0.0)
    else:
        run, first = _redrafted(start, bare, wake_at=min(now + start.quiet_seconds, latest_at))
    return Decided(run, first, _noted(start, known, run.run_id, first_at=known.first_at, now=now), replaces=True)


def _redrafted(start: Start, bare: Run, *, wake_at: float) -> tuple[Run, Record]:
    """The run and its first record, chained under the id that it has."""
    empty = msgspec.structs.replace(bare, length=0, head=NO_DIGEST, wake_at=wake_at)
    first = msgspec.structs.replace(start.first)
    run, records = extended(empty, at=start.first.at, records=(first,))
    return run, records[0]


def _noted(start: Start, known: Debounce | None, run_id: str, *, first_at: float, now: float) -> Debounce:
    starts = _starts(known) | {start.run.run_id: run_id}
    newest = dict(list(starts.items())[-_STARTS:])
    written = msgspec.json.encode(newest).decode()
    return sealed_debounce(Debounce(start.run.agent, start.key, run_id, first_at, now, written))


def _starts(known: Debounce | None) -> dict[str, str]:
    if known is None or not is_whole_row(known):
        return {}
    return msgspec.json.decode(known.starts, type=dict[str, str])
