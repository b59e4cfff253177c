"""Many simulations, over the cores there are; what they met, and every seed that broke a promise."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from pathlib import Path
from typing import Final, Literal

from tests.planted.soil import planted
from tests.simulation.play import Ending, Play
from tests.simulation.stage import on_stage
from tests.simulation.truth import InFile

StoreKind = Literal["memory", "sqlite"]
CHUNK: Final = 25
_QUICK: Final = "/dev/shm"  # noqa: S108 - a folder of its own is made there for each simulation
FAULTS: Final = (
    "kills",
    "freezes",
    "lost answers",
    "failed verbs",
    "asked twice",
    "landed late",
    "slow",
    "clock jumps",
)
"""What went wrong in the simulated world; a campaign in which nothing did proves nothing."""

_SHOWN: Final = (
    *FAULTS,
    "thaws",
    "takeovers",
    "writes refused",
    "intents",
    "in doubt",
    "verdicts",
    "parked",
    "effects",
)


@dataclass
class Summary:
    """What a campaign met."""

    seeds: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    broken: list[Ending] = field(default_factory=list)

    @property
    def faults_landed(self) -> int:
        return sum(self.counts[name] for name in FAULTS)

    @property
    def is_good(self) -> bool:
        """Whether something went wrong in the world, and nothing in perdure."""
        return bool(self.faults_landed) and not self.broken

    def add(self, ending: Ending) -> None:
        self.seeds += 1
        self.counts += ending.counts
        if ending.fault:
            self.broken.append(replace(ending, trace=()))

    def join(self, other: Summary) -> None:
        self.seeds += other.seeds
        self.counts += other.counts
        self.broken += other.broken

    def line(self) -> str:
        """Everything in one line."""
        met = ", ".join(f"{self.counts[name]} {name}" for name in _SHOWN)
        landed = f"{self.faults_landed} faults landed" if self.faults_landed else "0 FAULTS LANDED"
        return f"{self.seeds} seeds: {landed} ({met}); {len(self.broken)} broken"


def played(seed: int, *, store: StoreKind = "memory", bug: str = "") -> Ending:
    """One simulation, from this seed."""
    with _staged(bug):
        return _played(seed, store)


def campaign(
    seeds: Sequence[int], *, store: StoreKind = "memory", bug: str = "", until_broken: bool = False
) -> Summary:
    """These simulations, one after the other, in this process."""
    summary = Summary()
    with _staged(bug):
        for seed in seeds:
            summary.add(_played(seed, store))
            if summary.broken and until_broken:
                break
    return summary


def wide_campaign(seeds: Sequence[int], *, store: StoreKind = "memory", bug: str = "", jobs: int = 0) -> Summary:
    """The same over all cores, with a line on standard error that tells how far it is."""
    summary, begun = Summary(), time.monotonic()
    chunks = [seeds[start : start + CHUNK] for start in range(0, len(seeds), CHUNK)]
    with ProcessPoolExecutor(jobs or os.cpu_count(), mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(campaign, chunk, store=store, bug=bug) for chunk in chunks]
        for answered in as_completed(asked):
            summary.join(answered.result())
            _tell(summary, len(seeds), time.monotonic() - begun)
    summary.broken.sort(key=lambda ending: ending.seed)
    return summary


def replay_command(seed: int, *, store: StoreKind = "memory", bug: str = "") -> str:
    """How to see one simulation again."""
    words = ["python -m tests.simulation", f"--seed {seed}"]
    words += [f"--store {store}"] if store != "memory" else []
    words += [f"--bug {bug}"] if bug else []
    return " ".join([*words, "--trace"])


def report(summary: Summary, *, store: StoreKind = "memory", bug: str = "") -> str:
    """The summary, and for each broken seed what it broke and the command that shows it again."""
    broken = [
        f"seed {ending.seed}: {ending.fault}\n  {replay_command(ending.seed, store=store, bug=bug)}"
        for ending in summary.broken
    ]
    return "\n".join([*broken, summary.line()])


@contextlib.contextmanager
def _staged(bug: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if bug:
            stack.enter_context(planted(bug))
        stack.enter_context(on_stage())
        yield


def _played(seed: int, store: StoreKind) -> Ending:
    if store == "memory":
        return Play(seed).perform()
    with tempfile.TemporaryDirectory(dir=_QUICK if Path(_QUICK).is_dir() else None) as folder:
        return Play(seed, lambda: InFile(Path(folder))).perform()


def _tell(summary: Summary, total: int, seconds: float) -> None:
    left = seconds / max(1, summary.seeds) * (total - summary.seeds)
    bar = f"{summary.seeds}/{total} seeds, {summary.faults_landed} faults landed, {len(summary.broken)} broken"
    if sys.stderr.isatty():
        sys.stderr.write(f"\r\x1b[K{bar}, about {left:.0f} s left")
        sys.stderr.write("\r\x1b[K" if summary.seeds == total else "")
        sys.stderr.flush()
