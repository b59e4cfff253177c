"""What it takes to find and claim a run among few and among very many, queued or finished, on both stores."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks.laboratory import Entry, Measured, Outcome
from benchmarks.postgres.server import ServerLaboratory
from benchmarks.report import Budget, Row

FEW = 1000
MANY = 1_000_000
QUICK_MANY = 30_000
AT_MOST = 1.5
STORES = ("PostgreSQL", "SQLite")
Place = tuple[Path, str]


def measure(laboratory: ServerLaboratory) -> list[Row]:
    """Return the milliseconds of a look and a claim in each crowd, and how they compare with those among few."""
    many = laboratory.pick(quick=QUICK_MANY, full=MANY)
    crowds = {
        f"{FEW:,} queued": {"queued": FEW, "finished": 0},
        f"{many:,} queued": {"queued": many, "finished": 0},
        f"{many:,} finished": {"queued": FEW, "finished": many},
    }
    return [row for store in STORES for row in among(laboratory, store, crowds)]


def among(laboratory: ServerLaboratory, store: str, crowds: Mapping[str, dict[str, int]]) -> list[Row]:
    """Load every crowd, then claim in each of them in turn."""
    with contextlib.ExitStack() as stack:
        places = {crowd: stack.enter_context(place(laboratory, store)) for crowd in crowds}
        for crowd, sizes in crowds.items():
            run_in(laboratory, places[crowd], Entry(f"{store}, {crowd}", "claiming.load", "", sizes))
        trials: dict[str, list[Measured]] = {crowd: [] for crowd in crowds}
        entry = Entry(store, "claiming.claims", "", {"count": laboratory.pick(quick=40, full=60)})
        for _ in range(laboratory.pick(quick=3, full=7)):
            for crowd in crowds:
                trials[crowd].append(run_in(laboratory, places[crowd], entry))
    few = Outcome(trials[f"{FEW:,} queued"])
    return [row(store, crowd, Outcome(measured), few=few) for crowd, measured in trials.items()]


@contextmanager
def place(laboratory: ServerLaboratory, store: str) -> Iterator[Place]:
    """Make room for one crowd."""
    with tempfile.TemporaryDirectory(dir=laboratory.directory) as directory:
        if store == "SQLite":
            yield Path(directory), "perdure.db"
        else:
            with laboratory.database() as url:
                yield Path(directory), url


def run_in(laboratory: ServerLaboratory, where: Place, entry: Entry) -> Measured:
    """Run one trial in the place of a crowd."""
    return laboratory.run(entry, directory=where[0], store=where[1])


def row(store: str, crowd: str, outcome: Outcome, *, few: Outcome) -> Row:
    """Sum up one crowd; the first is what the others are compared with."""
    times = outcome.ratio("both_ms", few)
    is_first = outcome.trials is few.trials
    return Row(
        "claims",
        crowd,
        f"perdure, {store}",
        outcome.median("both_ms"),
        "ms",
        budget=None if is_first else Budget(f"≤ {AT_MOST} × {FEW:,} queued", times, at_most=AT_MOST),
        note=f"look {outcome.median('look_ms'):.2f} ms, claim {outcome.median('claim_ms'):.2f} ms",
    )
