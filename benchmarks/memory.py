"""Resident memory: of a process at rest, and per 1,000 completed steps of a live run."""

from __future__ import annotations

from benchmarks.laboratory import Entry, Laboratory, Outcome
from benchmarks.report import Row

CONTENDERS = (
    ("raw apsw", "raw.memory"),
    ("perdure", "perdure.memory"),
    ("DBOS", "dbos.memory"),
    ("LangGraph, sync", "langgraph.memory"),
)
OURS = ("raw apsw", "perdure")


def measure(laboratory: Laboratory) -> list[Row]:
    """Return both for every contender."""
    outcomes = laboratory.interleave(entry_of(laboratory, *contender) for contender in CONTENDERS)
    raw = outcomes["raw apsw"]
    return [row for label, outcome in outcomes.items() for row in rows_of(label, outcome, raw=raw)]


def entry_of(laboratory: Laboratory, label: str, work: str) -> Entry:
    """Return the entry of one contender; the first steps are left out, because they fill caches of fixed size."""
    sizes = {
        "first_step": laboratory.pick(quick=1000, full=10_000),
        "last_step": laboratory.pick(quick=2000, full=20_000),
    }
    return Entry(label, work, "", sizes, rounds=laboratory.pick(quick=1, full=3) if label in OURS else 1)


def rows_of(label: str, outcome: Outcome, *, raw: Outcome) -> list[Row]:
    """Return two rows, or one that says why there are none."""
    if outcome.failure:
        return [Row("memory", "at rest", label, None, "", note=outcome.failure)]
    at_rest, per_1000 = outcome.median("at_rest"), outcome.median("per_1000")
    return [
        Row(
            "memory",
            "at rest",
            label,
            at_rest / 1_000_000,
            "MB",
            ratio=outcome.ratio("at_rest", raw),
            note="store open, no run",
        ),
        Row("memory", "live run", label, per_1000 / 1000, "kB", note="more per 1,000 completed steps"),
    ]
