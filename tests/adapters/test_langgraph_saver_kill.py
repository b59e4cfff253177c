"""A process that uses a saver is killed: what was acknowledged is there, what was not is absent or whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests import summary
from tests.adapters.conversations import STEPS, config, message, put
from tests.sampling import every, points


@dataclass(frozen=True)
class Nursery:
    """Children that are killed, and what was acknowledged to them."""

    store: Path
    folder: Path
    process: subprocess.Popen[str]

    def trial(self, name: str, moment: str) -> tuple[int, int]:
        """The signal that ended the child, and how many moments there were if it came to its end."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{name} {moment}\n")
        self.process.stdin.flush()
        ended_by, moments = self.process.stdout.readline().split()
        return int(ended_by), int(moments)

    def acknowledged(self, name: str) -> set[str]:
        told = self.folder / name
        return set(told.read_text().splitlines()) if told.exists() else set()


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    with opened(tmp_path) as made:
        yield made


@contextmanager
def opened(folder: Path) -> Iterator[Nursery]:
    store = folder / "saver.db"
    with subprocess.Popen(
        [sys.executable, "-m", "tests.adapters.saver_nursery", str(store), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PERDURE_DURABILITY": "process"},
    ) as process:
        yield Nursery(store, folder, process)
        assert process.stdin is not None
        process.stdin.close()


@every(sampled=7)
def test_what_was_acknowledged_is_there_and_what_was_not_is_absent_or_whole(nursery: Nursery, stride: int) -> None:
    ended_by, moments = nursery.trial("whole", "0")
    assert (ended_by, moments > 100) == (0, True)
    landed = 0
    for moment in points(range(1, moments + 1), stride):
        name = f"killed-at-{moment}"
        ended_by, _ = nursery.trial(name, str(moment))
        landed += ended_by == signal.SIGKILL
        look(nursery, name)
    planned = len(points(range(1, moments + 1), stride))
    summary.note("LangGraph saver", trials=planned, landed={"kills": landed}, planned=planned)
    assert landed == planned
    assert look(nursery, "whole") == STEPS


@every(sampled=5)
def test_a_kill_from_outside_at_any_time_loses_nothing(nursery: Nursery, stride: int) -> None:
    nursery.trial("whole", "0")
    landed = 0
    for milliseconds in points(range(4, 60), stride):
        name = f"killed-after-{milliseconds}"
        ended_by, _ = nursery.trial(name, f"~{milliseconds}")
        landed += ended_by == signal.SIGKILL
        look(nursery, name)
    assert landed > 0


def test_processes_that_use_one_store_at_once_lose_nothing(tmp_path: Path) -> None:
    with opened(tmp_path) as one, opened(tmp_path) as other:
        with ThreadPoolExecutor() as pool:
            ends = [
                *pool.map(
                    lambda made: [made[1].trial(f"{made[0]}-{number}", "0") for number in range(4)],
                    enumerate((one, other)),
                )
            ]
        assert [ended_by for trials in ends for ended_by, _ in trials] == [0] * 8
        for number in range(4):
            assert look(one, f"0-{number}") == look(one, f"1-{number}") == STEPS


def look(nursery: Nursery, name: str) -> int:
    """Compare what is kept of a thread with what was acknowledged; it must also go on from there."""
    from perdure.adapters.langgraph import PerdureSaver

    acknowledged = nursery.acknowledged(name)
    with PerdureSaver(nursery.store) as saver:
        found = [*saver.list(config(name))]
        steps = len(found)
        assert [one.metadata["step"] for one in found] == [*reversed(range(steps))]
        assert {f"put {step}" for step in range(steps)} >= {line for line in acknowledged if line.startswith("put")}
        for one in found:
            step = one.metadata["step"]
            assert one.checkpoint["channel_values"]["messages"] == [*map(message, range(step + 1))]
            assert (one.parent_config is None) == (step == 0)
            writes = one.pending_writes or []
            assert len(writes) in (0, 2, 4)
            whole = [(f"task-{task}", "messages", [message(10 * step + task)]) for task in range(len(writes) // 2)]
            assert writes[::2] == whole
            assert [value for _, _, value in writes[1::2]] == [*range(len(writes) // 2)]
            assert {f"writes {step} {task}" for task in range(len(writes) // 2)} >= {
                line for line in acknowledged if line.startswith(f"writes {step} ")
            }
        newest = saver.get_tuple(config(name))
        assert (newest.metadata["step"] if newest else -1) == steps - 1
        above = newest.config if newest else config(name)
        put(saver, above, steps, messages=[*map(message, range(steps + 1))])
        assert len([*saver.list(config(name))]) == steps + 1
    return steps
