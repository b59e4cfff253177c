"""Everything that can happen to workers and their server, at random: nothing is lost, nothing is done twice."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.chaos.campaign import run
from tests.chaos.plan import KINDS, Terms, plan

SEED: Final = int(os.environ.get("CHAOS_SEED", "7"))
MINUTES: Final = float(os.environ.get("CHAOS_MINUTES", "10"))


def test_runs_survive_a_short_campaign_of_every_fault() -> None:
    outcome = run(Terms(seed=SEED, seconds=8.0, runs=6, workers=3, concurrency=4, haste=3.0, delay_seconds=0.8))
    assert not outcome.wrong, "\n".join([outcome.table(), *outcome.wrong[:20]])
    assert sum(outcome.landed.values()) > 0, outcome.table()


@pytest.mark.torture
@pytest.mark.minutes(MINUTES)
def test_five_hundred_runs_survive_ten_minutes_of_every_fault() -> None:
    outcome = run(Terms(seed=SEED, seconds=60 * MINUTES, runs=max(10, round(50 * MINUTES))))
    assert not outcome.wrong, "\n".join([outcome.table(), *outcome.wrong[:20]])
    for kind, planned in outcome.planned.items():
        assert outcome.landed[kind] * 2 > planned, f"{kind} hardly ever met a run\n{outcome.table()}"


def test_plan_follows_from_the_seed_alone() -> None:
    assert plan(Terms(seed=3), kinds=KINDS) == plan(Terms(seed=3), kinds=KINDS)
    assert plan(Terms(seed=3), kinds=KINDS) != plan(Terms(seed=4), kinds=KINDS)
