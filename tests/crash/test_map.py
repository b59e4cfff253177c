"""Killed maps: they go on at the first item that is not committed, and no effect happens twice."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests import warm
from tests.crash.nursery import Ended, environment
from tests.crash.trial import KILLED
from tests.summary import note

PATIENCE_SECONDS = 120.0


class Mapper:
    """Processes on one map, in one folder, with one ledger."""

    def __init__(self, folder: Path, agent: str, *, count: int, batch: int, lanes: int = 1) -> None:
        self._folder = folder
        self._count = count
        self._settings = {
            "CRASH_AGENT": agent,
            "CRASH_COUNT": str(count),
            "CRASH_BATCH": str(batch),
            "CRASH_LANES": str(lanes),
        }

    def start(self, *, dies_at: int = -1) -> subprocess.Popen[str]:
        return warm.Popen(
            [sys.executable, "-m", "tests.crash.mapper"],
            cwd=self._folder,
            env=environment({**self._settings, "CRASH_AT": str(dies_at)}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *, dies_at: int = -1) -> Ended:
        """A process, to its end."""
        process = self.start(dies_at=dies_at)
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
        return Ended(process.pid, process.returncode, out, err)

    def killed_after(self, calls: int) -> int:
        """Kill a process from outside once the ledger has so many lines; its return code."""
        with self.start() as process:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while process.poll() is None and len(self.ledger()) < calls:
                assert time.monotonic() < deadline
                time.sleep(0.005)  # who reads all the time takes half of what the process could do
            process.kill()
            process.communicate()
        return process.returncode

    def ledger(self) -> list[str]:
        path = self._folder / "ledger"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def expected(self) -> str:
        """What the agent prints when every result is right."""
        return f"{3 * sum(range(self._count))}\n"


@pytest.mark.parametrize(
    ("count", "place"), [(10_000, 9_800), pytest.param(100_000, 98_000, marks=pytest.mark.exhaustive)]
)
def test_a_long_map_killed_near_its_end_resumes_there(tmp_path: Path, count: int, place: int) -> None:
    mapper = Mapper(tmp_path, "walk", count=count, batch=100)
    assert mapper.run(dies_at=place).returncode == KILLED
    before = len(mapper.ledger())
    assert before == place + 1
    ended = mapper.run()
    assert (ended.returncode, ended.out) == (0, mapper.expected), ended.err
    assert f"map(pure) goes on after {place:,} items that are done" in ended.err
    after = mapper.ledger()[before:]
    assert after == [str(number) for number in range(place, count)]


@pytest.mark.parametrize("place", [0, 1, 99, 100, 101, 495, 999])
def test_wherever_a_map_is_killed_at_most_one_batch_is_repeated(tmp_path: Path, place: int) -> None:
    mapper = Mapper(tmp_path, "walk", count=1_000, batch=100)
    assert mapper.run(dies_at=place).returncode == KILLED
    ended = mapper.run()
    assert (ended.returncode, ended.out) == (0, mapper.expected), ended.err
    calls = Counter(mapper.ledger())
    assert len(calls) == 1_000
    assert calls.total() - 1_000 <= 100
    assert max(calls.values()) <= 2


@pytest.mark.parametrize("agent", ["walk", "walk_later"])
def test_items_that_run_at_once_are_within_the_same_bound(tmp_path: Path, agent: str) -> None:
    mapper = Mapper(tmp_path, agent, count=2_000, batch=100, lanes=8)
    assert mapper.run(dies_at=1_777).returncode == KILLED
    ended = mapper.run()
    assert (ended.returncode, ended.out) == (0, mapper.expected), ended.err
    calls = Counter(mapper.ledger())
    assert len(calls) == 2_000
    assert calls.total() - 2_000 <= 100


def test_a_map_that_is_killed_again_and_again_loses_a_batch_each_time_at_most(tmp_path: Path) -> None:
    mapper = Mapper(tmp_path, "walk", count=2_000, batch=100)
    kills = [150, 420, 430, 1_000, 1_990]
    for place in kills:
        assert mapper.run(dies_at=place).returncode == KILLED
    ended = mapper.run()
    assert (ended.returncode, ended.out) == (0, mapper.expected), ended.err
    assert len(mapper.ledger()) - 2_000 <= 100 * len(kills)


@pytest.mark.parametrize("lanes", [8, pytest.param(1, marks=pytest.mark.torture)])
def test_no_effect_of_a_killed_map_happens_twice(tmp_path: Path, lanes: int) -> None:
    mapper = Mapper(tmp_path, "payments", count=2_000, batch=50, lanes=lanes)
    chance = random.Random(lanes)
    places = sorted(chance.sample(range(1, 1_900), 6))
    killed = sum(mapper.killed_after(place) == KILLED for place in places)
    ended = mapper.run()
    assert (ended.returncode, ended.out) == (0, mapper.expected), ended.err
    note("maps of effects", trials=1, landed={"kills": killed}, planned=len(places))
    assert killed >= 3
    payments = Counter(line.split()[0] for line in mapper.ledger())
    keys = {line.split()[1] for line in mapper.ledger()}
    assert len(payments) == len(keys) == 2_000
    assert set(payments.values()) == {1}
    print(f"\n{killed} kills, {os.getpid()}: {len(mapper.ledger())} effects")
