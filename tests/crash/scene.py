"""Several processes on one errand: started, frozen, thawed and waited for by the test."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests import warm
from tests.crash import errand
from tests.crash.evidence import Journal, read_journal
from tests.crash.nursery import Ended, environment
from tests.crash.outside import Execution, World

PATIENCE_SECONDS: Final = 60.0
HELD: Final = re.compile(r"held by worker \S+, pid (\d+) on host \S+, beat \d+ s ago")
_POLL_SECONDS: Final = 0.01


class Scene:
    """One folder with one store, one world, and the processes the test has started in it."""

    def __init__(self, folder: Path, world: World) -> None:
        self.folder = folder
        self.world = world
        self._started: list[subprocess.Popen[str]] = []

    @property
    def database(self) -> Path:
        return self.folder / ".perdure" / "perdure.db"

    def start(self, policy: str, **settings: str) -> subprocess.Popen[str]:
        """Start a process of the errand; without a gate of its own it passes at once."""
        chosen = {
            "CRASH_PORT": str(self.world.port),
            "CRASH_WORLD": self.world.name,
            "CRASH_BODIES": str(self.folder / "bodies"),
            "CRASH_GATE": str(self.folder),
            "CRASH_POLICY": policy,
            **settings,
        }
        process = warm.Popen(
            [sys.executable, "-m", "tests.crash.errand"],
            cwd=self.folder,
            env=environment(chosen),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def run(self, policy: str, **settings: str) -> Ended:
        """A process of the errand, to its end."""
        return self.ended(self.start(policy, **settings))

    def ended(self, process: subprocess.Popen[str]) -> Ended:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        return Ended(process.pid, process.returncode, out, err)

    def has_arrived(self, process: subprocess.Popen[str]) -> bool:
        """Whether a process stands at its gate."""
        return self.arrived(process) > 0

    def arrived(self, process: subprocess.Popen[str]) -> int:
        """How many strands of a process stand at its gate."""
        return len(list(self.folder.glob(f"arrived-{process.pid}-*")))

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(_POLL_SECONDS)

    def wait_frozen(self, process: subprocess.Popen[str]) -> None:
        self.wait_until(lambda: _is_stopped(process.pid), f"process {process.pid} to freeze")

    def journal(self, run_id: str = errand.RUN_ID) -> Journal:
        return read_journal(self.database, run_id)

    def executions(self) -> list[Execution]:
        return self.world.executions()

    def end(self) -> None:
        """Leave no process behind, frozen or not."""
        for process in self._started:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
            process.communicate()


def _is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
