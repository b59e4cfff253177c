"""Kills at random instants and at random points, several a trial; the seed of a trial makes all its choices.

A point is met again exactly. An instant is as exact as the machine is: it is chosen by the seed, in seconds after a
process began, and what the process is doing then may differ.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.testing.crash.dice import Dice
from perdure.testing.crash.modes import Plan

if TYPE_CHECKING:
    from perdure.testing.crash.options import Options
    from perdure.testing.crash.trial import Reference, Trial

NAME = "random"
SUMMARY = "kill at random instants and points"

MOST_KILLS: Final = 4


def plan(reference: Reference, options: Options) -> list[Plan]:
    """So many trials, each with a seed of its own; none for a run that passes no point."""
    seeds = range(options.seed, options.seed + options.trials) if reference.points else ()
    return [Plan(NAME, seed=seed, words=("--random", "1", "--seed", str(seed))) for seed in seeds]


def play(trial: Trial, plan: Plan) -> None:
    """Kill once at a point that is sure to come, then wherever chance wants it, as long as the run is not over."""
    dice, points = Dice(plan.seed), trial.reference.points
    ended = trial.kill(dice.choice(points))
    for _ in range(dice.number(MOST_KILLS)):
        if not ended.was_killed:
            break
        if dice.fraction() < 0.5:  # noqa: PLR2004 - heads or tails
            ended = trial.kill_after(dice.fraction() * trial.reference.seconds)
        else:
            ended = trial.kill_if_reached(dice.choice(points))
    trial.judge(trial.resume_to_the_end())
