"""A LangGraph conversation that grows by 2 KB per step: our saver against LangGraph's own, in the same run."""

from __future__ import annotations

from benchmarks.laboratory import Entry, Laboratory, Outcome
from benchmarks.payload import MESSAGE_BYTES
from benchmarks.report import Budget, Row

STEPS = 1000
QUICK_STEPS = 1000
ROUNDS = 3
FASTER_AT_LEAST = 5.0
SMALLER_AT_LEAST = 50.0
GUARANTEE = "synced per call, WAL"
CASES = (
    ("calls", "savers.sqlite_calls", "savers.perdure_calls", "put and put_writes alone"),
    ("graph", "savers.sqlite_graph", "savers.perdure_graph", "a graph of one node, durability sync"),
)


def measure(laboratory: Laboratory) -> list[Row]:
    """Return time and disk of both savers, by their calls alone and in a whole graph."""
    return [row for case in CASES for row in measure_case(laboratory, case)]


def measure_case(laboratory: Laboratory, case: tuple[str, str, str, str]) -> list[Row]:
    """Measure both savers in the same rounds."""
    name, theirs, ours, what = case
    parameters = {"steps": laboratory.pick(quick=QUICK_STEPS, full=STEPS)}
    rounds = laboratory.pick(quick=1, full=ROUNDS)
    entries = [
        Entry("SqliteSaver", theirs, GUARANTEE, parameters, rounds),
        Entry("PerdureSaver", ours, GUARANTEE, parameters, rounds),
    ]
    outcomes = laboratory.interleave(entries)
    label = f"{parameters['steps']:,} messages, {name}"
    return [
        row
        for entry in entries
        for row in rows_of(entry, outcomes[entry.label], outcomes["SqliteSaver"], label=label, what=what)
    ]


def rows_of(entry: Entry, outcome: Outcome, theirs: Outcome, *, label: str, what: str) -> list[Row]:
    """Return the time, the disk, and the time to read it all back; the ratios are how many times less ours is."""
    if outcome.failure or theirs.failure:
        return [Row("saver", label, entry.label, None, "", note=outcome.failure or theirs.failure)]
    is_ours = entry.label == "PerdureSaver"
    faster, smaller = 1 / outcome.ratio("seconds", theirs), 1 / outcome.ratio("disk_bytes", theirs)
    processor = 1 / outcome.ratio("processor_seconds", theirs)
    is_held = is_ours and label.endswith("calls")
    disk = outcome.median("disk_bytes")
    return [
        Row(
            "saver",
            f"{label}, time",
            entry.label,
            outcome.median("seconds"),
            "s",
            guarantee=entry.guarantee,
            budget=Budget(f"≥ {FASTER_AT_LEAST:g} × faster", faster, at_least=FASTER_AT_LEAST) if is_held else None,
            note=f"{what}; {faster:.1f} × faster, {processor:.1f} × by processor time" if is_ours else what,
        ),
        Row(
            "saver",
            f"{label}, disk",
            entry.label,
            disk / 1_000_000,
            "MB",
            ratio=disk / (int(str(entry.parameters["steps"])) * MESSAGE_BYTES),
            budget=Budget(f"≤ 1/{SMALLER_AT_LEAST:g}", smaller, at_least=SMALLER_AT_LEAST) if is_ours else None,
            note=f"1/{smaller:.0f}" if is_ours else "bytes after the process ended, to bytes of the messages",
        ),
        Row(
            "saver",
            f"{label}, read back",
            entry.label,
            outcome.median("read_seconds") * 1000,
            "ms",
            note="opening the store and reading the newest checkpoint",
        ),
    ]
