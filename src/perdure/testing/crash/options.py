"""What can be chosen of a campaign, whatever its mode."""

from __future__ import annotations

import math
import os
import shlex

from msgspec import Struct, field

from perdure.errors import UsageError
from perdure.store import shown


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _no_time(option: str, seconds: float, wanted: str) -> UsageError:
    return UsageError(
        f"{option} {seconds:g} is no number of seconds.",
        safe="nothing was started.",
        hint=f"{wanted}, as in {option} 60",
    )


class Options(Struct, frozen=True, kw_only=True):
    """How a campaign goes about it."""

    at: tuple[str, ...] = ()
    """Only this point; a second is where the process that resumes is killed, and so on."""
    sample: int = 1
    """Begin trials at every so many points only."""
    seed: int = 0
    trials: int = 100
    """How many trials a random mode makes."""
    depth: int = 1
    """How often the resume is killed again."""
    racers: int = 8
    jobs: int = field(default_factory=_cores)
    """How many trials are played at once."""
    timeout_seconds: float = 60.0
    """How long one process may take."""
    store: str = ""
    """A server for the trials' stores, each with a schema of its own; SQLite files of their own where it is empty."""
    answer: str | None = None
    """What every question is answered with, as JSON; its default or first option where none is given."""
    signals: dict[str, str] = {}
    """The payload, as JSON, of each signal that runs wait for."""
    outside_seconds: float = 0.0
    """How long after it was received a request to the outside lands."""
    folder: str = ""
    """Where the trials' folders are made; a temporary place where it is empty."""
    keep: bool = False
    """Keep every trial's folder, not only those of trials with a fault."""
    files: tuple[str, ...] = ()
    """Files and folders that each trial gets a copy of."""
    compare: tuple[str, ...] = ()
    """Files and folders, by their paths where the run is started, that must be left as they are without a kill."""
    fails: bool = False
    """Whether the run is meant to fail: its failure is then what came of it."""
    sure: bool = False
    """Whether the server of the store may be killed."""
    settings: dict[str, str] = {}
    """Environment variables of every process."""
    found_in: str = ""
    """The folder, seen from here, that a replay must look for the agent's module in; empty where it looks there."""

    def __post_init__(self) -> None:
        """Refuse what is no length of time: a process that may take for ever is never late."""
        if not (math.isfinite(self.timeout_seconds) and self.timeout_seconds > 0):
            raise _no_time("--timeout", self.timeout_seconds, "name one that is more than 0")
        if not (math.isfinite(self.outside_seconds) and self.outside_seconds >= 0):
            raise _no_time("--outside-delay", self.outside_seconds, "name one that is 0 or more")


def replay_words(options: Options) -> list[str]:
    """The options of the campaign that a replay needs as well."""
    words: list[str] = []
    if options.store:
        words += ["--store", shown(options.store)]
    if options.answer is not None:
        words += ["--answer", options.answer]
    for name, payload in options.signals.items():
        words += ["--signal", f"{name}={payload}"]
    for file in options.files:
        words += ["--copy", file]
    for path in options.compare:
        words += ["--compare", path]
    if options.fails:
        words += ["--expect-failure"]
    if options.timeout_seconds != Options().timeout_seconds:
        words += ["--timeout", f"{options.timeout_seconds:g}"]
    if options.outside_seconds:
        words += ["--outside-delay", f"{options.outside_seconds:g}"]
    return words


def replay_settings(options: Options) -> list[str]:
    """The settings of the campaign that a replay needs as well, as a shell takes them before a command."""
    place = {"PYTHONPATH": options.found_in} if options.found_in else {}
    return [f"{name}={shlex.quote(value)}" for name, value in sorted({**options.settings, **place}.items())]
