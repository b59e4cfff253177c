"""A thousand kills inside effects of every policy, alone and several at once: none is repeated blindly or lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.testing.crash.campaign import Laboratory, Report
from perdure.testing.crash.dice import Dice
from perdure.testing.crash.modes import Plan
from perdure.testing.crash.options import Options
from perdure.testing.crash.points import REQUEST_WINDOWS, Point
from perdure.testing.crash.subject import agent_subject
from perdure.testing.crash.tally import Tally, summed
from perdure.testing.crash.trial import Reference, Trial
from tests.kit import courier
from tests.kit.campaigns import described, note_counts
from tests.postgres import server_url

KILLS = 5
DELAYS_SECONDS = (0.02, 0.05, 0.15)
"""How long after it was received a request lands, whether or not its sender still lives."""

AT_A_TIME = 4
JOBS = 6
"""Processes that wait for each other, and for requests to land, leave room for others."""


def plans_of(reference: Reference, seeds: range) -> list[Plan]:
    """Trials with a row of kills each, all inside effects, in the order in which the run comes by."""
    inside = [point for point in reference.points if point.is_in_effect]
    return [Plan("once-effects", tuple(row_of(inside, Dice(seed))), seed=seed) for seed in seeds]


def row_of(inside: list[Point], dice: Dice) -> list[Point]:
    """The oracle counts its points anew in each process, so that only the first kill can be at one of them."""
    places = sorted({dice.number(len(inside)) for _ in range(KILLS)})
    return [
        inside[place]
        for number, place in enumerate(places)
        if number == 0 or inside[place].window not in REQUEST_WINDOWS
    ]


def play(trial: Trial, plan: Plan) -> None:
    trial.bench.oracle.delay(trial.name, Dice(-1 - plan.seed).choice(DELAYS_SECONDS))
    trial.kill(plan.points[0])
    for point in plan.points[1:]:
        kill_again(trial, point)
    trial.judge(trial.resume_to_the_end())


def kill_again(trial: Trial, point: Point) -> None:
    """Kill a process that resumes; what is performed at once may have come by this point already."""
    ended = trial.kill_if_reached(point)
    if not ended.was_killed and not trial.is_done(ended) and trial.attend().helped:
        trial.kill_if_reached(point)


def many_kills(folder: Path, store: str, kills: int) -> Report:
    """Trials until so many kills have landed inside effects."""
    options = Options(jobs=JOBS, folder=str(folder), store=store, outside_seconds=DELAYS_SECONDS[0])
    with Laboratory(agent_subject(courier.rounds, "parcel"), options) as laboratory:
        tallies: list[Tally] = []
        while sum(tally.in_effect for tally in tallies) < kills:
            seeds = range(len(tallies) * AT_A_TIME, (len(tallies) + 1) * AT_A_TIME)
            tallies.append(laboratory.play(plans_of(laboratory.reference, seeds), play))
        tally = summed(tallies)
        return Report(laboratory.subject, "once-effects", options, laboratory.reference, tally, 0.0)


@pytest.mark.minutes(3)
@pytest.mark.parametrize(
    ("engine", "kills"),
    [
        ("sqlite", 5),
        ("postgres", 5),
        pytest.param("sqlite", 1000, marks=pytest.mark.torture),
        pytest.param("postgres", 400, marks=pytest.mark.torture),
    ],
)
def test_no_effect_is_repeated_blindly_or_lost_wherever_kills_land_inside_it(
    tmp_path: Path, engine: str, kills: int
) -> None:
    report = many_kills(tmp_path, server_url() if engine == "postgres" else "", kills)
    print(f"\n{engine}: {described(report)}")
    tally = report.tally
    note_counts(report)
    assert report.is_fine, described(report)
    assert tally.in_effect >= kills
    assert (tally.rerun, tally.repeated, tally.lost) == (0, 0, 0)
    assert tally.equal == tally.again == tally.trials
    assert tally.in_doubt > 0, "where nobody can tell, a person was asked"
