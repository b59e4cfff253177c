"""How long a run stands still when its worker dies or freezes: from the signal to the next step, on another worker."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests import warm

_PATIENCE_SECONDS: Final = 60.0
_AGENT: Final = """
import json, os, time
import perdure

@perdure.step
def tick(number: int) -> int:
    pid = int(os.readlink("/proc/self"))  # the number that whoever kills it knows, also behind a namespace
    line = json.dumps({"pid": pid, "number": number, "at": time.monotonic()})
    with open("ticks", "a") as file:
        file.write(line + "\\n")
    time.sleep(0.02)
    return number

@perdure.agent
def walk(name: str) -> int:
    number = 0
    while not os.path.exists("enough"):
        tick(number)
        number += 1
    return number
"""


@dataclass(frozen=True)
class Gap:
    """One run that changed hands."""

    seconds: float
    repeated: int
    """Steps that were executed by both: the one that was interrupted at the most."""


def measure(
    folder: Path, store: str, *, times: int, how: signal.Signals, settings: dict[str, str], enter: tuple[str, ...] = ()
) -> list[Gap]:
    """Stop the worker that executes the only run, so often, and see how long it takes the other to go on.

    `enter` comes before the command of every worker: what gives it process numbers of its own makes it another machine.
    """
    with _crew(folder, store, settings, enter) as crew:
        crew.start_run()
        workers = [crew.worker(), crew.worker()]
        gaps = []
        for _ in range(times):
            holder = crew.holder_after(len(crew.ticks()))
            victim = next(each for each in workers if _is_below(holder, each.pid))
            reached = len(crew.ticks())
            sent_at = time.monotonic()
            os.killpg(victim.pid, how)
            following = crew.first_by_another(holder, reached)
            gaps.append(Gap(following["at"] - sent_at, crew.repeated(holder)))
            os.killpg(victim.pid, signal.SIGKILL)
            victim.wait()
            workers.remove(victim)
            workers.append(crew.worker())
        return gaps


def median_seconds(gaps: list[Gap]) -> float:
    return statistics.median(gap.seconds for gap in gaps)


class _Crew:
    def __init__(self, folder: Path, store: str, settings: dict[str, str], enter: tuple[str, ...]) -> None:
        self._folder = folder
        self._enter = enter
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PERDURE_")}
        source = str(Path(__file__).parents[2] / "src")
        self._environment = {**kept, **settings, "PERDURE_STORE": store, "PYTHONPATH": source}
        self.processes: list[subprocess.Popen[bytes]] = []
        (folder / "walk.py").write_text(_AGENT)
        (folder / "ticks").touch()

    def start_run(self) -> None:
        command = [sys.executable, "-P", "-m", "perdure", "start", "walk.py:walk", "name=far"]
        warm.run(command, cwd=self._folder, env=self._environment, check=True, capture_output=True)

    def worker(self) -> subprocess.Popen[bytes]:
        """A worker that is ready to take the run over."""
        log = self._folder / f"worker{len(self.processes)}.log"
        with log.open("wb") as file:
            process = warm.Popen(
                [*self._enter, sys.executable, "-P", "-m", "perdure", "worker", "walk.py", "--log", "json"],
                cwd=self._folder,
                env=self._environment,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self.processes.append(process)
        _until(lambda: "worker_started" in log.read_text(), log.read_text)
        return process

    def ticks(self) -> list[dict[str, Any]]:
        lines = (self._folder / "ticks").read_text().splitlines()
        return [json.loads(line) for line in lines if line.endswith("}")]

    def holder_after(self, count: int) -> int:
        """Who executes the run now."""
        _until(lambda: len(self.ticks()) > count + 3)
        return int(self.ticks()[-1]["pid"])

    def first_by_another(self, holder: int, reached: int) -> dict[str, Any]:
        def following() -> list[dict[str, Any]]:
            return [tick for tick in self.ticks()[reached:] if tick["pid"] != holder]

        _until(following)
        return following()[0]

    def repeated(self, holder: int) -> int:
        """How many steps of this holder were executed by others too."""
        ticks = self.ticks()
        its = {tick["number"] for tick in ticks if tick["pid"] == holder}
        return len(its & {tick["number"] for tick in ticks if tick["pid"] != holder and tick["number"] > min(its)})


@contextlib.contextmanager
def _crew(folder: Path, store: str, settings: dict[str, str], enter: tuple[str, ...]) -> Iterator[_Crew]:
    crew = _Crew(folder, store, settings, enter)
    try:
        yield crew
    finally:
        for process in crew.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _is_below(pid: int, ancestor: int) -> bool:
    """Whether a process is this one or was started by it: a worker may keep its runs in a child."""
    while pid > 1:
        if pid == ancestor:
            return True
        with contextlib.suppress(OSError):
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            continue
        return False
    return False


def _until(seen: Any, told: Any = lambda: "") -> None:
    until = time.monotonic() + _PATIENCE_SECONDS
    while not seen():
        assert time.monotonic() < until, told()
        time.sleep(0.005)
