"""What recording costs a model call of a script, in commits of the same disk, by the length of what was said."""

from __future__ import annotations

import statistics

from benchmarks.laboratory import Entry, Laboratory, Outcome
from benchmarks.report import Budget, Row
from benchmarks.sequential import ON_DISK

LENGTHS = (100, 500, 2000)
WORKS = ("raw_commits", "plain", "recorded")
CALLS = 100
QUICK_CALLS = 40
ROUNDS = 9
COMMITS_AT_MOST = 3.0
FLAT_AT_MOST = 1.5


def measure(laboratory: Laboratory) -> list[Row]:
    """Return what a recorded call costs over a plain one, at every length."""
    rows: list[Row] = []
    first = 0.0
    found = laboratory.interleave([entry for length in LENGTHS for entry in entries(laboratory, length)])
    for length in LENGTHS:
        over, commit, in_commits = of_length(found, length)
        first = first or in_commits
        budget = Budget(f"≤ {COMMITS_AT_MOST:g} commits", in_commits, at_most=COMMITS_AT_MOST)
        if length != LENGTHS[0]:
            budget = Budget(f"flat, ≤ {FLAT_AT_MOST:g} of {LENGTHS[0]}", in_commits / first, at_most=FLAT_AT_MOST)
        rows.append(
            Row(
                "model_calls",
                f"{length:,} messages of 2 KB",
                "perdure run",
                over,
                "ms",
                ratio=in_commits,
                guarantee=ON_DISK,
                budget=budget,
                note=f"median, over a call that is not recorded; a raw commit took {commit:.2f} ms",
            )
        )
    return rows


def entries(laboratory: Laboratory, length: int) -> list[Entry]:
    """Return the trials of one length; those of all lengths take turns, because a disk has its hours."""
    parameters = {"length": length, "calls": laboratory.pick(quick=QUICK_CALLS, full=CALLS)}
    rounds = laboratory.pick(quick=3, full=ROUNDS)
    return [Entry(f"{work} {length}", f"model_calls.{work}", ON_DISK, parameters, rounds) for work in WORKS]


def of_length(found: dict[str, Outcome], length: int) -> tuple[float, float, float]:
    """Return what recording adds to a call, a raw commit, and how many of these the former is; medians over rounds."""
    trials = zip(*(found[f"{work} {length}"].trials for work in WORKS), strict=True)
    added = [(ours["call_ms"] - alone["call_ms"], raw["call_ms"]) for raw, alone, ours in trials]
    return (
        statistics.median(over for over, _ in added),
        statistics.median(commit for _, commit in added),
        statistics.median(over / commit for over, commit in added),
    )
