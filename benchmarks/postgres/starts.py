"""Runs per second through a queue: accepted in one process, claimed, executed and completed in another."""

from __future__ import annotations

from benchmarks.laboratory import Entry, Outcome
from benchmarks.postgres.server import ServerLaboratory
from benchmarks.report import Row

EMPTY = "empty runs, one worker process"


def measure(laboratory: ServerLaboratory) -> list[Row]:
    """Return runs per second of every contender."""
    runs = {"runs": laboratory.pick(quick=100, full=500)}
    rounds = laboratory.pick(quick=2, full=5)
    entries = [
        Entry("perdure", "starting.perdure", f"{EMPTY}, 10 at a time, looks every 0.25 s", runs, rounds),
        Entry("Absurd", "starting.absurd", f"{EMPTY}, 10 at a time, looks every 0.25 s", runs, rounds),
        Entry("DBOS", "starting.dbos", f"{EMPTY}, no limit, looks every 1 s", runs, rounds),
    ]
    outcomes = laboratory.interleave(entries)
    return [row(entry, outcomes[entry.label]) for entry in entries]


def row(entry: Entry, outcome: Outcome) -> Row:
    """Sum up one contender."""
    case = f"{entry.parameters['runs']} runs"
    if outcome.failure:
        return Row("starts", case, entry.label, None, "", guarantee=entry.guarantee, note=outcome.failure)
    note = f"{outcome.median('enqueued_per_second'):,.0f} enqueued/s"
    return Row(
        "starts", case, entry.label, outcome.median("per_second"), "runs/s", guarantee=entry.guarantee, note=note
    )
