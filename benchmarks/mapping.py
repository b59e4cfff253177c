"""A map over many items, beside as many single commits: items a second, and the memory that it holds on its way."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.laboratory import Entry, Laboratory, Outcome, Sizes
from benchmarks.report import Budget, Row
from benchmarks.sequential import ON_DISK, WARM_UP_STEPS
from benchmarks.throughput import Limit, rows

BATCH = 100
IN_BATCHES = f"on disk in batches of {BATCH}: a crash repeats that many items at most"
LIMIT = Limit(text="≥ 10 × raw single commits", at_least=10)
GROWTH_MB_AT_MOST = 2.0
FIRST_ITEM, LAST_ITEM = 10_000, 100_000


def measure(laboratory: Laboratory) -> list[Row]:
    """Return items per second beside raw single commits, and how much more a late item finds in memory."""
    measured = rows(
        "mapping",
        laboratory,
        entries(laboratory),
        case=lambda entry: f"{entry.parameters['steps']:,} items",
        limits={"perdure": LIMIT, "perdure, async": LIMIT},
        sizes=Sizes("steps", small=1000, large=3000),
    )
    return [*(replace(row, unit="items/s") for row in measured), memory_row(laboratory)]


def entries(laboratory: Laboratory) -> list[Entry]:
    """Return the raw limit of one commit after another, and perdure."""
    few = {"steps": laboratory.pick(quick=1000, full=3000), "warm_up": WARM_UP_STEPS}
    many = {"steps": laboratory.pick(quick=20_000, full=100_000), "warm_up": WARM_UP_STEPS, "batch": BATCH}
    rounds = laboratory.pick(quick=5, full=9)
    return [
        Entry("raw apsw", "raw.sequential", ON_DISK, few, rounds),
        Entry("perdure", "perdure.mapped", IN_BATCHES, many, rounds),
        Entry("perdure, async", "perdure.mapped", IN_BATCHES, many | {"is_async": True}, rounds),
    ]


def memory_row(laboratory: Laboratory) -> Row:
    """Sum up what a map holds at item 100,000 beyond what it held at item 10,000."""
    sizes = {"first_item": FIRST_ITEM, "last_item": LAST_ITEM, "batch": BATCH}
    entry = Entry("perdure", "perdure.mapped_memory", "", sizes, laboratory.pick(quick=1, full=3))
    outcome: Outcome = laboratory.interleave([entry])[entry.label]
    case = f"memory, item {FIRST_ITEM:,} to {LAST_ITEM:,}"
    if outcome.failure:
        return Row("mapping", case, entry.label, None, "", note=outcome.failure)
    growth = outcome.median("growth") / 1_000_000
    reading = outcome.median("after_reading") / 1_000_000
    return Row(
        "mapping",
        case,
        entry.label,
        growth,
        "MB",
        budget=Budget(f"≤ {GROWTH_MB_AT_MOST} MB", growth, at_most=GROWTH_MB_AT_MOST),
        note=f"resident; {reading:.1f} MB after every result was read back",
    )
