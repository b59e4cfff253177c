"""Many runs in one process share its transactions and its death; each recovers by itself."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import pytest

from tests.crash import crowd, killer, person
from tests.crash.evidence import Entry, Journal, effect_key, read_journal
from tests.crash.nursery import Nursery
from tests.crash.outside import World
from tests.crash.trial import KILLED, Tally

SAMPLED: Final = 74
ROUNDS: Final = 4


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery("tests.crash.crowd") as opened:
        yield opened


def test_a_crowd_killed_at_sampled_moments_repeats_nothing(tmp_path: Path, nursery: Nursery, outside_port: int) -> None:
    campaign("sampled crowd", tmp_path, nursery, outside_port, every=SAMPLED)


@pytest.mark.torture
@pytest.mark.minutes(1)
def test_a_crowd_killed_at_every_moment_repeats_nothing(tmp_path: Path, nursery: Nursery, outside_port: int) -> None:
    campaign("crowd", tmp_path, nursery, outside_port, every=1)


def campaign(name: str, folder: Path, nursery: Nursery, port: int, *, every: int) -> None:
    """Kill a crowd at every nth moment of an uninterrupted one; each run passes each, whichever comes first."""
    moments = folder / "moments"
    tally = Tally(name)
    undisturbed = CrowdTrial(
        folder / "undisturbed", nursery, World(port, str(folder)), tally, {killer.MOMENTS: str(moments)}
    )
    undisturbed.resume_to_the_end()
    for number, moment in enumerate(moments.read_text().splitlines()[::every]):
        tally.points += 1
        trial = CrowdTrial(folder / str(number), nursery, World(port, f"{folder}/{number}"), tally)
        trial.kill(moment)
        trial.resume_to_the_end()
    tally.check()


class CrowdTrial:
    """One crowd, killed and resumed."""

    def __init__(
        self,
        folder: Path,
        nursery: Nursery,
        world: World,
        tally: Tally,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        folder.mkdir()
        self.folder = folder
        self.world = world
        self.tally = tally
        self._nursery = nursery
        self._settings = {
            "CRASH_PORT": str(world.port),
            "CRASH_WORLD": world.name,
            "CRASH_BODIES": str(folder / "bodies"),
            **(settings or {}),
        }

    @property
    def database(self) -> Path:
        return self.folder / ".perdure" / "perdure.db"

    def kill(self, moment: str) -> None:
        self.tally.planned += 1
        ended = self._nursery.run(self.folder, {**self._settings, killer.AT: moment})
        self.tally.landed += ended.returncode == KILLED

    def resume_to_the_end(self) -> None:
        settled: set[str] = set()
        for _ in range(ROUNDS):
            saved = {effect_key(run, key) for run in crowd.RUNS for key in self._journal(run).completed()}
            doubtful = {run for run in crowd.RUNS if self._in_doubt(run)} - settled
            ended = self._nursery.run(self.folder, self._settings)
            assert ended.returncode == 0, ended.err
            told: dict[str, list[str] | str] = json.loads(ended.out)
            self.tally.resumed += 1
            self.tally.rerun += sum(key in saved for pid, key in self._bodies() if pid == ended.pid)
            self.tally.in_doubt += len(doubtful)
            self.tally.reported += sum(told[run] == "effect_in_doubt" for run in doubtful)
            if not doubtful:
                return self._judge(told)
            for run in doubtful:
                person.settle(self.database, run, self._in_doubt(run), self._receipt_of(run))
            settled |= doubtful
        return self.tally.wrong.append(f"{self.folder.name}: not done after {ROUNDS} rounds")

    def _judge(self, told: dict[str, list[str] | str]) -> None:
        expected = {run: ["plan/0", "plan/1", f"charge/{run}", f"post/{run}", "plan/2"] for run in crowd.RUNS}
        if told != expected:
            self.tally.wrong.append(f"{self.folder.name}: {told}")
        done = Counter((found.operation, found.payload) for found in self.world.executions())
        self.tally.repeated += sum(count - 1 for count in done.values())
        if set(done) != {(operation, run) for operation in ("charge", "post") for run in crowd.RUNS}:
            self.tally.wrong.append(f"{self.folder.name}: the outside saw {done}")

    def _journal(self, run: str) -> Journal:
        return read_journal(self.database, run)

    def _in_doubt(self, run: str) -> list[Entry]:
        return [entry for entry in self._journal(run).open_intents() if entry.name == "post"]

    def _receipt_of(self, run: str) -> person.FindOut:
        return lambda entry: self.world.lookup(entry.name, effect_key(run, entry.key))

    def _bodies(self) -> list[tuple[int, str]]:
        path = self.folder / "bodies"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(pid), key) for pid, key, _ in (line.split() for line in lines)]
