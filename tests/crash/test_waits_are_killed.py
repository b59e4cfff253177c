"""A run that waits, and everybody who writes to it, killed at every moment of their work on the store.

Whoever is killed wherever: each question is asked once, each answer and each signal is consumed once, the approved
payment is made once, and no committed step runs again.
"""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest

from tests.crash import killer, person
from tests.crash.evidence import Entry, Journal, read_journal, reading
from tests.crash.nursery import Ended, Nursery, environment
from tests.crash.trial import IN_DOUBT, KILLED
from tests.summary import note
from tests.waits import clerk

WAITS: Final = 3
REFUSED: Final = 2
MOST_ROUNDS: Final = 20
AT_ONCE: Final = 2
SAMPLE: Final = 37
LIBRARIES: Final = ("/usr/lib/*/faketime/libfaketime.so.1", "/usr/local/lib/faketime/libfaketime.so.1")


@dataclass
class Office:
    """A folder with a clerk's run, in which processes are started one after the other."""

    folder: Path
    nursery: Nursery

    @property
    def database(self) -> Path:
        return self.folder / ".perdure" / "perdure.db"

    def act(self, act: str, **settings: str) -> Ended:
        return self.nursery.run(self.folder, {clerk.ACT: act, **settings})

    def journal(self) -> Journal:
        return read_journal(self.database, clerk.RUN_ID)

    def lines(self, file: str) -> list[str]:
        path = self.folder / file
        return path.read_text().splitlines() if path.exists() else []

    def letters(self) -> list[tuple[str, str, int]]:
        with reading(self.database) as database:
            return list(database.execute("SELECT kind, key, taken FROM mailbox ORDER BY mail"))

    def next_word(self) -> str:
        """What somebody who looks at the run would say to it now."""
        answered = [entry.key for entry in self.journal().entries if entry.kind == "answer"]
        (open_wait,) = [entry for entry in self.journal().entries if entry.kind == "wait" and entry.key not in answered]
        match open_wait.name:
            case "ask":
                return "answer send"
            case "wait_for":
                return "signal first" if answered.count(open_wait.key) == 0 and len(answered) < 3 else "signal second"
            case _:
                return "answer approve"

    def acts(self) -> Iterator[str]:
        """The processes of a run that nobody disturbs."""
        while True:
            yield "run"
            if self.journal().state == "completed":
                return
            yield self.next_word()

    def finish(self) -> Ended:
        """Start the run again and say to it what it waits for, until it is done."""
        for _ in range(MOST_ROUNDS):
            ended = self.act("run")
            if ended.returncode == WAITS:
                spoken = self.act(self.next_word())
                assert spoken.returncode == 0, spoken.err
            elif ended.returncode == IN_DOUBT:
                person.settle(self.database, clerk.RUN_ID, self.journal().open_intents(), self._find_out)
            else:
                return ended
        raise AssertionError(f"not done after {MOST_ROUNDS} rounds")

    def _find_out(self, _entry: Entry) -> str | None:
        return next(iter(self.lines("ledger")), None)

    def judge(self, last: Ended, at: str) -> None:
        assert last.returncode == 0, (at, last.err)
        assert last.out == f"{clerk.RESULT}\n", at
        journal = self.journal()
        assert journal.state == "completed", at
        assert self.lines("ledger") == ["paid fare 500"], at
        for kind in ("wait", "answer"):
            keys = [entry.key for entry in journal.entries if entry.kind == kind]
            assert len(keys) == len(set(keys)) == 5, (at, kind, keys)
        for label, key in (("opened", "main.0"), ("closed", "main.6")):
            may_repeat = at.startswith((f"before:step:{key}#", f"inside:step:{key}#"))
            assert self.lines("bodies").count(label) == (2 if may_repeat else 1), (at, label, self.lines("bodies"))
        said = [(kind, taken > 0) for kind, _, taken in self.letters() if kind != "verdict"]
        assert said == [("answer", True), ("signal", True), ("answer", True), ("signal", True)], (at, said)


@dataclass(frozen=True)
class Point:
    """A moment of one of the processes, and the folder as it was when that process began."""

    before: Path
    act: str
    at: str


@pytest.fixture(scope="module")
def nurseries() -> Iterator[list[Nursery]]:
    with Nursery("tests.waits.clerk") as first, Nursery("tests.waits.clerk") as second:
        yield [first, second]


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory, nurseries: list[Nursery]) -> list[Point]:
    """Every moment of a run that nobody disturbs, and of those who write to it."""
    here = tmp_path_factory.mktemp("reference")
    office = Office(here / "office", nurseries[0])
    office.folder.mkdir()
    found = []
    for number, act in enumerate(office.acts()):
        before = here / f"before-{number}"
        shutil.copytree(office.folder, before)
        moments = here / f"moments-{number}"
        ended = office.act(act, **{killer.MOMENTS: str(moments)})
        found += [Point(before, act, at) for at in moments.read_text().splitlines()]
    office.judge(ended, "undisturbed")
    assert {point.act for point in found} == {
        "run", "answer send", "signal first", "answer approve", "signal second",
    }  # fmt: skip
    return found


def kill_at(point: Point, folder: Path, nursery: Nursery) -> None:
    office = Office(folder, nursery)
    shutil.copytree(point.before, folder)
    killed = office.act(point.act, **{killer.AT: point.at})
    assert killed.returncode == KILLED, (point, killed)
    office.judge(office.finish(), point.at)
    shutil.rmtree(folder)


def campaign(points: list[Point], folder: Path, nurseries: list[Nursery]) -> None:
    lanes = [points[lane::AT_ONCE] for lane in range(AT_ONCE)]

    def serve(lane: int) -> None:
        for number, point in enumerate(lanes[lane]):
            kill_at(point, folder / f"{lane}-{number}", nurseries[lane])

    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(serve, range(AT_ONCE)))
    print(f"\nkilled at {len(points)} moments: each question asked once, each word consumed once, 1 payment")
    note("questions, answers and signals", trials=len(points), landed={"kills": len(points)}, planned=len(points))


def test_killed_at_sampled_moments_every_word_is_consumed_once(
    points: list[Point], tmp_path: Path, nurseries: list[Nursery]
) -> None:
    campaign(points[::SAMPLE], tmp_path, nurseries)


@pytest.mark.torture
def test_killed_at_every_moment_every_word_is_consumed_once(
    points: list[Point], tmp_path: Path, nurseries: list[Nursery]
) -> None:
    campaign(points, tmp_path, nurseries)


def test_the_same_word_sent_again_after_its_sender_was_killed_is_refused_and_kept(
    tmp_path: Path, nurseries: list[Nursery]
) -> None:
    office = Office(tmp_path / "office", nurseries[0])
    office.folder.mkdir()
    assert office.act("run").returncode == WAITS
    assert office.act("answer send", **{killer.AT: "unmarked:post#1"}).returncode == KILLED
    again = office.act("answer send")
    assert again.returncode == REFUSED
    assert "Traceback" not in again.err
    assert [kind for kind, _, _ in office.letters()] == ["answer", "refused"]
    assert office.act("run").returncode == WAITS
    assert [(kind, taken > 0) for kind, _, taken in office.letters()] == [("answer", True), ("refused", False)]


@pytest.mark.torture
def test_a_week_passes_between_real_processes(tmp_path: Path) -> None:
    """The clock of every process is moved, not only that of perdure."""
    library = next(itertools.chain.from_iterable(Path("/").glob(name.lstrip("/")) for name in LIBRARIES), None)
    if library is None:
        pytest.skip("libfaketime is not installed: apt install libfaketime")

    def act(act: str, later: str, **settings: str) -> subprocess.CompletedProcess[str]:
        faked = {"LD_PRELOAD": str(library), "FAKETIME": later, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        return subprocess.run(
            [sys.executable, "-m", "tests.waits.clerk"],
            cwd=tmp_path,
            env=environment({clerk.ACT: act, **faked, **settings}),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    assert act("week", "+0d", **{killer.AT: "after:wait:main.1#1"}).returncode == KILLED
    asked = act("week", "+6d")
    assert asked.returncode == WAITS, asked.stderr
    assert "A week later?" in asked.stderr
    answered = act("answer yes", "+7d")
    assert answered.returncode == 0, answered.stderr
    ended = act("week", "+8d")
    assert (ended.returncode, ended.stdout) == (0, "yesclosed\n"), ended.stderr
    office = Office(tmp_path, None)  # type: ignore[arg-type]  # nothing more is started here
    assert office.lines("bodies") == ["opened", "closed"]
    waits = [entry for entry in office.journal().entries if entry.kind == "wait"]
    assert [entry.name for entry in waits] == ["sleep", "ask"]
    assert waits[1].at - waits[0].at >= 6 * 24 * 3600
