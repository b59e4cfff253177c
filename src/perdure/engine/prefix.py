"""The beginning of a journal: where its N-th completed step ends it, and what the working state was there. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.bodies import Change, Done, Started, read_body
from perdure.errors import UsageError
from perdure.records import COMPLETIONS, Kind, Record
from perdure.telemetry.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from msgspec import Raw


def steps_in(records: Sequence[Record]) -> int:
    """How many steps these records complete."""
    return sum(map(_change, records))


def cut(records: Sequence[Record], at_step: int, *, of: str) -> int:
    """How many records there were right after the N-th completed step of the run with this name (0: as accepted)."""
    steps, found = 0, 1 if at_step == 0 else 0
    for position, record in enumerate(records, 1):
        steps += _change(record)
        if at_step and steps == at_step and completes(record):
            found = position
    if not found:
        known = steps_in(records)
        raise UsageError(
            f"Run {of} has not completed {counted(at_step, 'step')}: it has completed {known}.",
            safe="nothing was changed.",
            hint=f"--at 0 to --at {known}",
        )
    return found


def completes(record: Record) -> bool:
    """Whether a record completes a call: with a result, a failure, or the verdict that it happened."""
    return record.kind in COMPLETIONS or (record.kind == Kind.VERDICT and read_body(record).outcome == "happened")


def working_state(records: Sequence[Record]) -> dict[str, Raw]:
    """The agent's working state, as the recorded changes make it, and those that a fork was given."""
    given, inherited = _given(records)
    state = dict(given.get("", {}))
    for record in records:
        if record.kind in COMPLETIONS:
            done: Done = read_body(record)
            state.update(done.state or {})
            for name in done.dropped:
                state.pop(name, None)
        if record.seq < inherited and record.key in given and completes(record):
            state.update(given[record.key])
    return state


def merged(changes: Sequence[Change]) -> dict[str, dict[str, Raw]]:
    """What is set, by the key of the call after which it is."""
    found: dict[str, dict[str, Raw]] = {}
    for change in changes:
        found.setdefault(change.after, {}).update(change.state)
    return found


def _given(records: Sequence[Record]) -> tuple[dict[str, dict[str, Raw]], int]:
    started: Started | None = read_body(records[0]) if records else None
    origin = started.forked_from if isinstance(started, Started) else None
    return (merged(origin.changes), origin.records) if origin is not None else ({}, 0)


def _change(record: Record) -> int:
    """By how many completed steps a record moves the run; a failure that ended it is attempted anew."""
    if record.kind == Kind.ENDED:
        return -len(read_body(record).reopened)
    return int(completes(record))
