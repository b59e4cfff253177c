"""The power fails under the running agent, at every point: nothing that was acknowledged is lost.

A run of `durability="process"` is judged by its own promise: it may lose steps since its newest effect, which are then
executed again; never an effect. The store lies on a file system of the trial's own, which is shut down without a flush
and mounted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors import PerdureError, UsageError
from perdure.testing.crash.disk import Disk, refuse_without_rights
from perdure.testing.crash.grounds import judge_acknowledged, refuse_plain_scripts, refuse_servers
from perdure.testing.crash.modes import Plan, chosen_points
from perdure.testing.crash.points import REQUEST_WINDOWS

if TYPE_CHECKING:
    from perdure.testing.crash.options import Options
    from perdure.testing.crash.points import Point
    from perdure.testing.crash.trial import Reference, Trial

NAME = "power"
SUMMARY = "cut the power of the disk under the store at every point (needs root)"


def refuse(options: Options) -> None:
    """It needs root, and a store in a file."""
    refuse_servers(options, NAME, "cuts the power of the disk that the store is on")
    refuse_without_rights()


def plan(reference: Reference, options: Options) -> list[Plan]:
    """One trial a point."""
    refuse_plain_scripts(reference, NAME)
    points = [point for point in chosen_points(reference, options) if point.window not in REQUEST_WINDOWS]
    return [Plan(NAME, (point,), words=("--power",)) for point in points]


def play(trial: Trial, plan: Plan) -> None:
    """Stop at the point, cut the power, mount what the device has, and judge."""
    disk = Disk(trial.place.folder)
    try:
        disk.make()
        trial.place.keep_store_in(disk.place)
        if _lose_power(trial, disk, plan.points[0]):
            trial.judge(trial.resume_to_the_end())
    finally:
        disk.remove()


def _lose_power(trial: Trial, disk: Disk, point: Point) -> bool:
    """Whether the run can go on from what the device kept."""
    trial.tally.planned += 1
    life = trial.reach(point, traced=True)
    if life.is_over():
        return False
    standing = trial.evidence()
    disk.lose_power()
    trial.tally.landed += not disk.has_power
    life.kill()
    disk.start_again()
    trial.judge_reruns(trial.before)
    trial.tally.in_effect += point.is_in_effect
    try:
        judge_acknowledged(trial, life.name, standing)
    except UsageError:
        raise
    except PerdureError as error:
        trial.fault("unsaved", f"what the device kept cannot be used: {error.message}")
        return False
    return True
