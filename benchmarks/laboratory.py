"""Runs trials in processes of their own: interleaved, repeated, summed up by medians, and counted under strace."""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from benchmarks import held_sync
from benchmarks.report import PerStep

ROOT = Path(__file__).resolve().parent.parent
TRIAL_SECONDS_MAX = 1800
OPTIONAL = ("dbos", "langgraph", "langchain_core", "aiosqlite", "absurd_sdk", "absurdctl", "psycopg")
SILENCED = ("PERDURE_", "DBOS_", "LANGSMITH_", "LANGCHAIN_", "OTEL_", "ABSURD_", "PG", "PYTHONDONTWRITEBYTECODE")
"""Variables of the caller's that no trial gets; without bytecode a checkout is compiled anew at every start of it."""
STRACE = ("strace", "-f", "-c", "-e", "trace=fdatasync,fsync", "-o")

Measured = dict[str, float]


class TrialFailed(Exception):
    """A trial ended without measurements."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One row to be: who does what, with what guarantee, in how many rounds."""

    label: str
    work: str
    guarantee: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    rounds: int = 1
    is_held: bool = False
    """Whether its syncs are held up to those of the disk that the budgets were set for."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """An entry's trials in the order of their rounds, or why there are none."""

    trials: Sequence[Measured] = ()
    failure: str = ""

    def median(self, name: str) -> float:
        """Return the median of one measurement."""
        return statistics.median(trial[name] for trial in self.trials)

    def ratio(self, name: str, raw: Outcome) -> float:
        """Return the median, over the rounds both took part in, of this measurement to the raw one of that round."""
        return statistics.median(
            ours[name] / theirs[name] for ours, theirs in zip(self.trials, raw.trials, strict=False)
        )


@dataclass(frozen=True, slots=True)
class Sizes:
    """Two sizes whose difference is counted, so that what opening and closing cost cancels out."""

    parameter: str
    small: int
    large: int
    runs: int = 1


class Laboratory:
    """Starts trials below one directory, whose disk is the one that is measured."""

    def __init__(self, directory: Path, *, quick: bool) -> None:
        self.directory = directory
        self.quick = quick

    def pick(self, *, quick: int, full: int) -> int:
        """Return the size that fits how long the caller wants to wait."""
        return quick if self.quick else full

    def interleave(self, entries: Iterable[Entry]) -> dict[str, Outcome]:
        """Run the trials in rounds, A B C A B C …, so that a noisy minute hits every entry alike."""
        entries = list(entries)
        trials: dict[str, list[Measured]] = {entry.label: [] for entry in entries}
        failures: dict[str, str] = {}
        for round_number in range(max(entry.rounds for entry in entries)):
            for entry in entries:
                if round_number < entry.rounds and entry.label not in failures:
                    try:
                        trials[entry.label].append(self.trial(entry))
                    except TrialFailed as failure:
                        failures[entry.label] = str(failure)
        return {
            label: Outcome(failure=failures[label]) if label in failures else Outcome(trials=measured)
            for label, measured in trials.items()
        }

    def trial(self, entry: Entry) -> Measured:
        """Run one trial in an empty directory; add the bytes it left on disk."""
        with tempfile.TemporaryDirectory(dir=self.directory) as scratch:
            measured = self.run(entry, directory=Path(scratch))
            return {**measured, "disk_bytes": directory_bytes(Path(scratch))}

    def run(self, entry: Entry, *, directory: Path, tracer: Iterable[str] = (), **parameters: object) -> Measured:
        """Run one trial in a directory that may hold what an earlier one left; it may end by its own SIGKILL."""
        parameters = {**entry.parameters, **parameters, "directory": str(directory)}
        held = f", {held_sync.WORDS}" if entry.is_held else ""
        say(f"{entry.label}: {entry.work} {json.dumps(dict(entry.parameters))}{held}")
        command = [*tracer, sys.executable, "-m", "benchmarks.trial", entry.work, json.dumps(parameters)]
        variables = environment() | (self._holding() if entry.is_held else {})
        try:
            ended = subprocess.run(
                command, cwd=directory, env=variables, capture_output=True, text=True,
                check=False, timeout=TRIAL_SECONDS_MAX,
            )  # fmt: skip
        except subprocess.TimeoutExpired as expired:
            raise TrialFailed(f"gave up after {TRIAL_SECONDS_MAX} s") from expired
        return measurements(ended)

    @cached_property
    def _held_sync(self) -> Path | None:
        return held_sync.built(self.directory)

    def _holding(self) -> dict[str, str]:
        if self._held_sync is None:
            raise TrialFailed("not measured: without a C compiler and Linux no sync can be held up")
        return held_sync.variables(self._held_sync)

    def count(self, entry: Entry, sizes: Sizes) -> PerStep:
        """Count fsyncs and transactions per step."""
        try:
            fewer = self._counted_trial(entry, **{sizes.parameter: sizes.small})
            more = self._counted_trial(entry, **{sizes.parameter: sizes.large})
        except TrialFailed:
            return PerStep()
        steps = (sizes.large - sizes.small) * sizes.runs
        fsyncs = (more["fsyncs"] - fewer["fsyncs"]) / steps if "fsyncs" in more and "fsyncs" in fewer else None
        return PerStep(fsyncs=fsyncs, transactions=(more["commits"] - fewer["commits"]) / steps)

    def _counted_trial(self, entry: Entry, **parameters: object) -> Measured:
        with tempfile.TemporaryDirectory(dir=self.directory) as scratch:
            summary = Path(scratch) / "strace.txt"
            tracer = (*STRACE, str(summary)) if strace_works() else ()
            measured = self.run(entry, directory=Path(scratch), tracer=tracer, count_commits=True, **parameters)
            return {**measured, "fsyncs": summed_calls(summary)} if tracer else measured


def measurements(ended: subprocess.CompletedProcess[str]) -> Measured:
    """Read what a trial printed."""
    if ended.returncode not in {0, -signal.SIGKILL}:
        raise TrialFailed(f"failed: {(ended.stderr.strip() or 'no output').splitlines()[-1]}")
    lines = ended.stdout.strip().splitlines()
    measured = json.loads(lines[-1]) if lines else {}
    if "missing" in measured:
        raise TrialFailed(why_missing(measured["missing"]))
    return measured or {}


def why_missing(module: str) -> str:
    """Say how to get a contender that cannot be imported."""
    if module.partition(".")[0] in OPTIONAL:
        return "not installed (pip install perdure[bench])"
    return f"cannot be imported: there is no module {module}"


def environment() -> dict[str, str]:
    """Return the variables of a trial: the tree to import from, and no telemetry or settings of the caller's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(SILENCED)}
    given = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    paths = [str(ROOT), *(str(Path(path).resolve()) for path in given)]
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "LANGSMITH_TRACING": "false"}


def strace_works() -> bool:
    """Say whether system calls can be counted here: strace is installed and may attach."""
    if shutil.which("strace") is None:
        return False
    tried = subprocess.run([*STRACE, os.devnull, sys.executable, "-c", ""], capture_output=True, check=False)
    return tried.returncode == 0


def summed_calls(summary: Path) -> int:
    """Return the number of calls in a summary written by `strace -c`."""
    rows = (line.split() for line in summary.read_text(encoding="utf-8").splitlines())
    return sum(int(row[3]) for row in rows if row and row[-1] in {"fdatasync", "fsync"})


def directory_bytes(directory: Path) -> int:
    """Return the bytes of every file below a directory."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def say(text: str) -> None:
    """Show progress."""
    print(text, file=sys.stderr, flush=True)
