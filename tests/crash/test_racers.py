"""Many processes resume one run at once: one goes on, the others are told who holds it, the effect happens once."""

from __future__ import annotations

import subprocess
from typing import Final

import pytest

from tests.crash import killer
from tests.crash.scene import HELD, Scene
from tests.crash.trial import KILLED
from tests.summary import note

HELD_BY_ANOTHER: Final = 5


@pytest.mark.slice
@pytest.mark.parametrize("racers", [2, 8, *(pytest.param(many, marks=pytest.mark.torture) for many in (4, 16))])
def test_of_many_that_resume_one_run_exactly_one_proceeds(scene: Scene, racers: int) -> None:
    killed = scene.run("plain", **{killer.AT: "after:step:main.0#1"})
    assert killed.returncode == KILLED
    race(scene, racers)
    assert len([entry for entry in scene.journal().entries if entry.kind == "delivery"]) == 2


@pytest.mark.parametrize("racers", [8])
def test_of_many_that_start_one_run_exactly_one_proceeds(scene: Scene, racers: int) -> None:
    race(scene, racers)
    assert len([entry for entry in scene.journal().entries if entry.kind == "started"]) == 1


def race(scene: Scene, racers: int) -> None:
    gate = scene.folder / "gate"
    processes = [scene.start("plain", CRASH_WAIT="yes", CRASH_GATE=str(gate)) for _ in range(racers)]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    scene.wait_until(lambda: sum(process.poll() is None for process in processes) <= 1, "all but one to end")
    (winner,) = [process for process in processes if process.poll() is None]
    scene.wait_until(lambda: scene.has_arrived(winner), "the winner at the gate")
    losers = [process for process in processes if process is not winner]
    for loser in losers:
        _expect_refused(scene, loser, holder=winner.pid)
    gate.touch()
    won = scene.ended(winner)
    assert won.returncode == 0, won.err
    assert [found.payload for found in scene.executions()] == ["parcel"]
    note("racers for a run", trials=1, landed={"racers": racers}, planned=racers)
    print(f"\n{racers} racers: 1 proceeded, {len(losers)} refused, {len(scene.executions())} effect")


def _expect_refused(scene: Scene, loser: subprocess.Popen[str], *, holder: int) -> None:
    ended = scene.ended(loser)
    assert ended.returncode == HELD_BY_ANOTHER, ended.err
    assert "Traceback" not in ended.err
    named = HELD.search(ended.err)
    assert named is not None, ended.err
    assert int(named[1]) == holder
