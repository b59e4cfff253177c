"""Between a kill and the resume the files of the store are damaged: it does not matter, or it is named.

What was named is repaired with `perdure repair`, as its reader is told, and the run goes on from what can be trusted.
Where even the run is gone, the files are put back, as a person does who has a copy. Never may a damaged store give a
wrong result, or let an effect be repeated, without a word.
"""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

from perdure import clock
from perdure.errors import PerdureError, RunHeld, UsageError
from perdure.testing.crash import damage
from perdure.testing.crash.dice import Dice
from perdure.testing.crash.evidence import Evidence
from perdure.testing.crash.grounds import kill_first, names_the_store, refusal_of, refuse_plain_scripts, refuse_servers
from perdure.testing.crash.modes import Plan, chosen_points
from perdure.testing.crash.trial import MOST_ROUNDS

if TYPE_CHECKING:
    from pathlib import Path

    from perdure.testing.crash.nursery import Ended
    from perdure.testing.crash.options import Options
    from perdure.testing.crash.points import Point
    from perdure.testing.crash.trial import Reference, Trial

NAME = "flip"
SUMMARY = "damage the files of the store between the kill and the resume"
_HELD_SECONDS: Final = 0.1


def refuse(options: Options) -> None:
    """A server's files are not ours to damage."""
    refuse_servers(options, NAME, "damages the files of the store")


def plan(reference: Reference, options: Options) -> list[Plan]:
    """As many trials as asked for; each by a seed of its own, which chooses the point and the damage."""
    refuse_plain_scripts(reference, NAME)
    points = chosen_points(reference, options)
    return [_plan(points, options.seed + number) for number in range(1 if options.at else options.trials)]


def _plan(points: list[Point], seed: int) -> Plan:
    dice = Dice(seed)
    point = dice.choice(points)
    details = {"kind": dice.choice(damage.KINDS), "settled": dice.choice((True, False))}
    return Plan(NAME, (point,), seed=seed, details=details, words=("--flip", "--seed", str(seed)))


def play(trial: Trial, plan: Plan) -> None:
    """Kill, damage, resume; mend what was named, and judge."""
    kill_first(trial, plan.points[0])
    before = trial.evidence()
    copy = trial.place.folder / "copy"
    harm = _harm(trial, plan, copy)
    known = len(trial.account().bodies)
    if harm is None:
        trial.tally.count(damage.NOTHING)
        trial.judge(trial.resume_to_the_end())
        return
    trial.tally.planned += 1
    trial.tally.landed += damage.differs(trial.place.database, copy)
    trial.tally.count(damage.CUT if plan.details["kind"] == "cut" else damage.FLIPPED)
    if _is_fine(trial, harm, before):
        trial.tally.count(damage.HARMLESS)
        return
    trial.tally.count(damage.DETECTED)
    _mend(trial, harm, copy, known=known)


def _harm(trial: Trial, plan: Plan, copy: Path) -> damage.Harm | None:
    """Damage the store once; half of the trials bring its log into the database first, so that rows are met."""
    store = trial.place.database
    if not trial.place.is_there:
        return None
    if plan.details["settled"]:
        damage.settle_in_place(store)
    damage.copy_store(store, copy)
    return damage.harm(store, plan.details["kind"], plan.seed)


def _is_fine(trial: Trial, harm: damage.Harm, before: Evidence) -> bool:
    """Go on with the store as it is; whether nobody said anything against that. What came of it is judged.

    What was completed `before` must not run again, unless its loss is named.
    """
    try:
        last = _go_on(trial, harm)
        trial.judge_reruns(Evidence() if last is None else before)
        if last is None:
            return False
        trial.tally.resumed += 1
        trial.judge(last)
    except UsageError:
        raise
    except PerdureError:
        trial.judge_reruns(Evidence())
        return False
    return True


def _go_on(trial: Trial, harm: damage.Harm) -> Ended | None:
    """Start it until it is done; None where the store was named as the reason that it is not."""
    for _ in range(MOST_ROUNDS):
        ended = trial.start().wait()
        if trial.is_done(ended):
            return ended
        if names_the_store(trial, ended):
            return None
        if refusal_of(trial, ended) == RunHeld.code:
            clock.sleep(_HELD_SECONDS)
        elif ended.is_late or not trial.attend().helped:
            break
    trial.fault("damage", f"{harm} was changed, and it ended otherwise: {trial.ending(ended)}")
    return None


def _mend(trial: Trial, harm: damage.Harm, copy: Path, *, known: int) -> None:
    """Do what whoever is told of the damage is told to do: repair; or, where that does not help, put back a copy."""
    if trial.tally.faults:
        return
    if _repair(trial.place.store) and _has_run(trial) and _is_fine(trial, harm, trial.evidence()):
        trial.tally.count(damage.REPAIRED)
        return
    if trial.tally.faults or any(body.kind == "effect" for body in trial.account().bodies[known:]):
        return  # something was performed since: the copy no longer tells how things stand
    damage.put_back(trial.place.database, copy)
    trial.tally.count(damage.PUT_BACK)
    trial.judge(trial.resume_to_the_end())


def _repair(store: str) -> bool:
    """`perdure repair --all`, in a process of its own."""
    command = [sys.executable, "-m", "perdure", "repair", "--all", "--yes", "--store", store]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0  # noqa: S603 - our own command


def _has_run(trial: Trial) -> bool:
    """Whether the run is still there: one that is gone would begin anew, and do everything again."""
    try:
        return bool(trial.evidence().runs)
    except PerdureError:
        return False
