"""A folder in which one example is run as its reader would: copied, started, killed from outside, started again."""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests import warm
from tests.crash.evidence import Journal, read_journal, reading

EXAMPLES: Final = Path(__file__).parents[2] / "examples"
SOURCE: Final = Path(__file__).parents[2] / "src"
WATCHED: Final = Path(__file__).parent / "watched"
PATIENCE_SECONDS: Final = 180.0


class Ended:
    """What a process left: its exit code and what it wrote."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    def __repr__(self) -> str:
        return f"exit code {self.code}\n--- out\n{self.out}\n--- err\n{self.err}"


class Stage:
    """One example in a folder of its own, and how often a kill found it where it was meant to."""

    def __init__(self, folder: Path, example: str) -> None:
        self.folder = folder
        self.script = Path(shutil.copy(EXAMPLES / example, folder))
        self.kills = 0
        self._started: list[subprocess.Popen[str]] = []

    @property
    def database(self) -> Path:
        return self.folder / ".perdure" / "perdure.db"

    def run(self, *arguments: str) -> Ended:
        """Run the example to its end."""
        return self._end(self.start(*arguments))

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        """Start the example and return at once."""
        return self._open([self.script.name, *arguments], environment)

    def perdure(self, *arguments: str) -> Ended:
        """What somebody types in a shell beside it: `perdure …`."""
        return self.python("-P", "-m", "perdure", *arguments)

    def python(self, *arguments: str) -> Ended:
        """Another program in the same folder, to its end."""
        return self._end(self._open(list(arguments), {}))

    def run_ids(self, agent: str) -> list[str]:
        """The ids of the runs of an agent, read without perdure."""
        with reading(self.database) as database:
            return [run_id for (run_id,) in database.execute("SELECT run_id FROM runs WHERE agent = ?", (agent,))]

    def journal(self, run_id: str) -> Journal:
        """What is committed of a run, read without perdure."""
        return read_journal(self.database, run_id)

    def kill_in(self, function: str, line: str, *arguments: str, occurrence: int = 1) -> Ended:
        """Run the example until it stands before a line of one of its functions, and kill it there from outside."""
        process, gate = self.start_until(function, line, *arguments, occurrence=occurrence)
        return self.kill_at(process, gate)

    def start_until(
        self, function: str, line: str, *arguments: str, occurrence: int = 1
    ) -> tuple[subprocess.Popen[str], int]:
        """Start the example with a gate before that line; `kill_at` kills it there."""
        pipe = self.folder / f"gate-{len(self._started)}"
        os.mkfifo(pipe)
        gate = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        place = {"WATCH_GATE": f"{function}|{line}|{occurrence}", "WATCH_PIPE": str(pipe)}
        return self.start(*arguments, **place), gate

    def kill_at(self, process: subprocess.Popen[str], gate: int) -> Ended:
        """Wait until the process stands at its gate, and kill it."""
        try:
            assert select.select([gate], [], [], PATIENCE_SECONDS)[0], "waited in vain for the gate"
            assert os.read(gate, 1) == b"!", f"it never came to its gate: {self._end(process)}"
        finally:
            os.close(gate)
        return self.kill(process)

    def kill(self, process: subprocess.Popen[str]) -> Ended:
        """Kill a living process as a person does, with `kill -9`."""
        assert process.poll() is None, f"it had ended before the kill: {self._end(process)}"
        subprocess.run(["kill", "-9", str(process.pid)], check=True)
        ended = self._end(process)
        assert ended.code == -signal.SIGKILL, ended
        self.kills += 1
        return ended

    def called(self, *functions: str) -> list[str]:
        """Every call of these functions, in order and over all processes."""
        return [name for name, _ in self._seen("call") if name in functions]

    def returned(self, *functions: str) -> list[str]:
        """Every call of these functions that came to its end, in order and over all processes."""
        return [name for name, _ in self._seen("return") if name in functions]

    def called_with(self, function: str) -> list[str]:
        """What this function was called with as its first argument, each time."""
        return [argument for name, argument in self._seen("call") if name == function]

    def returned_with(self, function: str) -> list[str]:
        """What this function had as its first argument, each time it came to its end."""
        return [argument for name, argument in self._seen("return") if name == function]

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Look until something is so."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, f"waited in vain for {what}"
            time.sleep(0.05)

    def lines(self, name: str) -> list[str]:
        """The lines of a file that the example writes."""
        path = self.folder / name
        return path.read_text().splitlines() if path.exists() else []

    def end(self) -> None:
        """Leave no process behind."""
        for process in self._started:
            process.kill()
            process.communicate()

    def _seen(self, event: str) -> list[tuple[str, str]]:
        """Calls or returns, each as the function and its first argument."""
        split = (line.split("\t") for line in self.lines("watch.log"))
        return [(name, argument) for what, name, argument in split if what == event]

    def _open(self, command: list[str], environment: dict[str, str]) -> subprocess.Popen[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        watching = {"WATCH_SCRIPT": str(self.script), "WATCH_LOG": str(self.folder / "watch.log")}
        path = os.pathsep.join([str(WATCHED), str(SOURCE)])
        process = warm.Popen(
            [sys.executable, *command],
            cwd=self.folder,
            env={**kept, **watching, "PYTHONPATH": path, "COLUMNS": "100", **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._started.append(process)
        return process

    def _end(self, process: subprocess.Popen[str]) -> Ended:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        return Ended(process.returncode, out, err)
