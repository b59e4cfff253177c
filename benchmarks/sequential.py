"""One run, one step after another, each on disk before the next begins.

A sync takes longer while the WAL file still grows, which is what a short-lived process sees, than once the file has its
full size and is written over, which is what a worker sees. Both are measured, the latter also on the disk that the
budget was set for.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks import held_sync
from benchmarks.laboratory import Entry, Laboratory, Sizes
from benchmarks.report import Row
from benchmarks.throughput import Limit, rows

LIMIT = Limit(text="≥ 0.75 of raw", at_least=0.75)
ON_DISK = "on disk before the step returns"
WRITTEN_BEHIND = "written behind the next steps (its default)"
# SQLite starts to write the WAL over after 1,000 pages; every commit adds at least one.
WARM_UP_STEPS = 1200
QUICK_PEER_WARM_UP_STEPS = 50
# Few enough that the WAL of no contender reaches its full size.
GROWING_STEPS = 150


def measure(laboratory: Laboratory) -> list[Row]:
    """Return steps per second of every contender, with a new WAL and with a full-grown one."""
    limits = {"perdure": LIMIT, "perdure, async": LIMIT}
    sizes = Sizes("steps", small=40, large=140)
    parts = [
        (growing_entries(laboratory), limits),
        (entries(laboratory), {}),
        (held_entries(laboratory), limits),
    ]
    return [
        row
        for part, its_limits in parts
        for row in rows("sequential", laboratory, part, case=case, limits=its_limits, sizes=sizes)
    ]


def case(entry: Entry) -> str:
    """Name the case of an entry."""
    log = "full WAL" if entry.parameters["warm_up"] else "new WAL"
    return f"{entry.parameters['steps']:,} steps, {log}" + (f", {held_sync.WORDS}" if entry.is_held else "")


def growing_entries(laboratory: Laboratory) -> list[Entry]:
    """Return the raw limit and perdure, in a database just created."""
    parameters = {"steps": GROWING_STEPS, "warm_up": 0}
    return ours(parameters, rounds=laboratory.pick(quick=5, full=15))


def entries(laboratory: Laboratory) -> list[Entry]:
    """Return the raw limit, perdure, and the peers."""
    long = {"steps": laboratory.pick(quick=500, full=3000), "warm_up": WARM_UP_STEPS}
    short = {"steps": laboratory.pick(quick=100, full=1000), "warm_up": peer_warm_up(laboratory)}
    rounds = laboratory.pick(quick=1, full=3)
    return [
        *ours(long, rounds=laboratory.pick(quick=5, full=9)),
        Entry("DBOS", "dbos.sequential", f"{ON_DISK} (rollback journal)", short, rounds),
        Entry("LangGraph, sync", "langgraph.sequential", ON_DISK, short | {"durability": "sync"}, rounds),
        Entry("LangGraph", "langgraph.sequential", WRITTEN_BEHIND, short | {"durability": "async"}, rounds),
    ]


def held_entries(laboratory: Laboratory) -> list[Entry]:
    """Return the raw limit and perdure, on the disk that the budget was set for."""
    long = {"steps": laboratory.pick(quick=500, full=3000), "warm_up": WARM_UP_STEPS}
    return [replace(entry, is_held=True) for entry in ours(long, rounds=laboratory.pick(quick=9, full=21))]


def ours(parameters: dict[str, int], *, rounds: int) -> list[Entry]:
    """Return the raw limit and perdure."""
    return [
        Entry("raw apsw", "raw.sequential", ON_DISK, parameters, rounds),
        Entry("perdure", "perdure.sequential", ON_DISK, parameters, rounds),
        Entry("perdure, async", "perdure.sequential_async", ON_DISK, parameters, rounds),
    ]


def peer_warm_up(laboratory: Laboratory) -> int:
    """Return the steps a peer takes before it is measured."""
    return laboratory.pick(quick=QUICK_PEER_WARM_UP_STEPS, full=WARM_UP_STEPS)
