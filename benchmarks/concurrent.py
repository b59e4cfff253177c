"""Many runs at once on one event loop, which share transactions where the contender can."""

from __future__ import annotations

from benchmarks.laboratory import Entry, Laboratory
from benchmarks.report import Row
from benchmarks.sequential import ON_DISK
from benchmarks.throughput import Limit, rows

RUNS = 100
LIMIT = Limit(text="≥ 0.6 of raw", at_least=0.6)


def measure(laboratory: Laboratory) -> list[Row]:
    """Return steps per second over all runs of every contender."""
    return rows(
        "concurrent",
        laboratory,
        entries(laboratory),
        case=lambda entry: f"{RUNS} runs × {entry.parameters['steps']} steps",
        limits={"perdure": LIMIT},
        count={"scale": "steps", "small": 2, "large": 5, "steps_per_unit": RUNS},
    )


def entries(laboratory: Laboratory) -> list[Entry]:
    """Return the raw limit of group commit, perdure, and the peers."""
    ours = {"runs": RUNS, "steps": laboratory.pick(quick=20, full=100)}
    theirs = {"runs": RUNS, "steps": laboratory.pick(quick=3, full=20)}
    rounds = laboratory.pick(quick=3, full=9)
    peer_rounds = laboratory.pick(quick=1, full=3)
    return [
        Entry("raw apsw", "raw.concurrent", f"on disk, {RUNS} rows per transaction", ours, rounds),
        Entry("perdure", "perdure.concurrent", ON_DISK, ours, rounds),
        Entry("DBOS", "dbos.concurrent", f"{ON_DISK} (rollback journal)", theirs, peer_rounds),
        Entry("LangGraph, sync", "langgraph.concurrent", ON_DISK, theirs | {"durability": "sync"}, peer_rounds),
        Entry(
            "LangGraph",
            "langgraph.concurrent",
            "written behind the next steps (its default)",
            theirs | {"durability": "async"},
            peer_rounds,
        ),
    ]
