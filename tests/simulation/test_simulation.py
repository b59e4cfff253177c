"""Workers, people and an outside world on one seed, with faults at every point: every promise is kept."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests import sampling
from tests.simulation import play
from tests.simulation.campaign import FAULTS, StoreKind, campaign, played, replay_command, report
from tests.simulation.faults import Temper, drawn_temper
from tests.simulation.plan import RunPlan
from tests.summary import note

ROOT = Path(__file__).parents[2]
CHUNK = 50


def chunks(first: int, seeds: int) -> list[range]:
    return [range(start, start + CHUNK) for start in range(first, first + seeds, CHUNK)]


def assert_kept(seeds: range, store: StoreKind) -> None:
    summary = campaign(seeds, store=store)
    print(summary.line())
    landed = {name: summary.counts[name] for name in FAULTS}
    wrong, in_doubt = len(summary.broken), summary.counts["in doubt"]
    planned = summary.faults_landed
    note(f"simulator, {store}", trials=summary.seeds, landed=landed, planned=planned, in_doubt=in_doubt, wrong=wrong)
    assert summary.is_good, report(summary, store=store)


@pytest.mark.parametrize(
    "seeds", [range(25), *(pytest.param(each, marks=pytest.mark.torture) for each in chunks(25, 5100))], ids=str
)
def test_every_promise_is_kept_whatever_happens(seeds: range) -> None:
    assert_kept(seeds, "memory")


@pytest.mark.parametrize(
    "seeds", [range(6), *(pytest.param(each, marks=pytest.mark.torture) for each in chunks(6, 300))], ids=str
)
def test_every_promise_is_kept_on_sqlite(seeds: range) -> None:
    assert_kept(seeds, "sqlite")


@sampling.seeds(5, sampled=2)
@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_same_seed_is_the_same_simulation_to_the_last_point(store: StoreKind, seed: int) -> None:
    first, second = (played(seed, store=store) for _ in range(2))
    assert first.trace == second.trace
    assert first == second
    assert len(first.trace) > 20


def test_same_seed_is_the_same_simulation_in_every_process() -> None:
    shown = {_shown("--seed", "11", "--trace", "--all", hash_seed=hash_seed).stdout for hash_seed in ("1", "2")}
    assert len(shown) == 1
    assert len(shown.pop().splitlines()) > 20


def test_broken_seed_is_told_with_the_command_that_breaks_it_again() -> None:
    summary = campaign(range(500), bug="swallowed_doubt", until_broken=True)
    (broken,) = summary.broken
    command = replay_command(broken.seed, bug="swallowed_doubt")
    told = report(summary, bug="swallowed_doubt")
    assert f"seed {broken.seed}: {broken.fault}" in told
    assert command in told
    again = _shown(*command.split()[3:])
    assert again.returncode == 1
    assert broken.fault in again.stdout


def test_campaign_in_which_nothing_went_wrong_is_no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    def calm(chance: random.Random) -> Temper:
        return replace(drawn_temper(chance), budget=0)

    monkeypatch.setattr(play, "drawn_temper", calm)
    seeds = [seed for seed in range(40) if not any(op.kills for run in _runs(seed) for op in run.all_ops())]
    summary = campaign(seeds[:3])
    assert not summary.broken
    assert not summary.is_good
    assert "0 FAULTS LANDED" in summary.line()


def _runs(seed: int) -> tuple[RunPlan, ...]:
    return play.Play(seed).plan.runs


def _shown(*words: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "tests.simulation", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
