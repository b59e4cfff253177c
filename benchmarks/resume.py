"""How long a killed run takes, in a new process, until it does something new."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.laboratory import Entry, Laboratory, Outcome, TrialFailed, medians
from benchmarks.report import Budget, Row

SIZES = (100, 1000, 10_000)
AT_MOST = 5.0
BUDGET_STEPS = 10_000
PEER_QUICK_STEPS_MAX = 1000

CONTENDERS = (
    ("perdure", "perdure", "from perdure.run to the first fresh step; verifies and replays the journal"),
    ("DBOS", "dbos", "from DBOS.launch to the first fresh step; recovers through its queue, polled each second"),
    ("LangGraph, sync", "langgraph", "from opening to the first fresh node; loads the last state, replays nothing"),
)


def measure(laboratory: Laboratory) -> list[Row]:
    """Return the time to resume of every contender at every size."""
    return [row for steps in SIZES for row in measure_size(laboratory, steps)]


def measure_size(laboratory: Laboratory, steps: int) -> list[Row]:
    """Measure one size; the raw read is taken in the same processes that resume perdure."""
    case, rows = f"{steps:,} steps", []
    raw: float | None = None
    for label, module, guarantee in CONTENDERS:
        peer = module != "perdure"
        if peer and laboratory.quick and steps > PEER_QUICK_STEPS_MAX:
            rows.append(Row("resume", case, label, None, "", note="skipped with --quick: takes minutes to prepare"))
            continue
        rounds = laboratory.pick(quick=1, full=3) if peer else laboratory.pick(quick=5, full=9)
        outcome = killed_and_resumed(laboratory, label, module, steps=steps, rounds=rounds)
        if not peer:
            raw = outcome.medians.get("raw_ms")
            note = outcome.failure and "measured on perdure's rows"
            rows.append(Row("resume", case, "raw apsw", raw, "ms", ratio=raw and 1.0, guarantee=RAW, note=note))
        rows.append(resumed_row(case, label, outcome, raw=raw, guarantee=guarantee, budgeted=steps == BUDGET_STEPS))
    return rows


RAW = "open, and SELECT * of the same rows in order, fetchall"


def resumed_row(case: str, label: str, outcome: Outcome, *, raw: float | None, guarantee: str, budgeted: bool) -> Row:
    """Sum up one contender."""
    value = outcome.medians.get("resume_ms")
    ratio = value / raw if value and raw else None
    limit = Budget(f"≤ {AT_MOST:.0f} × raw", ratio, at_most=AT_MOST) if ratio and label == "perdure" else None
    return Row(
        "resume",
        case,
        label,
        value,
        "ms",
        ratio=ratio,
        guarantee=guarantee,
        budget=limit if budgeted else None,
        note=outcome.failure,
    )


def killed_and_resumed(laboratory: Laboratory, label: str, module: str, *, steps: int, rounds: int) -> Outcome:
    """Kill one run after so many steps, then resume it again and again; each resume adds one completed step."""
    interrupt = Entry(label, f"{module}.interrupt", "", {"steps": steps})
    resume = Entry(label, f"{module}.resume", "", {"steps": steps})
    with tempfile.TemporaryDirectory(dir=laboratory.directory) as scratch:
        directory = Path(scratch)
        try:
            laboratory.run(interrupt, directory=directory)
            trials = [laboratory.run(resume, directory=directory) for _ in range(rounds)]
        except TrialFailed as failure:
            return Outcome({}, trials=0, failure=str(failure))
    return Outcome(medians(trials), trials=rounds)
