"""The wall clock jumps, by an hour and by a day, forth and back: between a kill and the resume, and under a process.

A process under which the clock jumps keeps its run: nobody takes it over because it seems to have been silent. A limit
that the agent itself set by the clock may be passed: what it does then is another way, and counted, not compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.testing.crash import skew
from perdure.testing.crash.grounds import (
    REFUSALS,
    judge_claims,
    kill_first,
    names_the_store,
    refusal_of,
    refuse_plain_scripts,
)
from perdure.testing.crash.modes import Plan, chosen_points
from perdure.testing.crash.points import EFFECT_WINDOWS, REQUEST_WINDOWS, STEP_WINDOWS, Point

if TYPE_CHECKING:
    from perdure.testing.crash.nursery import Life
    from perdure.testing.crash.options import Options
    from perdure.testing.crash.trial import Reference, Trial

NAME = "clock-jump"
SUMMARY = "let the clock jump by an hour and by a day, between kill and resume and at every point"
HOUR_SECONDS: Final = 3600.0
JUMPS_SECONDS: Final = (HOUR_SECONDS, -HOUR_SECONDS, 24 * HOUR_SECONDS, -24 * HOUR_SECONDS)


def plan(reference: Reference, options: Options) -> list[Plan]:
    """Two trials a point: one whose clock jumps after the kill, one under which it jumps."""
    refuse_plain_scripts(reference, NAME)
    numbers = {point: number for number, point in enumerate(reference.points)}
    plans = []
    for point in chosen_points(reference, options):
        number = numbers[point]
        plans.append(_plan(point, JUMPS_SECONDS[number % len(JUMPS_SECONDS)], when="after a kill"))
        if point.window not in REQUEST_WINDOWS:
            plans.append(_plan(point, JUMPS_SECONDS[(number + 1) % len(JUMPS_SECONDS)], when="under a process"))
    return plans


def _plan(point: Point, seconds: float, *, when: str) -> Plan:
    return Plan(NAME, (point,), details={"seconds": seconds, "when": when}, words=("--clock-jump",))


def play(trial: Trial, plan: Plan) -> None:
    """Let the clock jump, go on, let it jump back, and judge."""
    file = trial.place.folder / "clock"
    skew.set_offset(file, 0.0)
    trial.clock = str(file)
    if plan.details["when"] == "after a kill":
        kill_first(trial, plan.points[0])
        trial.attend()  # people answer what is open before the jump can end the wait for them
        skew.set_offset(file, plan.details["seconds"])
        last = trial.resume_to_the_end()
        _note_jump(trial, plan)
    else:
        _jump_under(trial, plan.points[0], plan.details["seconds"])
        _note_jump(trial, plan)
        trial.attend()
        skew.set_offset(file, 0.0)
        last = trial.resume_to_the_end()
    trial.judge(last)


def _note_jump(trial: Trial, plan: Plan) -> None:
    """The jump has landed where a process went by the clock that had jumped."""
    if skew.seen_offset(trial.place.folder / "clock") == plan.details["seconds"]:
        trial.tally.planned += 1
        trial.tally.landed += 1
        trial.tally.count(f"jumped {plan.details['when']}")
    else:
        trial.tally.count("clock not read")


def _jump_under(trial: Trial, point: Point, seconds: float) -> None:
    """The clock jumps while a process stands at this point, and back once it has ended."""
    life = trial.reach(point)
    if life.is_over():
        return
    skew.set_offset(trial.place.folder / "clock", seconds)
    if point.window in (*EFFECT_WINDOWS, *STEP_WINDOWS):
        _judge_other(trial, life, seconds)
    life.thaw()
    life.wait()
    trial.judge_reruns(trial.before)


def _judge_other(trial: Trial, life: Life, seconds: float) -> None:
    """Another process finds each run held, unless the frozen one had left it to wait for a person; it takes none."""
    standing = trial.evidence()
    other = trial.start().wait()
    judge_claims(trial, standing, living={life.pid}, why=f", because the clock jumped by {seconds:g} s")
    is_told = refusal_of(trial, other) in REFUSALS or names_the_store(trial, other)
    if not is_told and not trial.is_done(other):
        trial.fault("unclear", f"it was not told who holds the run: {trial.ending(other)}")
