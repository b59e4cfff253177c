"""The store cannot grow any more from a point on: the process says so, nothing is lost, and with room it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perdure.errors import EffectInDoubt, RunWaits, UsageError
from perdure.testing.crash.damage import written_bytes
from perdure.testing.crash.grounds import UNSTARTED, names_the_store, refusal_of, refuse_plain_scripts, refuse_servers
from perdure.testing.crash.modes import Plan, chosen_points
from perdure.testing.crash.modes.racers import START
from perdure.testing.crash.points import REQUEST_WINDOWS

if TYPE_CHECKING:
    from perdure.testing.crash.nursery import Ended, Life
    from perdure.testing.crash.options import Options
    from perdure.testing.crash.trial import Reference, Trial

NAME = "disk-full"
SUMMARY = "let the store find no room from every point on, then make room"
LEAST_BYTES: Final = 16 * 1024
"""No file is limited to less, so that a process can still say what happened."""


def refuse(options: Options) -> None:
    """A server's files cannot be limited from here."""
    refuse_servers(options, NAME, "keeps the files of the store from growing")
    _limits()


def plan(reference: Reference, options: Options) -> list[Plan]:
    """One trial a point."""
    refuse_plain_scripts(reference, NAME)
    points = [point for point in chosen_points(reference, options) if point.window not in REQUEST_WINDOWS]
    return [Plan(NAME, (point,), words=("--disk-full",)) for point in points]


def play(trial: Trial, plan: Plan) -> None:
    """Fill the disk at the point, once more at the start of the next process, then make room."""
    point = plan.points[0]
    trial.tally.planned += 1
    first = trial.reach(point)
    if first.is_over():
        return
    limit_bytes = _fill(trial, first)
    first.thaw()
    ended = first.wait()
    trial.judge_reruns(trial.before)
    if _judge_full(trial, ended):
        trial.tally.landed += 1
        trial.tally.in_effect += point.is_in_effect
        _resume_without_room(trial, limit_bytes)
    else:  # nothing more had to be written, or it found room inside its files
        trial.tally.planned -= 1
        trial.tally.count("room was enough")
    trial.judge(trial.resume_to_the_end())


def _fill(trial: Trial, life: Life, limit_bytes: int = 0) -> int:
    """Let a frozen process write in no file beyond where the longest of the store ends."""
    resource = _limits()
    files = [trial.place.database.with_name(trial.place.database.name + suffix) for suffix in ("", "-wal", "-shm")]
    limit_bytes = limit_bytes or max(LEAST_BYTES, *map(written_bytes, filter(Path.exists, files)), 0)
    _, most = resource.prlimit(life.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(life.pid, resource.RLIMIT_FSIZE, (limit_bytes, most))
    return limit_bytes


def _judge_full(trial: Trial, ended: Ended) -> bool:
    """Whether the process stopped because there was no room; it must have said so."""
    if trial.is_done(ended) or refusal_of(trial, ended) in (EffectInDoubt.code, RunWaits.code):
        return False
    if ended.is_late:
        trial.fault("hung", "a process without room did not end")
    elif not names_the_store(trial, ended):
        trial.fault("unclear", f"it did not say that its store cannot be written: {trial.ending(ended)}")
    return True


def _resume_without_room(trial: Trial, limit_bytes: int) -> None:
    """Whoever starts again too early is told the same, and harms nothing."""
    before = trial.evidence()
    life = trial.start(freeze_at=START)
    if life.is_frozen():
        _fill(trial, life, limit_bytes)
        life.thaw()
    if _judge_full(trial, life.wait()):
        trial.tally.count("refused again")
    trial.judge_reruns(before)


def _limits() -> Any:
    """What limits a process from outside; only Linux has it."""
    try:
        import resource
    except ImportError:
        resource = None  # type: ignore[assignment]
    if not hasattr(resource, "prlimit"):
        raise UsageError(
            "--disk-full limits a process from outside, which only Linux can do.",
            safe=UNSTARTED,
            hint="run it on a Linux machine",
        )
    return resource
