"""Steps per second on a server: one after another, and of many runs at once in one process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks.laboratory import Entry, Outcome, Sizes
from benchmarks.postgres.server import ServerLaboratory
from benchmarks.report import Budget, Row
from benchmarks.throughput import row

RUNS = 100
WARM_UP_STEPS = 100
CONNECTIONS = 16
ON_SERVER = "synced by the server before the step returns"
SEQUENTIAL = {"Absurd": 2.5, "DBOS": 8.0}
CONCURRENT = {"Absurd": 10.0, "DBOS": 20.0}


def measure(laboratory: ServerLaboratory) -> list[Row]:
    """Return steps per second of every contender, and how many times those of the peers ours are."""
    few, many = Sizes("steps", small=20, large=120), Sizes("steps", small=2, large=6, runs=RUNS)
    one = compared(laboratory, sequential(laboratory), few, times=SEQUENTIAL)
    return one + compared(laboratory, concurrent(laboratory), many, times=CONCURRENT)


def sequential(laboratory: ServerLaboratory) -> list[Entry]:
    """Return the raw limit, perdure, and the peers, one step at a time."""
    same = {"steps": laboratory.pick(quick=200, full=1000), "warm_up": WARM_UP_STEPS}
    rounds = laboratory.pick(quick=3, full=9)
    return [
        Entry("raw psycopg", "raw_postgres.sequential", "one prepared statement per commit", same, rounds),
        Entry("perdure", "perdure_postgres.sequential", ON_SERVER, same, rounds),
        Entry("perdure, async", "perdure_postgres.sequential_async", ON_SERVER, same, rounds),
        Entry("Absurd", "absurd.sequential", ON_SERVER, same, rounds),
        Entry("DBOS", "dbos_postgres.sequential", ON_SERVER, same, rounds),
    ]


def concurrent(laboratory: ServerLaboratory) -> list[Entry]:
    """Return the raw limit of group commit, perdure, and the peers, with many runs at once."""
    same = {"runs": RUNS, "steps": laboratory.pick(quick=10, full=50), "warm_up": WARM_UP_STEPS}
    rounds = laboratory.pick(quick=3, full=5)
    pooled = f"{ON_SERVER}; {CONNECTIONS} workers in one process, a connection each"
    return [
        Entry("raw group commit", "raw_postgres.concurrent_group", f"a writer thread and {RUNS} tasks", same, rounds),
        Entry("perdure", "perdure_postgres.concurrent", ON_SERVER, same, rounds),
        Entry("Absurd", "absurd.concurrent", f"{ON_SERVER}; its async worker, one connection", same, rounds),
        Entry("Absurd, threads", "absurd.concurrent_connections", pooled, same | {"connections": CONNECTIONS}, rounds),
        Entry("DBOS", "dbos_postgres.concurrent", f"{ON_SERVER}; its pool of connections", same, rounds),
    ]


def compared(
    laboratory: ServerLaboratory, entries: Sequence[Entry], sizes: Sizes, *, times: Mapping[str, float]
) -> list[Row]:
    """Measure every entry beside the first, and set perdure beside the peers."""
    outcomes = laboratory.interleave(entries)
    raw = outcomes[entries[0].label]
    measured = [
        row(
            "postgres",
            entry,
            outcomes[entry.label],
            case=case(entry),
            raw=raw,
            limit=None,
            per_step=laboratory.count(entry, sizes),
        )
        for entry in entries
    ]
    ours = outcomes["perdure"]
    return measured + [beside(peer, ours, outcomes[peer], case(entries[1]), least) for peer, least in times.items()]


def beside(peer: str, ours: Outcome, theirs: Outcome, case: str, least: float) -> Row:
    """Say how many times as fast as a peer perdure is: the median over the rounds."""
    if ours.failure or theirs.failure:
        return Row("postgres", case, f"perdure : {peer}", None, "", note=ours.failure or theirs.failure)
    times = ours.ratio("per_second", theirs)
    budget = Budget(f"≥ {least:g} × {peer}", times, at_least=least)
    return Row("postgres", case, f"perdure : {peer}", times, "×", budget=budget, note="median of the rounds' ratios")


def case(entry: Entry) -> str:
    """Name the case of an entry."""
    runs = f"{entry.parameters['runs']} runs × " if "runs" in entry.parameters else ""
    return f"{runs}{entry.parameters['steps']:,} steps"
