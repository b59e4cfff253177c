"""What `import perdure` adds to the imports it cannot do without."""

from __future__ import annotations

import statistics
import subprocess
import sys

from benchmarks.laboratory import Laboratory, environment, say
from benchmarks.report import Budget, Row

ROUNDS = 21
AT_MOST = 1.3
BASE = "asyncio, msgspec, apsw, click"
IMPORTS = {
    BASE: "import asyncio, msgspec, apsw, click",
    "perdure": "import perdure; perdure.agent",  # the first name that is used loads the engine
    "DBOS": "import dbos",
    "LangGraph": "import langgraph.graph, langgraph.checkpoint.sqlite",
}
TIMED = "import time; started = time.perf_counter(); {statement}; print(time.perf_counter() - started)"


def measure(laboratory: Laboratory) -> list[Row]:
    """Return the milliseconds of each import in a new interpreter, alternating."""
    seconds: dict[str, list[float]] = {label: [] for label in IMPORTS}
    for round_number in range(laboratory.pick(quick=15, full=ROUNDS) + 1):
        say(f"importing: round {round_number}")
        for label, statement in IMPORTS.items():
            taken = import_seconds(statement)
            # The first round only compiles and caches.
            if taken is not None and round_number > 0:
                seconds[label].append(taken)
    return [row(label, taken, base=statistics.median(seconds[BASE])) for label, taken in seconds.items()]


def row(label: str, taken: list[float], *, base: float) -> Row:
    """Sum up one import."""
    if not taken:
        note = "not installed (pip install perdure[bench])"
        return Row("importing", "new interpreter", label, None, "", note=note)
    ratio = statistics.median(taken) / base
    return Row(
        "importing",
        "new interpreter",
        label,
        statistics.median(taken) * 1000,
        "ms",
        ratio=ratio,
        budget=Budget(f"≤ {AT_MOST} × its imports", ratio, at_most=AT_MOST) if label == "perdure" else None,
    )


def import_seconds(statement: str) -> float | None:
    """Time one import in a new interpreter, or return None where it cannot be imported."""
    ended = subprocess.run(
        [sys.executable, "-c", TIMED.format(statement=statement)],
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return float(ended.stdout) if ended.returncode == 0 else None
