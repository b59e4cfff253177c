"""Fifty steps, killed at every side of every write and inside every effect, resumed, and judged."""

from __future__ import annotations

from typing import Final

import pytest

from tests.crash.campaign import Laboratory
from tests.crash.trial import Trial

SAMPLED: Final = 34
LANDING_SECONDS: Final = 0.3
"""How long after its sender's death a delayed request lands; the agent's effects allow for more."""

_BODY_SIDES: Final = ("unsent", "sent", "answered")


def kill_once(trial: Trial, at: str) -> None:
    trial.kill(at)
    trial.resume_to_the_end()


def kill_while_in_flight(trial: Trial, at: str) -> None:
    trial.world.delay(LANDING_SECONDS)
    kill_once(trial, at)


def sides(laboratory: Laboratory, *, of_bodies: bool) -> list[str]:
    moments = laboratory.reference.moments
    return [name for name in moments if name.startswith(_BODY_SIDES) is of_bodies and ":beat#" not in name]


def test_kill_at_sampled_writes_repeats_nothing(laboratory: Laboratory) -> None:
    laboratory.campaign("sampled writes", sides(laboratory, of_bodies=False)[::SAMPLED], kill_once).check()


def test_kill_inside_sampled_effects_repeats_nothing(laboratory: Laboratory) -> None:
    laboratory.campaign("sampled effects", sides(laboratory, of_bodies=True)[::10], kill_once).check()


def test_sampled_requests_that_land_after_their_sender_died_are_not_repeated(laboratory: Laboratory) -> None:
    points = [name for name in sides(laboratory, of_bodies=True) if name.startswith("sent")][::6]
    laboratory.campaign("sampled in flight", points, kill_while_in_flight).check()


@pytest.mark.torture
@pytest.mark.minutes(1)
def test_kill_at_every_write_repeats_nothing(laboratory: Laboratory) -> None:
    laboratory.campaign("every write", sides(laboratory, of_bodies=False), kill_once).check()


@pytest.mark.torture
def test_kill_inside_every_effect_repeats_nothing(laboratory: Laboratory) -> None:
    laboratory.campaign("every effect", sides(laboratory, of_bodies=True), kill_once).check()


@pytest.mark.torture
@pytest.mark.minutes(1)
def test_requests_that_land_after_their_sender_died_are_not_repeated(laboratory: Laboratory) -> None:
    points = sides(laboratory, of_bodies=True)
    laboratory.campaign("every effect in flight", points, kill_while_in_flight).check()
