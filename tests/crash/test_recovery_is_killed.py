"""Recovery killed at every moment of it, again and again, ends where an undisturbed recovery ends."""

from __future__ import annotations

import itertools
from typing import Final

import pytest

from tests.crash import killer
from tests.crash.campaign import Laboratory
from tests.crash.trial import IN_DOUBT, KILLED, Trial

DEEP: Final = 20
MOMENTS: Final = 30
"""So many moments of each recovery are tried: joining, claiming, settling, and the first steps beyond."""

PATIENT: Final = {"PERDURE_DELIVERIES": "1000"}
"""So that a run killed twenty times without a newly completed step is not parked for it."""

FIRST_KILLS: Final = (
    "sent:post:farewell#1",
    "sent:mail:ticket#1",
    "sent:charge:fare#1",
    "unsent:post_later:card-1#1",
    "unsent:mail_later:letter-0#1",
    "answered:charge_later:excursion-1#1",
    "answered:post:packing-1#1",
    "sent:mail:thread#1",
    "unmarked:create_run#1",
    "inside:attempt:main.10#1",
)


def kill_ever_deeper(trial: Trial, first: str) -> None:
    """The first recovery dies at its first moment, the twentieth at its twentieth."""
    trial.kill(first)
    for depth in range(1, DEEP + 1):
        kill_recovery(trial, at=depth)
    trial.resume_to_the_end()


def kill_twice(trial: Trial, kills: tuple[str, int]) -> None:
    first, second = kills
    trial.kill(first)
    kill_recovery(trial, at=second)
    trial.resume_to_the_end()


def kill_recovery(trial: Trial, *, at: int) -> None:
    """Kill a recovery at its nth moment; one that stops before to ask a person is given the answer first."""
    trial.tally.planned += 1
    for _ in range(3):
        before = trial.journal()
        ended = trial.run({killer.AT: str(at)})
        if ended.returncode == KILLED:
            trial.tally.landed += 1
            return
        trial.judge_report(before, ended)
        if ended.returncode == IN_DOUBT:
            trial.settle()


def test_recovery_killed_twenty_deep_ends_in_the_same_state(laboratory: Laboratory) -> None:
    laboratory.campaign("sampled recovery twenty deep", FIRST_KILLS[:1], kill_ever_deeper, settings=PATIENT).check()


@pytest.mark.torture
def test_every_recovery_killed_twenty_deep_ends_in_the_same_state(laboratory: Laboratory) -> None:
    laboratory.campaign("recovery twenty deep", FIRST_KILLS, kill_ever_deeper, settings=PATIENT).check()


@pytest.mark.torture
@pytest.mark.minutes(1)
def test_recovery_killed_at_each_of_its_moments_ends_in_the_same_state(laboratory: Laboratory) -> None:
    kills = itertools.product(FIRST_KILLS, range(1, MOMENTS + 1))
    laboratory.campaign("each moment of recovery", kills, kill_twice, settings=PATIENT).check()
