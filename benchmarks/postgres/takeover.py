"""From the death of a worker to the first new step of its run in another worker, which was idle until then.

A worker is killed with everything that belongs to it, so that nobody is left who could start it again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.laboratory import ROOT, TrialFailed, environment, say
from benchmarks.postgres.errands import LOG
from benchmarks.postgres.server import ServerLaboratory
from benchmarks.report import Budget, Row

ERRANDS = ROOT / "benchmarks" / "postgres" / "errands.py"
PERDURE = (sys.executable, "-m", "perdure")
PATIENCE_SECONDS = 60.0
STEPS_BEFORE = 5
AT_MOST_SECONDS = 1.0
STALL_SECONDS = 5.0
FROZEN_AT_MOST_SECONDS = STALL_SECONDS + 2.0
QUICK_STALLS = {"PERDURE_STALL_SECONDS": "5", "PERDURE_LEASE_SECONDS": "5", "PERDURE_RENEW_SECONDS": "1"}
PEERS = "Absurd: after its claim_timeout, 120 s by default; DBOS: not across processes in open source; neither measured"


def measure(laboratory: ServerLaboratory) -> list[Row]:
    """Return the seconds of both ways to go: killed, and frozen with its connections open."""
    killed = seconds_until_taken(laboratory, laboratory.pick(quick=5, full=25), signal.SIGKILL, {})
    frozen = seconds_until_taken(laboratory, laboratory.pick(quick=1, full=5), signal.SIGSTOP, QUICK_STALLS)
    return [
        row("kill -9 to next step", killed, AT_MOST_SECONDS, PEERS),
        row("frozen to next step", frozen, FROZEN_AT_MOST_SECONDS, f"with stall_seconds = {STALL_SECONDS:g}"),
    ]


def row(case: str, seconds: list[float], at_most: float, note: str) -> Row:
    """Sum up one way to go."""
    median = statistics.median(seconds)
    spread = f"{len(seconds)} times, {min(seconds):.2f} to {max(seconds):.2f} s"
    budget = Budget(f"median ≤ {at_most:g} s", median, at_most=at_most)
    return Row("takeover", case, "perdure", median, "s", budget=budget, note=f"{spread}; {note}")


def seconds_until_taken(
    laboratory: ServerLaboratory, times: int, how: signal.Signals, settings: dict[str, str]
) -> list[float]:
    """Let one run wander among workers, each of which is stopped in its turn; a new one takes its place."""
    with laboratory.database() as url, tempfile.TemporaryDirectory(dir=laboratory.directory) as scratch:
        crew = Crew(Path(scratch), {"PERDURE_STORE": url, **settings})
        with contextlib.closing(crew):
            for _ in range(2):
                crew.hire()
            crew.run("start", f"{ERRANDS}:wander")
            return [crew.stop_and_wait(how) for _ in range(times)]


class Crew:
    """Workers on one store, and the log in which their steps are."""

    def __init__(self, directory: Path, settings: dict[str, str]) -> None:
        self._directory = directory
        self._log = directory / "steps.log"
        self._variables = environment() | settings | {LOG: str(self._log)}
        self._workers: list[subprocess.Popen[bytes]] = []

    def hire(self) -> None:
        """Start a worker, and wait until it looks for work."""
        told = self._directory / f"worker-{time.monotonic_ns()}.log"
        with told.open("wb") as output:
            command = [*PERDURE, "worker", str(ERRANDS), "--log", "json"]
            worker = subprocess.Popen(
                command, cwd=self._directory, env=self._variables, stdout=output, stderr=output, start_new_session=True
            )
        self._workers.append(worker)
        wait_until(lambda: b'"worker_started"' in told.read_bytes(), "a worker did not start")

    def run(self, *command: str) -> None:
        """Run one command of perdure."""
        subprocess.run(
            [*PERDURE, *command], cwd=self._directory, env=self._variables, stdout=subprocess.DEVNULL, check=True
        )

    def stop_and_wait(self, how: signal.Signals) -> float:
        """Stop whoever takes steps now; return the seconds until another does, and hire a new one."""
        before = len(self._steps())
        wait_until(lambda: len(self._steps()) >= before + STEPS_BEFORE, "no steps are taken")
        walker = self._steps()[-1][0]
        stopped = next(worker for worker in self._workers if worker.pid == os.getpgid(walker))
        os.killpg(stopped.pid, how)
        at = time.monotonic_ns()
        wait_until(lambda: self._steps()[-1][0] != walker, "nobody went on")
        taken_at = next(moment for pid, moment, _ in self._steps() if pid != walker and moment > at)
        say(f"takeover: {how.name} to next step {(taken_at - at) / 1e9:.3f} s")
        self._dismiss(stopped)
        self.hire()
        return (taken_at - at) / 1e9

    def close(self) -> None:
        """End every worker."""
        for worker in list(self._workers):
            self._dismiss(worker)

    def _dismiss(self, worker: subprocess.Popen[bytes]) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGKILL)
        worker.wait()
        self._workers.remove(worker)

    def _steps(self) -> list[tuple[int, int, int]]:
        if not self._log.exists():
            return []
        lines = self._log.read_text().splitlines()
        return [(int(pid), int(moment), int(number)) for pid, moment, number in map(str.split, lines)]


def wait_until(is_so: Callable[[], bool], otherwise: str) -> None:
    """Look again and again, for as long as it could take on a busy machine."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not is_so():
        if time.monotonic() > until:
            raise TrialFailed(otherwise)
        time.sleep(0.005)
