"""Every point of the run, one trial each: killed there, resumed to the end, judged, resumed once more."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.testing.crash.modes import Plan, chosen_points
from perdure.testing.crash.points import Point

if TYPE_CHECKING:
    from perdure.testing.crash.options import Options
    from perdure.testing.crash.trial import Reference, Trial

NAME = "every"
SUMMARY = "kill at every point of the run"


def plan(reference: Reference, options: Options) -> list[Plan]:
    """One trial a point; where several are named, one trial in which each next process is killed at the next."""
    first = chosen_points(reference, options)
    later = tuple(named(text) for text in options.at[1:])
    return [Plan(NAME, (point, *later)) for point in first]


def play(trial: Trial, plan: Plan) -> None:
    """Kill, resume, judge."""
    for point in plan.points:
        trial.kill(point)
    trial.judge(trial.resume_to_the_end())


def named(text: str) -> Point:
    """A point of a process that resumes: only that process can tell whether there is one."""
    place, _, window = text.rpartition(":")
    name, _, key = place.partition("@")
    return Point(name if key else place, window, key) if "#" not in text else Point(place, window)
