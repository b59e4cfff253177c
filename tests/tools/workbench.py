"""Processes that use a tool, killed with a real SIGKILL before any chosen system call, and resumed."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from tests import warm

ROOT: Final = Path(__file__).parents[2]
PATIENCE_SECONDS: Final = 60.0
IN_DOUBT: Final = 4
CALLS: Final = "openat,write,pwrite64,fsync,fdatasync,rename,unlink,flock,fchmod,ftruncate"
"""Those that change a file or a lock, and opening: between two of them nothing that outlives the process changes."""

_TRACED: Final = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
"""For the same system calls each time."""
_LINE: Final = re.compile(r"(?P<thread>\d+)\s+(?P<call>\w+)\((?P<rest>.*)")


def can_trace() -> bool:
    probe = ["strace", "-o", os.devnull, "-e", "trace=none", "true"]
    return shutil.which("strace") is not None and subprocess.run(probe, check=False).returncode == 0


needs_strace = pytest.mark.skipif(not can_trace(), reason="strace is not installed, or tracing is not allowed")


@dataclass(frozen=True)
class Ended:
    """How a process ended."""

    returncode: int
    out: str
    err: str


@dataclass(frozen=True)
class Moment:
    """A system call of the main thread: the occurrence of its name, counted from the start of the process."""

    call: str
    occurrence: int
    shown: str


class Workbench:
    """One folder to work in, one store, one run."""

    def __init__(self, folder: Path, work: Path) -> None:
        self.folder = folder
        self.work = work
        self.pid_file = folder / "pid"
        self._started: list[subprocess.Popen[str]] = []
        self._stores = 0

    def start(self, tool: str, arguments: dict[str, Any], *before: str, **settings: str) -> subprocess.Popen[str]:
        """Start the errand, under another command if one is given."""
        process = warm.Popen(
            [*before, sys.executable, "-m", "tests.tools.errand", tool, json.dumps(arguments)],
            cwd="/",
            env=self._environment() | (_TRACED if before else {}) | settings,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def perdure(self, *words: str) -> None:
        """A person at the command line."""
        command = [sys.executable, "-m", "perdure", *words]
        warm.run(command, cwd="/", env=self._environment(), capture_output=True, check=True)

    def _environment(self) -> dict[str, str]:
        """That of every process: the perdure under test, and this store."""
        plain = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        return plain | {
            "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
            "PERDURE_STORE": str(self.store),
            "ERRAND_PID": str(self.pid_file),
        }

    def run(self, tool: str, arguments: dict[str, Any], *before: str, **settings: str) -> Ended:
        """The errand, to its end."""
        process = self.start(tool, arguments, *before, **settings)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        return Ended(process.returncode, out, err)

    def expect_killed(self, tool: str, arguments: dict[str, Any], **settings: str) -> None:
        ended = self.run(tool, arguments, **settings)
        assert ended.returncode == -signal.SIGKILL, ended

    def expect_done(self, tool: str, arguments: dict[str, Any], **settings: str) -> str:
        ended = self.run(tool, arguments, **settings)
        assert ended.returncode == 0, ended
        return ended.out.strip()

    def expect_doubt(self, tool: str, arguments: dict[str, Any], **settings: str) -> str:
        ended = self.run(tool, arguments, **settings)
        assert ended.returncode == IN_DOUBT, ended
        return ended.err

    @property
    def store(self) -> Path:
        return self.folder / f"store-{self._stores}" / "perdure.db"

    def begin_anew(self) -> None:
        """Another store, in which nothing has run."""
        self._stores += 1

    def moments(self, tool: str, arguments: dict[str, Any]) -> list[Moment]:
        """Every system call by which the tool touches the folder, and the first by which its receipt is written."""
        self.begin_anew()
        trace = self.folder / "trace"
        ended = self.run(tool, arguments, *_strace(trace))
        assert ended.returncode == 0, ended
        found: list[Moment] = []
        counts: Counter[str] = Counter()
        main = ""
        for line in trace.read_text().splitlines():
            parsed = _LINE.match(line)
            if parsed is None:
                continue
            main = main or parsed["thread"]
            if parsed["thread"] != main:
                continue
            counts[parsed["call"]] += 1
            if self._touches(self.work, line) or (found and self._touches(self.store.parent, line)):
                found.append(Moment(parsed["call"], counts[parsed["call"]], line))
        last = max(number for number, moment in enumerate(found) if self._touches(self.work, moment.shown))
        return found[: last + 2]

    def kill_at(self, moment: Moment, tool: str, arguments: dict[str, Any]) -> bool:
        """Run in a new store and die before this system call; whether the kill landed where it was meant to."""
        self.begin_anew()
        trace = self.folder / "trace"
        inject = f"inject={moment.call}:signal=KILL:when={moment.occurrence}"
        ended = self.run(tool, arguments, *_strace(trace), "-e", inject)
        assert ended.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL), (moment, ended)
        last = [line for line in trace.read_text().splitlines() if f"{moment.call}(" in line][-1]
        return self._touches(self.work, last) or self._touches(self.store.parent, last)

    @staticmethod
    def _touches(folder: Path, line: str) -> bool:
        """Whether this line of a trace is about the folder or a file in it, and not about the process's output."""
        return "<pipe:" not in line and re.search(rf"{re.escape(str(folder))}[/>\"]", line) is not None

    def wait_for_look(self, process: subprocess.Popen[str]) -> None:
        """Wait until a process looks whether an orphan lives, or has ended without looking."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while process.poll() is None and not _has_open(process.pid, "perdure-commands"):
            assert time.monotonic() < deadline, "waited in vain for a look"

    def end(self) -> None:
        """Leave no process behind."""
        for process in self._started:
            process.kill()
            process.communicate()


def _has_open(pid: int, part: str) -> bool:
    for descriptor in Path(f"/proc/{pid}/fd").glob("*"):
        with contextlib.suppress(OSError):
            if part in str(descriptor.readlink()):
                return True
    return False


def _strace(trace: Path) -> tuple[str, ...]:
    return ("strace", "-f", "-qq", "-y", "-s", "16", "-o", str(trace), "-e", f"trace={CALLS}")
