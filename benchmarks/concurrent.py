"""Many runs at once on one event loop, which share transactions where the contender can."""

from __future__ import annotations

from benchmarks.laboratory import Entry, Laboratory, Sizes
from benchmarks.report import Row
from benchmarks.sequential import ON_DISK, WARM_UP_STEPS, WRITTEN_BEHIND, peer_warm_up
from benchmarks.throughput import Limit, rows

RUNS = 100
STEPS = 100
"""Of each run, also where it should be quick: with a few, it is the starts of the runs that are measured."""
LIMIT = Limit(text="≥ 0.6 of raw group commit", at_least=0.6)


def measure(laboratory: Laboratory) -> list[Row]:
    """Return steps per second over all runs of every contender."""
    return rows(
        "concurrent",
        laboratory,
        entries(laboratory),
        case=lambda entry: f"{RUNS} runs × {entry.parameters['steps']} steps",
        limits={"perdure": LIMIT},
        sizes=Sizes("steps", small=2, large=6, runs=RUNS),
    )


def entries(laboratory: Laboratory) -> list[Entry]:
    """Return the raw limit of group commit, perdure, and the peers."""
    long = {"runs": RUNS, "steps": STEPS, "warm_up": WARM_UP_STEPS}
    short = {"runs": RUNS, "steps": laboratory.pick(quick=3, full=20), "warm_up": peer_warm_up(laboratory)}
    rounds, peer_rounds = laboratory.pick(quick=5, full=9), laboratory.pick(quick=1, full=3)
    awaited = f"the same transactions, each row awaited by one of {RUNS} tasks"
    return [
        Entry("raw group commit", "raw.concurrent_group", f"on disk, a writer thread and {RUNS} tasks", long, rounds),
        Entry("raw apsw, bulk", "raw.concurrent", f"on disk, {RUNS} rows per transaction, nobody waits", long, rounds),
        Entry("raw apsw, awaited", "raw.concurrent_awaited", awaited, long, rounds),
        Entry("perdure", "perdure.concurrent", ON_DISK, long, rounds),
        Entry("DBOS", "dbos.concurrent", f"{ON_DISK} (rollback journal)", short, peer_rounds),
        Entry("LangGraph, sync", "langgraph.concurrent", ON_DISK, short | {"durability": "sync"}, peer_rounds),
        Entry("LangGraph", "langgraph.concurrent", WRITTEN_BEHIND, short | {"durability": "async"}, peer_rounds),
    ]
