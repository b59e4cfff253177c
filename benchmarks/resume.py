"""How long a killed run takes, in a new process, until it does something new."""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.laboratory import Entry, Laboratory, Outcome, TrialFailed
from benchmarks.report import Budget, Row

SIZES = (100, 1000, 10_000)
AT_MOST = 5.0
BUDGET_STEPS = 10_000
PEER_QUICK_STEPS_MAX = 1000

Contender = tuple[str, str, str]
RAW = ("raw apsw", "raw", "open, and SELECT * of perdure's rows in order, fetchall")
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
    case = f"{steps:,} steps"
    perdure, *peers = CONTENDERS
    ours = killed_and_resumed(laboratory, perdure, steps=steps, rounds=laboratory.pick(quick=5, full=9))
    raw = Outcome(failure=ours.failure) if ours.failure else raw_of(ours)
    rows = [
        resumed_row(case, RAW, raw, raw=raw),
        resumed_row(case, perdure, ours, raw=raw, budgeted=steps == BUDGET_STEPS),
    ]
    for peer in peers:
        if laboratory.quick and steps > PEER_QUICK_STEPS_MAX:
            theirs = Outcome(failure="skipped with --quick: takes minutes to prepare")
        else:
            theirs = killed_and_resumed(laboratory, peer, steps=steps, rounds=laboratory.pick(quick=1, full=3))
        rows.append(resumed_row(case, peer, theirs, raw=raw))
    return rows


def raw_of(ours: Outcome) -> Outcome:
    """Return the raw reads that were taken beside perdure's resumes."""
    return Outcome(trials=[{"resume_ms": trial["raw_ms"]} for trial in ours.trials])


def resumed_row(case: str, contender: Contender, outcome: Outcome, *, raw: Outcome, budgeted: bool = False) -> Row:
    """Sum up one contender."""
    label, _, guarantee = contender
    if outcome.failure:
        return Row("resume", case, label, None, "", guarantee=guarantee, note=outcome.failure)
    ratio = outcome.ratio("resume_ms", raw) if raw.trials else None
    return Row(
        "resume",
        case,
        label,
        outcome.median("resume_ms"),
        "ms",
        ratio=ratio,
        guarantee=guarantee,
        budget=Budget(f"≤ {AT_MOST:.0f} × raw", ratio, at_most=AT_MOST) if ratio and budgeted else None,
    )


def killed_and_resumed(laboratory: Laboratory, contender: Contender, *, steps: int, rounds: int) -> Outcome:
    """Kill one run after so many steps, then resume it again and again; each resume adds one completed step."""
    label, module, _ = contender
    interrupt = Entry(label, f"{module}.interrupt", "", {"steps": steps})
    resume = Entry(label, f"{module}.resume", "", {"steps": steps})
    with tempfile.TemporaryDirectory(dir=laboratory.directory) as scratch:
        directory = Path(scratch)
        try:
            laboratory.run(interrupt, directory=directory)
            return Outcome(trials=[laboratory.run(resume, directory=directory) for _ in range(rounds)])
        except TrialFailed as failure:
            return Outcome(failure=str(failure))
