"""A fan-out that is killed again and again: each child is created once, each effect happens once, no result is lost."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from perdure.records import Kind
from perdure.store import open_store
from perdure.store.protocol import Finding, Store
from tests.crash.fan import RUN_ID
from tests.crash.nursery import Ended, Nursery
from tests.crash.trial import KILLED
from tests.summary import note


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.crash.fan") as opened:
        yield opened


class FanOut:
    """Processes on one fan-out, one after the other, in one folder, with one ledger."""

    def __init__(self, folder: Path, nursery: Nursery, count: int) -> None:
        self._folder = folder
        self._nursery = nursery
        self._count = count

    def run(self, **settings: str) -> Ended:
        # So many deaths in a row would park a run that completed no step between three of them, as they should.
        given = {"CRASH_COUNT": str(self._count), "PERDURE_DELIVERIES": "1000", "PERDURE_QUIET": "true", **settings}
        return self._nursery.run(self._folder, given)

    def ledger(self) -> list[str]:
        path = self._folder / "ledger"
        return path.read_text().splitlines() if path.exists() else []

    def store(self) -> Store:
        return open_store(str(self._folder / ".perdure" / "perdure.db"))


def _campaign(fan_out: FanOut, *, count: int, kills: int, seed: int) -> str:
    """Kill so many processes in the middle, let one finish, and look at everything that is left."""
    chance = random.Random(seed)
    landed = 0
    deaths: Counter[int] = Counter()
    for after in sorted(chance.randrange(count - 5) for _ in range(kills)):
        ended = fan_out.run(CRASH_AFTER=str(after), CRASH_MOMENTS_LATER=str(chance.randrange(60)))
        assert ended.returncode == KILLED, ended.err
        assert len(fan_out.ledger()) < count, "the kill did not land in the middle"
        landed += 1
        deaths[len(fan_out.ledger())] += 1
    assert landed == kills
    ended = fan_out.run()
    assert ended.returncode == 0, ended.err
    assert json.loads(ended.out) == [3 * number for number in range(count)]
    _is_right(fan_out, count)
    note("children", trials=1, landed={"kills": landed}, planned=kills)
    return f"{landed} kills landed, at {len(deaths)} heights of the ledger, from {min(deaths)} to {max(deaths)}"


def _is_right(fan_out: FanOut, count: int) -> None:
    effects = Counter(int(line.split()[0]) for line in fan_out.ledger())
    assert effects == Counter(range(count))
    store = fan_out.store()
    try:
        runs = store.list_runs(limit=10 * count)
        children = [run for run in runs if run.run_id != RUN_ID]
        assert len(runs) == len({run.run_id for run in runs}) == count + 1
        assert len(children) == count
        assert {run.state for run in runs} == {"completed"}
        started = Counter(record.body for run in children for record in store.load_journal(run.run_id)[:1])
        assert len(started) == count
        kinds = Counter(record.kind for record in store.load_journal(RUN_ID))
        assert (kinds[Kind.WAIT], kinds[Kind.ANSWER]) == (count, count)
        assert [finding for finding in store.check() if isinstance(finding, Finding)] == []
    finally:
        store.close()


def test_forty_children_killed_ten_times(tmp_path: Path, nursery: Nursery) -> None:
    print(_campaign(FanOut(tmp_path, nursery, 40), count=40, kills=10, seed=40))


@pytest.mark.torture
@pytest.mark.parametrize("seed", range(1, 6))
def test_two_hundred_children_killed_fifty_times(tmp_path: Path, nursery: Nursery, seed: int) -> None:
    print(_campaign(FanOut(tmp_path, nursery, 200), count=200, kills=50, seed=seed))
