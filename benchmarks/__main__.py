"""The command: `python -m benchmarks [--quick] [--only NAME] [--json FILE] [--strict] [--directory DIR]`."""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

import apsw

from benchmarks import (
    concurrent,
    conversation,
    importing,
    looking,
    mapping,
    memory,
    model_calls,
    postgres,
    resume,
    saver,
    sequential,
)
from benchmarks.laboratory import Laboratory, say
from benchmarks.report import Row, as_json, table

BENCHMARKS = {
    "sequential": sequential,
    "concurrent": concurrent,
    "conversation": conversation,
    "resume": resume,
    "importing": importing,
    "looking": looking,
    "memory": memory,
    "mapping": mapping,
    "model_calls": model_calls,
    "saver": saver,
    "postgres": postgres,
}
PACKAGES = ("perdure", "dbos", "langgraph", "langgraph-checkpoint-sqlite", "absurd-sdk", "psycopg")
SYNC_PROBES = 100
PAGE_BYTES = 4096


def main() -> int:
    """Measure, print the table, and say how many budgets were missed."""
    options = parsed()
    with tempfile.TemporaryDirectory(prefix="perdure-benchmarks-", dir=options.directory) as scratch:
        laboratory = Laboratory(Path(scratch), quick=options.quick)
        machine = machine_of(Path(scratch))
        rows: list[Row] = []
        for name in options.only or BENCHMARKS:
            say(f"== {name}")
            rows += measured(name, laboratory)
    if options.json:
        options.json.write_text(as_json(rows, machine) + "\n", encoding="utf-8")
    missed = sum(row.verdict in {"MISS", "FAILED"} for row in rows)
    print(", ".join(f"{name} {value}" for name, value in machine.items()))
    if os.getloadavg()[0] > (os.cpu_count() or 1) + 1:
        print("others are busy on this machine: trust the counts and the CPU time, not the clock")
    print(f"\n{table(rows)}\n\n{missed} of {sum(row.budget is not None for row in rows)} budgets missed")
    return 1 if missed and options.strict else 0


def measured(name: str, laboratory: Laboratory) -> list[Row]:
    """Measure one benchmark, or the part of one that follows a dot."""
    benchmark, _, part = name.partition(".")
    return postgres.measure(laboratory, part) if part else BENCHMARKS[benchmark].measure(laboratory)


def parsed() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure what a step costs.")
    parser.add_argument("--quick", action="store_true", help="smaller sizes and fewer rounds: minutes, not an hour")
    names = (*BENCHMARKS, *(f"postgres.{part}" for part in postgres.PARTS))
    parser.add_argument("--only", action="append", choices=names, help="this benchmark; may be repeated")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the rows as JSON")
    parser.add_argument("--strict", action="store_true", help="exit with 1 when a budget is missed")
    parser.add_argument("--directory", type=Path, help="measure the disk this directory is on")
    return parser.parse_args()


def machine_of(directory: Path) -> dict[str, str]:
    """Describe what the numbers depend on."""
    return {
        "Python": platform.python_version(),
        "SQLite": apsw.sqlite_lib_version(),
        "processors": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "fsync": f"{sync_milliseconds(directory):.2f} ms",
    } | {package: version_of(package) for package in PACKAGES}


def sync_milliseconds(directory: Path) -> float:
    """Return the median time one page takes to reach the disk; near zero means the file system does not sync."""
    spans = []
    with (directory / "probe").open("wb", buffering=0) as probe:
        for _ in range(SYNC_PROBES):
            probe.write(bytes(PAGE_BYTES))
            started = time.perf_counter()
            os.fsync(probe.fileno())
            spans.append(time.perf_counter() - started)
    return statistics.median(spans) * 1000


def version_of(package: str) -> str:
    """Return the installed version."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


if __name__ == "__main__":
    sys.exit(main())
