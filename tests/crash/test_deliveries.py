"""A run that keeps ending its workers is parked; one that makes progress between their deaths is not."""

from __future__ import annotations

from typing import Final

import pytest

from tests.crash import killer
from tests.crash.campaign import Laboratory
from tests.crash.scene import Scene
from tests.crash.trial import KILLED, Trial

PARKED: Final = 5
AT_ITS_FIRST_STEP: Final = {"CRASH_RUN_ID": "doomed", killer.AT: "before:step:main.0#1"}
AT_ITS_EFFECT: Final = {"CRASH_RUN_ID": "doomed", killer.AT: "unsent:charge:parcel#1"}


def die_with_progress(trial: Trial, legs: range) -> None:
    for leg in legs:
        trial.kill(f"after:step:main.{leg}#1")
    trial.resume_to_the_end()


@pytest.mark.parametrize("legs", [range(1, 5), pytest.param(range(2, 6), marks=pytest.mark.torture)])
def test_a_run_that_dies_four_times_with_progress_between_is_not_parked(laboratory: Laboratory, legs: range) -> None:
    laboratory.campaign("progress between deaths", [legs], die_with_progress).check()


def test_a_run_that_dies_three_times_without_progress_is_parked_and_hinders_no_other(scene: Scene) -> None:
    assert [scene.run("keyed", **AT_ITS_FIRST_STEP).returncode for _ in range(3)] == [KILLED] * 3
    refused = scene.run("keyed", CRASH_RUN_ID="doomed")
    assert refused.returncode == PARKED, refused.err
    assert "3 workers in a row without completing a step" in refused.err
    assert "Traceback" not in refused.err
    assert (scene.journal("doomed").state, scene.journal("doomed").reason) == ("waiting", "parked")
    healthy = scene.run("keyed", CRASH_RUN_ID="healthy")
    assert healthy.returncode == 0, healthy.err
    assert len(scene.executions()) == 1


def test_a_parked_run_stays_parked_and_is_not_written_to_again(scene: Scene) -> None:
    for _ in range(3):
        scene.run("keyed", **AT_ITS_FIRST_STEP)
    assert scene.run("keyed", CRASH_RUN_ID="doomed").returncode == PARKED
    parked = scene.journal("doomed")
    assert [scene.run("keyed", CRASH_RUN_ID="doomed").returncode for _ in range(3)] == [PARKED] * 3
    assert scene.journal("doomed") == parked


def test_deaths_inside_an_effect_count_although_steps_before_it_were_completed(scene: Scene) -> None:
    assert [scene.run("keyed", **AT_ITS_EFFECT).returncode for _ in range(3)] == [KILLED] * 3
    fourth = scene.run("keyed", CRASH_RUN_ID="doomed")
    # The first of the three completed two steps before it died, so two deliveries without progress are counted.
    assert fourth.returncode == 0, fourth.err
    assert len(scene.executions()) == 1
