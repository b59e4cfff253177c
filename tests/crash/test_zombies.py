"""A holder frozen past `stall_seconds` is taken over; thawed, it is refused and performs nothing more."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from typing import Any, Final

import pytest

from tests.crash import errand, killer, person
from tests.crash.evidence import read_letters
from tests.crash.nursery import Ended
from tests.crash.scene import HELD, Scene
from tests.crash.trial import IN_DOUBT
from tests.summary import note

REFUSED: Final = 5
STALL_SECONDS: Final = 1.0
STRANDS: Final = 4
HASTY: Final = {"PERDURE_STALL_SECONDS": str(STALL_SECONDS), "PERDURE_RENEW_SECONDS": "0.2"}
POLICIES: Final = ("plain", "checked", "keyed")


def sampled(policy: str) -> list[Any]:
    """Every policy in the campaign; whenever the tests are run only this one, where all must behave alike."""
    return [policy, *(pytest.param(other, marks=pytest.mark.torture) for other in POLICIES if other != policy)]


@pytest.mark.parametrize("policy", sampled("plain"))
def test_a_holder_frozen_in_a_step_never_performs_the_effect_behind_it(scene: Scene, policy: str) -> None:
    zombie_gate, heir_gate = scene.folder / "gate-1", scene.folder / "gate-2"
    zombie = scene.start(policy, CRASH_GATE=str(zombie_gate), **HASTY)
    scene.wait_until(lambda: scene.has_arrived(zombie), "the holder at its gate")
    os.kill(zombie.pid, signal.SIGSTOP)
    stall(scene, zombie)
    heir = scene.start(policy, CRASH_GATE=str(heir_gate), **HASTY)
    scene.wait_until(lambda: scene.has_arrived(heir), "the heir at its gate")
    zombie_gate.touch()
    thawed = thaw(scene, zombie)
    expect_refused(thawed)
    named = HELD.search(thawed.err)
    assert named is not None, thawed.err
    assert int(named[1]) == heir.pid
    assert scene.executions() == []
    heir_gate.touch()
    assert scene.ended(heir).returncode == 0
    assert len(scene.executions()) == 1


@pytest.mark.parametrize("policy", sampled("checked"))
def test_a_holder_thawed_after_the_run_completed_performs_nothing(scene: Scene, policy: str) -> None:
    gate = scene.folder / "gate"
    zombie = scene.start(policy, CRASH_GATE=str(gate), **HASTY)
    scene.wait_until(lambda: scene.has_arrived(zombie), "the holder at its gate")
    os.kill(zombie.pid, signal.SIGSTOP)
    stall(scene, zombie)
    gate.touch()
    assert scene.run(policy, **HASTY).returncode == 0
    completed = scene.journal()
    expect_refused(thaw(scene, zombie))
    assert scene.journal() == completed
    assert len(scene.executions()) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_holder_frozen_between_its_intent_and_its_effect_never_performs_it(scene: Scene, policy: str) -> None:
    zombie = freeze(scene, policy, at="unfenced:holds#1")
    assert [entry.name for entry in scene.journal().open_intents()]
    heir = scene.run(policy, **HASTY)
    performed = 0 if policy == "plain" else 1
    assert heir.returncode == (IN_DOUBT if policy == "plain" else 0), heir.err
    assert len(scene.executions()) == performed
    expect_refused(thaw(scene, zombie))
    assert len(scene.executions()) == performed
    if policy == "plain":
        person.settle(scene.database, errand.RUN_ID, scene.journal().open_intents(), lambda _: None)
        assert scene.run(policy, **HASTY).returncode == 0
    assert len(scene.executions()) == 1


def test_a_holder_frozen_past_the_fence_is_excluded_by_a_key_that_the_outside_honours(scene: Scene) -> None:
    zombie = freeze(scene, "keyed", at="fenced:holds#1")
    assert scene.run("keyed", **HASTY).returncode == 0
    expect_refused(thaw(scene, zombie))
    assert scene.world.requests() == 2
    assert len(scene.executions()) == 1


@pytest.mark.parametrize("policy", POLICIES)
def test_a_late_confirmation_becomes_evidence(scene: Scene, policy: str) -> None:
    operation = {"plain": "post", "checked": "mail", "keyed": "charge"}[policy]
    zombie = freeze(scene, policy, at=f"answered:{operation}:parcel#1")
    heir = scene.run(policy, **HASTY)
    assert heir.returncode == (IN_DOUBT if policy == "plain" else 0), heir.err
    expect_refused(thaw(scene, zombie))
    assert [(kind, attempt) for kind, _, attempt in read_letters(scene.database, errand.RUN_ID)] == [("evidence", 1)]
    settled = scene.run(policy, **HASTY)
    assert settled.returncode == 0, settled.err
    assert json.loads(settled.out)[-2] == f"{operation}/parcel"
    assert len(scene.executions()) == 1
    verdicts = [entry.body["outcome"] for entry in scene.journal().verdicts()]
    assert verdicts == ([] if policy == "keyed" else ["happened"])


def test_a_holder_that_only_works_long_is_not_taken_over(scene: Scene) -> None:
    gate = scene.folder / "gate"
    holder = scene.start("plain", CRASH_GATE=str(gate), **HASTY)
    scene.wait_until(lambda: scene.has_arrived(holder), "the holder at its gate")
    time.sleep(1.5 * STALL_SECONDS)
    expect_refused(scene.run("plain", **HASTY))
    gate.touch()
    assert scene.ended(holder).returncode == 0
    assert len(scene.executions()) == 1


def test_a_holder_that_nobody_took_over_goes_on_after_its_frost(scene: Scene) -> None:
    holder = freeze(scene, "plain", at="unfenced:holds#1")
    thawed = thaw(scene, holder)
    assert thawed.returncode == 0, thawed.err
    assert len(scene.executions()) == 1


def test_no_strand_of_a_thawed_holder_extends_the_journal(scene: Scene) -> None:
    """The second strand of the zombie expects a journal one record longer: just as long as the heir's claim made it."""
    zombie_gate, heir_gate = scene.folder / "gate-1", scene.folder / "gate-2"
    zombie = scene.start("keyed", CRASH_GATE=str(zombie_gate), CRASH_STRANDS=str(STRANDS), **HASTY)
    scene.wait_until(lambda: scene.arrived(zombie) == STRANDS, "every strand of the holder at its gate")
    os.kill(zombie.pid, signal.SIGSTOP)
    stall(scene, zombie)
    heir = scene.start("keyed", CRASH_GATE=str(heir_gate), CRASH_STRANDS=str(STRANDS), **HASTY)
    scene.wait_until(lambda: scene.arrived(heir) == STRANDS, "every strand of the heir at its gate")
    claimed = scene.journal()
    zombie_gate.touch()
    expect_refused(thaw(scene, zombie))
    assert scene.journal() == claimed
    heir_gate.touch()
    finished = scene.ended(heir)
    assert finished.returncode == 0, finished.err
    assert len(scene.executions()) == 1


def freeze(scene: Scene, policy: str, *, at: str) -> subprocess.Popen[str]:
    """A holder that froze at this moment, long enough ago to be taken over."""
    zombie = scene.start(policy, **{killer.FREEZE_AT: at}, **HASTY)
    stall(scene, zombie)
    return zombie


def stall(scene: Scene, zombie: subprocess.Popen[str]) -> None:
    scene.wait_frozen(zombie)
    time.sleep(1.2 * STALL_SECONDS)


def thaw(scene: Scene, zombie: subprocess.Popen[str]) -> Ended:
    os.kill(zombie.pid, signal.SIGCONT)
    note("frozen holders", trials=1, landed={"freezes": 1}, planned=1)
    return scene.ended(zombie)


def expect_refused(ended: Ended) -> None:
    assert ended.returncode == REFUSED, ended.err
    assert "Traceback" not in ended.err
