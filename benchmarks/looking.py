"""How long a look takes at a store with very many runs, beyond what starting an interpreter takes."""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.crowd import LONG_RUN, LONG_STEPS
from benchmarks.laboratory import Laboratory, environment, say
from benchmarks.report import Budget, Row

RUNS = 10_000
QUICK_RUNS = 2000
AT_MOST = 0.3
START = [sys.executable, "-c", "pass"]
PERDURE = [sys.executable, "-m", "perdure"]
AMONG_MANY = (
    ["ps"],
    ["ps", "--page", "2"],
    ["ps", "--all"],
    ["ls"],
    ["ls", "--state", "waiting"],
    ["show", LONG_RUN],
    ["step", LONG_RUN, str(LONG_STEPS // 2)],
    ["show", "run-0"],
    ["inbox"],
)
Taken = tuple[float, float]
AMONG_WAITING = (["ps"], ["ps", "--page", "9"], ["ls"], ["ls", "--page", "9"], ["inbox"], ["inbox", "--page", "9"])


def measure(laboratory: Laboratory) -> list[Row]:
    """Return the seconds of each command in a store where few runs wait, and in one where all do."""
    runs = laboratory.pick(quick=QUICK_RUNS, full=RUNS)
    few = looked_at(laboratory, f"{runs:,} runs", AMONG_MANY, [str(runs)])
    return few + looked_at(laboratory, f"{runs:,} waiting", AMONG_WAITING, [str(runs), "--waiting"])


def looked_at(laboratory: Laboratory, case: str, commands: tuple[list[str], ...], filling: list[str]) -> list[Row]:
    """Fill a store, then run the commands in rounds, each round beside a bare interpreter."""
    with tempfile.TemporaryDirectory(dir=laboratory.directory) as folder:
        say(f"looking: filling a store with {case} and one of {LONG_STEPS:,} steps")
        seconds_of([sys.executable, "-m", "benchmarks.crowd", *filling], Path(folder))
        beyond: dict[str, list[Taken]] = {" ".join(command): [] for command in commands}
        for round_number in range(laboratory.pick(quick=5, full=11) + 1):
            say(f"looking: round {round_number}")
            started = seconds_of(START, Path(folder))
            for command in commands:
                taken = seconds_of([*PERDURE, *command], Path(folder))
                if round_number > 0:  # the first round only compiles and caches
                    beyond[" ".join(command)].append((taken[0] - started[0], taken[1] - started[1]))
    return [row(case, command, taken) for command, taken in beyond.items()]


def row(case: str, command: str, taken: list[Taken]) -> Row:
    """Sum up one command."""
    seconds = statistics.median(each for each, _ in taken)
    processor = statistics.median(each for _, each in taken)
    return Row(
        "looking",
        case,
        f"perdure {command}",
        seconds,
        "s",
        budget=Budget(f"≤ {AT_MOST} s", seconds, at_most=AT_MOST),
        note=f"beyond the start of an interpreter; {processor:.2f} s of it CPU",
    )


def seconds_of(command: list[str], folder: Path) -> Taken:
    """Time one process by the clock and by the processor; it may write the bytecode that an installed package has."""
    variables = {name: value for name, value in environment().items() if name != "PYTHONDONTWRITEBYTECODE"}
    processor, began = children_seconds(), time.perf_counter()
    subprocess.run(command, cwd=folder, env=variables, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began, children_seconds() - processor


def children_seconds() -> float:
    """Return the processor time of all processes that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
