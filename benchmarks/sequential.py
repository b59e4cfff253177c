"""One run, one step after another, each on disk before the next begins."""

from __future__ import annotations

from benchmarks.laboratory import Entry, Laboratory
from benchmarks.report import Row
from benchmarks.throughput import Limit, rows

LIMIT = Limit(text="≥ 0.75 of raw", at_least=0.75)
ON_DISK = "on disk before the step returns"


def measure(laboratory: Laboratory) -> list[Row]:
    """Return steps per second of every contender."""
    return rows(
        "sequential",
        laboratory,
        entries(laboratory),
        case=lambda entry: f"{entry.parameters['steps']:,} steps",
        limits={"perdure": LIMIT, "perdure, async": LIMIT},
        count={"scale": "steps", "small": 40, "large": 140},
    )


def entries(laboratory: Laboratory) -> list[Entry]:
    """Return the raw limit, perdure, and the peers."""
    ours = {"steps": laboratory.pick(quick=500, full=3000)}
    theirs = {"steps": laboratory.pick(quick=100, full=1000)}
    rounds = laboratory.pick(quick=3, full=9)
    peer_rounds = laboratory.pick(quick=1, full=3)
    return [
        Entry("raw apsw", "raw.sequential", ON_DISK, ours, rounds),
        Entry("perdure", "perdure.sequential", ON_DISK, ours, rounds),
        Entry("perdure, async", "perdure.sequential_async", ON_DISK, ours, rounds),
        Entry("DBOS", "dbos.sequential", f"{ON_DISK} (rollback journal)", theirs, peer_rounds),
        Entry("LangGraph, sync", "langgraph.sequential", ON_DISK, theirs | {"durability": "sync"}, peer_rounds),
        Entry(
            "LangGraph",
            "langgraph.sequential",
            "written behind the next steps (its default)",
            theirs | {"durability": "async"},
            peer_rounds,
        ),
    ]
