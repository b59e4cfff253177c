"""Many processes resume one run at once: one goes on, the others are told who holds it or find it done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.errors import RunHeld, UsageError
from perdure.testing.crash.grounds import REFUSALS, judge_claims, refusal_of, refuse_plain_scripts
from perdure.testing.crash.judge import judge_result
from perdure.testing.crash.modes import Plan, chosen_points

if TYPE_CHECKING:
    from perdure.testing.crash.nursery import Ended
    from perdure.testing.crash.options import Options
    from perdure.testing.crash.trial import Reference, Trial

NAME = "racers"
SUMMARY = "kill at every point, then let several processes resume at once"
START: Final = "open_store:before"
"""Where racers stand until all of them are there."""

_FEWEST: Final = 2


def refuse(options: Options) -> None:
    """One process alone cannot race."""
    if options.racers < _FEWEST:
        raise UsageError(
            f"--racers {options.racers}: a race needs at least two processes.",
            safe="nothing was started.",
            hint="--racers 8",
        )


def plan(reference: Reference, options: Options) -> list[Plan]:
    """One trial a point."""
    refuse_plain_scripts(reference, NAME)
    details, words = {"racers": options.racers}, ("--racers", str(options.racers))
    return [Plan(NAME, (point,), details=details, words=words) for point in chosen_points(reference, options)]


def play(trial: Trial, plan: Plan) -> None:
    """Kill, line the racers up, let them go at one moment, and judge what they did together."""
    trial.kill(plan.points[0])
    before = trial.evidence()
    racers = [trial.start(freeze_at=START) for _ in range(plan.details["racers"])]
    for racer in racers:
        if not racer.is_frozen():
            trial.fault("missed", f"a racer did not come to the start: {trial.ending(racer.wait())}")
    for racer in racers:
        racer.thaw()
    ended = [racer.wait() for racer in racers]
    trial.judge_reruns(before)
    for each in ended:
        _judge_racer(trial, each)
    judge_claims(trial, before, living={each.pid for each in ended})  # no racer dies
    trial.judge(trial.resume_to_the_end())


def _judge_racer(trial: Trial, ended: Ended) -> None:
    """It brought the run to its end, found it there, or was told clearly why it could not."""
    trial.tally.count("racers")
    refusal = refusal_of(trial, ended)
    if ended.is_late:
        trial.fault("hung", f"a racer took longer than {trial.options.timeout_seconds:g} s")
    elif trial.is_done(ended):
        trial.tally.count("saw its end")
        judge_result(trial, ended, who="a racer")
    elif refusal in REFUSALS:
        trial.tally.count("refused" if refusal == RunHeld.code else "found it waiting")
    else:
        trial.fault("unclear", f"a racer neither went on nor was refused: {trial.ending(ended)}")
