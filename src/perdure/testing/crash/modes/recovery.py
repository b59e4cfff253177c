"""The recovery is killed too: after a kill at each point, the process that resumes is killed at points of its own.

Those are its first ones, up to the first call that it completes anew: what comes later is what any other run passes.
They are found by watching one resume after each kill. Where the depth is above 1, the next process is killed at the
same point again, as often as the depth says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.errors import UsageError
from perdure.testing.crash.modes import Plan, chosen_points
from perdure.testing.crash.modes.every import named

if TYPE_CHECKING:
    from perdure.testing.crash.options import Options
    from perdure.testing.crash.points import Point
    from perdure.testing.crash.trial import Reference, Trial

NAME = "during-recovery"
SUMMARY = "kill the resume as well"

_PROGRESS: Final = frozenset({"recorded", "after_receipt"})
"""Windows in which a call was completed."""


def plan(reference: Reference, options: Options) -> list[Plan]:
    """A trial for each point, and each point of the resume after a kill there."""
    first = chosen_points(reference, options)
    if len(options.at) > 1:
        return [_plan((*first, *(named(text) for text in options.at[1:])))]
    if reference.explore is None:
        raise UsageError("This run cannot be resumed to look at its recovery.", safe="nothing was started.")
    resumes = reference.explore([(point,) for point in first])
    return [
        _plan((point, *[later] * options.depth))
        for point, resume in zip(first, resumes, strict=True)
        for later in recovery_of(resume)
    ]


def play(trial: Trial, plan: Plan) -> None:
    """Kill at the first point, then each process that resumes at the next."""
    first, *later = plan.points
    trial.kill(first)
    for number, point in enumerate(later):
        if number == 0:
            trial.kill(point)
        elif not trial.kill_if_reached(point).was_killed:
            break
    trial.judge(trial.resume_to_the_end())


def recovery_of(resume: tuple[Point, ...]) -> list[Point]:
    """The points of a process that resumes, up to the first call it completes."""
    found: list[Point] = []
    for point in resume:
        found.append(point)
        if point.window in _PROGRESS:
            break
    return found


def _plan(points: tuple[Point, ...]) -> Plan:
    return Plan(NAME, points, words=("--during-recovery", str(len(points) - 1)))
