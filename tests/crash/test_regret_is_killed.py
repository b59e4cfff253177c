"""`perdure fork` and `perdure undo` killed at every moment of their work on the store.

A killed fork leaves one fork or none, and the other run as it was. A killed undo goes on when it is asked for again:
each effect is taken back once, and nothing is done twice.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from perdure.records import undo_id
from tests.crash import killer, person, regret
from tests.crash.evidence import Entry, Journal, read_journal, reading
from tests.crash.nursery import ROOT, Ended, Nursery
from tests.crash.trial import IN_DOUBT, KILLED
from tests.summary import note

SAMPLE: Final = 14
MOST_ROUNDS: Final = 5
APP: Final = str(ROOT / "tests" / "crash" / "regret.py")
FORK: Final = f"fork {regret.RUN_ID} --at 3 --set mood=brave --yes"
UNDO: Final = f"undo {regret.RUN_ID} --app {APP} --yes"
TAKEN_BACK: Final = ("release meal", "cancel car", "release hotel", "cancel flight")


@dataclass
class Desk:
    """A folder with a completed run, in which one command after the other is typed."""

    folder: Path
    nursery: Nursery

    @property
    def database(self) -> Path:
        return self.folder / ".perdure" / "perdure.db"

    def type(self, words: str, **settings: str) -> Ended:
        return self.nursery.run(self.folder, {"CRASH_WORDS": words, **settings})

    def copy(self, folder: Path) -> Desk:
        shutil.copytree(self.folder, folder)
        return Desk(folder, self.nursery)

    def ledger(self) -> list[str]:
        return (self.folder / "ledger").read_text().splitlines()

    def journal(self, run_id: str = regret.RUN_ID) -> Journal:
        return read_journal(self.database, run_id)

    def forks(self) -> list[str]:
        with reading(self.database) as database:
            runs = [run_id for (run_id,) in database.execute("SELECT run_id FROM runs")]
        return [run_id for run_id in runs if "forked_from" in self.journal(run_id).entries[0].body]

    def moments(self, words: str) -> int:
        """How many moments a command that nobody kills passes."""
        collected = self.folder / "moments"
        assert self.type(words, **{killer.MOMENTS: str(collected)}).returncode == 0
        return len(collected.read_text().splitlines())


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    with Nursery("tests.crash.regret") as nursery:
        desk = Desk(tmp_path_factory.mktemp("desk") / "prepared", nursery)
        desk.folder.mkdir()
        assert desk.type("go on").out == "calm\n"
        yield desk


def kill_everywhere(desk: Desk, words: str, judge: Callable[[Desk], None], folder: Path, *, every: int) -> None:
    """Kill the command at its moments, one trial for each, and judge what is left; all kills must land."""
    points = range(1, desk.copy(folder / "counted").moments(words) + 1, every)

    def trial(point: int) -> int:
        copy = desk.copy(folder / str(point))
        killed = copy.type(words, **{killer.AT: str(point)})
        judge(copy)
        return killed.returncode

    ends = Counter(map(trial, points))
    note("forks and undos", trials=len(points), landed={"kills": ends[KILLED]}, planned=len(points))
    assert ends == {KILLED: len(points)}


def judge_fork(desk: Desk) -> None:
    """One fork or none; made then, it goes on from its step, and repeats nothing before it."""
    made = desk.forks()
    assert len(made) <= 1
    if not made:
        assert desk.type(FORK).returncode == 0
        made = desk.forks()
    assert len(made) == 1
    before = len(desk.ledger())
    ended = desk.type("go on", CRASH_RUN_ID=made[0])
    assert (ended.returncode, ended.out) == (0, "brave\n"), ended.err
    assert desk.ledger()[before:] == ["reserve hotel", "think car", "book car", "think meal", "reserve meal"]
    assert desk.type("verify").returncode == 0


def judge_undo(desk: Desk) -> None:
    """Asked again, it goes on; what was interrupted is looked for, or a person is asked; each is taken back once."""
    for _ in range(MOST_ROUNDS):
        ended = desk.type(UNDO)
        if ended.returncode != IN_DOUBT:
            break
        doubtful = desk.journal(undo_id(regret.RUN_ID)).open_intents()
        assert [entry.name for entry in doubtful] == ["undo book"]
        person.settle(desk.database, undo_id(regret.RUN_ID), doubtful, lambda entry: find_out(desk, entry))
    assert ended.returncode == 0, ended.err
    taken_back = [line for line in desk.ledger() if line.startswith(("cancel", "release"))]
    assert [" ".join(line.split()[:2]) for line in taken_back] == list(TAKEN_BACK)
    assert desk.journal(undo_id(regret.RUN_ID)).state == "completed"
    assert desk.type("verify").returncode == 0


def find_out(desk: Desk, entry: Entry) -> str | None:
    what = entry.body["arguments"]["what"]
    is_done = any(line.startswith(f"cancel {what} ") for line in desk.ledger())
    return f"cancelled {what}" if is_done else None


def test_a_fork_killed_at_sampled_moments_is_there_once_or_not_at_all(desk: Desk, tmp_path: Path) -> None:
    kill_everywhere(desk, FORK, judge_fork, tmp_path, every=6)


def test_an_undo_killed_at_sampled_moments_takes_everything_back_once(desk: Desk, tmp_path: Path) -> None:
    kill_everywhere(desk, UNDO, judge_undo, tmp_path, every=SAMPLE)


@pytest.mark.torture
def test_a_fork_killed_at_every_moment_is_there_once_or_not_at_all(desk: Desk, tmp_path: Path) -> None:
    kill_everywhere(desk, FORK, judge_fork, tmp_path, every=1)


@pytest.mark.torture
def test_an_undo_killed_at_every_moment_takes_everything_back_once(desk: Desk, tmp_path: Path) -> None:
    kill_everywhere(desk, UNDO, judge_undo, tmp_path, every=1)


def test_killing_a_fork_or_an_undo_leaves_the_other_run_as_it_was(desk: Desk, tmp_path: Path) -> None:
    before = desk.journal()
    for number, words in enumerate((FORK, UNDO)):
        copy = desk.copy(tmp_path / str(number))
        copy.type(words, **{killer.AT: "8"})
        assert copy.journal() == before
