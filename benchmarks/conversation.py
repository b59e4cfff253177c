"""A conversation that grows by 2 KB per step: the time of early and late steps, and the disk it takes."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import replace

from benchmarks import held_sync
from benchmarks.laboratory import Entry, Laboratory, Outcome, Sizes
from benchmarks.payload import MESSAGE_BYTES
from benchmarks.report import Budget, PerStep, Row
from benchmarks.sequential import ON_DISK, WARM_UP_STEPS

SIZES = (200, 1000, 2000)
QUICK_SIZES = (200, 2000)
ROUNDS = 3
OUR_ROUNDS = 7
FLAT_AT_MOST = 1.25
DISK_AT_MOST = 2.5
# LangGraph's default stores the whole state in every checkpoint, so disk and time grow with the square.
LANGGRAPH_STEPS_MAX = 1000
LANGGRAPH_QUICK_STEPS_MAX = 200
SKIPPED = "skipped: every checkpoint holds the whole conversation, about {gigabytes:.1f} GB at this size"

CONTENDERS = (
    ("raw apsw", "raw.conversation", ON_DISK),
    ("perdure, whole", "perdure.conversation_whole", f"{ON_DISK}; the step gets the whole conversation"),
    ("perdure, newest", "perdure.conversation_new", f"{ON_DISK}; the step gets the newest message"),
    ("DBOS, whole", "dbos.conversation_whole", f"{ON_DISK} (rollback journal); arguments are not recorded"),
    ("LangGraph, sync", "langgraph.conversation_whole", f"{ON_DISK}; state with add_messages"),
    ("LangGraph, delta", "langgraph.conversation_delta", f"{ON_DISK}; opt-in DeltaChannel (beta)"),
)
OURS = ("raw apsw", "perdure, whole", "perdure, newest")


def measure(laboratory: Laboratory) -> list[Row]:
    """Return the time per step and the disk of every contender at every size."""
    sizes = QUICK_SIZES if laboratory.quick else SIZES
    per_step: dict[str, PerStep] = {}
    rows = [row for steps in sizes for row in measure_size(laboratory, steps, per_step=per_step)]
    return rows + measure_held(laboratory, max(sizes))


def measure_size(laboratory: Laboratory, steps: int, *, per_step: dict[str, PerStep]) -> list[Row]:
    """Measure one size; what a step costs in fsyncs is counted once, at the first size."""
    entries = [entry_of(laboratory, contender, steps) for contender in CONTENDERS]
    feasible = [entry for entry in entries if not too_long(laboratory, entry)]
    timed = laboratory.interleave(feasible)
    stored = laboratory.interleave(cold(entry) for entry in feasible)
    rows: list[Row] = []
    for entry in entries:
        outcome = joined(timed[entry.label], stored[entry.label]) if entry in feasible else skipped(steps)
        if outcome.trials and entry.label not in per_step:
            per_step[entry.label] = laboratory.count(cold(entry), Sizes("steps", small=40, large=140))
        rows.append(time_row(entry, outcome, raw=timed["raw apsw"], per_step=per_step))
        rows += disk_rows(entry, outcome)
    return rows


def measure_held(laboratory: Laboratory, steps: int) -> list[Row]:
    """Measure the times of the largest size on the disk that the budgets were set for."""
    entries = [entry_of(laboratory, contender, steps) for contender in CONTENDERS if contender[0] in OURS]
    held = [replace(entry, is_held=True) for entry in entries]
    timed = laboratory.interleave(held)
    return [time_row(entry, timed[entry.label], raw=timed["raw apsw"], per_step={}) for entry in held]


def time_row(entry: Entry, outcome: Outcome, *, raw: Outcome, per_step: Mapping[str, PerStep]) -> Row:
    """Return the time of a late step, beside that of an early one."""
    case = f"{named(entry)}, late step" + (f", {held_sync.WORDS}" if entry.is_held else "")
    is_judged = is_ours(entry) and entry.is_held
    text = f"flat, ≤ {FLAT_AT_MOST}"
    if outcome.failure or raw.failure:
        budget = Budget(text, None) if is_judged else None
        note = outcome.failure or f"nothing to compare with: {raw.failure}"
        return Row("conversation", case, entry.label, None, "", guarantee=entry.guarantee, budget=budget, note=note)
    growth = statistics.median(trial["last_ms"] / trial["first_ms"] for trial in outcome.trials)
    return Row(
        "conversation",
        case,
        entry.label,
        outcome.median("last_ms"),
        "ms",
        ratio=outcome.ratio("last_ms", raw),
        per_step=per_step.get(entry.label),
        guarantee=entry.guarantee,
        budget=Budget(text, growth, at_most=FLAT_AT_MOST) if is_judged else None,
        note=f"an early step took {outcome.median('first_ms'):.2f} ms: {growth:.2f}",
    )


def disk_rows(entry: Entry, outcome: Outcome) -> list[Row]:
    """Return what is left on disk, where the trials came to their end."""
    if outcome.failure:
        return []
    disk, raw_bytes = outcome.median("disk_bytes"), int(str(entry.parameters["steps"])) * MESSAGE_BYTES
    small = Budget(f"≤ {DISK_AT_MOST} of the messages", disk / raw_bytes, at_most=DISK_AT_MOST)
    return [
        Row(
            "conversation",
            f"{named(entry)}, disk",
            entry.label,
            disk / 1_000_000,
            "MB",
            ratio=disk / raw_bytes,
            budget=small if is_ours(entry) else None,
            note="bytes after the process ended, to bytes of the messages",
        )
    ]


def named(entry: Entry) -> str:
    """Name the case of an entry."""
    return f"{entry.parameters['steps']:,} messages"


def is_ours(entry: Entry) -> bool:
    """Say whether the budgets are for this entry."""
    return entry.label.startswith("perdure")


def entry_of(laboratory: Laboratory, contender: tuple[str, str, str], steps: int) -> Entry:
    """Return the entry of a contender at one size."""
    label, work, guarantee = contender
    rounds = OUR_ROUNDS if label in OURS else laboratory.pick(quick=1, full=ROUNDS)
    return Entry(label, work, guarantee, {"steps": steps, "warm_up": WARM_UP_STEPS}, rounds)


def cold(entry: Entry) -> Entry:
    """Return the same work without warming up, which would leave its own bytes on disk."""
    return replace(entry, parameters={**entry.parameters, "warm_up": 0}, rounds=1)


def joined(timed: Outcome, stored: Outcome) -> Outcome:
    """Take the times from the warm trials and the bytes from the cold one."""
    if timed.failure or stored.failure:
        return Outcome(failure=timed.failure or stored.failure)
    disk = stored.median("disk_bytes")
    return Outcome(trials=[{**trial, "disk_bytes": disk} for trial in timed.trials])


def too_long(laboratory: Laboratory, entry: Entry) -> bool:
    """Say whether the disk this takes is out of proportion to what it shows."""
    most = laboratory.pick(quick=LANGGRAPH_QUICK_STEPS_MAX, full=LANGGRAPH_STEPS_MAX)
    return entry.work == "langgraph.conversation_whole" and int(str(entry.parameters["steps"])) > most


def skipped(steps: int) -> Outcome:
    """Return an outcome that says why there is none."""
    return Outcome(failure=SKIPPED.format(gigabytes=steps * steps / 2 * MESSAGE_BYTES / 1e9))
