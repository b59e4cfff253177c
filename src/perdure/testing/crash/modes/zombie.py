"""A process is frozen past its lease and taken over; thawed, it writes nothing and performs nothing more.

What it was performing when it froze goes on when it thaws, and nobody can prevent that from here: the heir waits for a
person, sends the same key, or asks the check. A check that was asked meanwhile could not see it; only a key that the
outside honours excludes such a process entirely, so one that froze inside an effect with a check is not thawed.

At the same points a process that only works long is held as long, with its signs of life going on: nobody may have it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure import clock
from perdure.bodies import Settled, read_body
from perdure.errors import EffectInDoubt, LeaseLapsed, RunHeld, RunWaits
from perdure.records import Kind
from perdure.testing.crash.evidence import Evidence
from perdure.testing.crash.grounds import names_the_store, refusal_of, refuse_plain_scripts
from perdure.testing.crash.modes import Plan, chosen_points
from perdure.testing.crash.points import EFFECT_WINDOWS, STEP_WINDOWS, Point
from perdure.testing.crash.trial import MOST_ROUNDS

if TYPE_CHECKING:
    from perdure.testing.crash.nursery import Ended, Life
    from perdure.testing.crash.options import Options
    from perdure.testing.crash.oracle import Account
    from perdure.testing.crash.trial import Reference, Trial

NAME = "zombie"
SUMMARY = "freeze at every point, let another process take over, then thaw"
STALL_SECONDS: Final = 1.5
RENEW_SECONDS: Final = 0.3
_PAST_STALL: Final = 1.2
_LOCKED_SECONDS: Final = 3.0
"""How long an heir waits for a store that is locked."""

_REFUSED: Final = frozenset({RunHeld.code, EffectInDoubt.code, RunWaits.code, LeaseLapsed.code})
_CLOSING: Final = frozenset({Kind.RECEIPT, Kind.ATTEMPT, Kind.VERDICT})
_HELD_WINDOWS: Final = ("inside_step", "inside_effect")


def at_once(jobs: int) -> int:
    """Trials mostly wait until a process counts as frozen; but who asks for one at a time gets that."""
    return 4 * jobs if jobs > 1 else 1


def plan(reference: Reference, options: Options) -> list[Plan]:
    """One trial a point at which the process holds its run and no lock of the store; where a body runs, two."""
    refuse_plain_scripts(reference, NAME)
    points = [point for point in chosen_points(reference, options) if options.at or _can_freeze(point)]
    frozen = [Plan(NAME, (point,), words=("--zombie",)) for point in points]
    held = [
        Plan(NAME, (point,), details={"held": True}, words=("--zombie",))
        for point in points
        if point.window in _HELD_WINDOWS
    ]
    return frozen + held


def _can_freeze(point: Point) -> bool:
    is_of_call = point.window in (*EFFECT_WINDOWS, *STEP_WINDOWS)
    return is_of_call or (point.name.startswith("record_") and point.window in ("before", "after"))


def play(trial: Trial, plan: Plan) -> None:
    """Freeze, take over, thaw, judge; or hold, and try in vain to take over."""
    trial.settings |= {
        "PERDURE_STALL_SECONDS": f"{STALL_SECONDS:g}",
        "PERDURE_RENEW_SECONDS": f"{RENEW_SECONDS:g}",
        "PERDURE_OPEN_SECONDS": f"{_LOCKED_SECONDS:g}",
    }
    if plan.details.get("held"):
        _play_held(trial, plan.points[0])
    else:
        _play_frozen(trial, plan.points[0])


def _play_frozen(trial: Trial, point: Point) -> None:
    zombie = trial.freeze(point)
    before = trial.before
    trial.judge_reruns(before)
    if zombie.is_over():
        return
    in_flight = _in_flight(trial, point)
    clock.sleep(_PAST_STALL * STALL_SECONDS)
    taken = _take_over(trial)
    if taken is None:
        zombie.thaw()
        zombie.wait()
        trial.judge_reruns(before)
        trial.tally.count("kept the store locked")
    elif _is_checked(taken, in_flight):
        zombie.kill()
        trial.tally.count("checked, not thawed")
    else:
        _thaw(trial, zombie, taken, in_flight)
    trial.judge(trial.resume_to_the_end())


def _take_over(trial: Trial) -> Evidence | None:
    """Let an heir go as far as it gets without a word about what the zombie may still be performing.

    None where another thread of the zombie was frozen in the middle of a write: SQLite then stays locked for everybody.
    """
    before = trial.evidence()
    for _ in range(MOST_ROUNDS):
        ended = trial.start().wait()
        trial.judge_reruns(before)
        before = trial.evidence()
        refusal = refusal_of(trial, ended)
        if names_the_store(trial, ended):
            return None
        if trial.is_done(ended) or refusal == EffectInDoubt.code or ended.is_late:
            break
        if refusal != RunHeld.code and not trial.attend().helped:
            break
        if refusal == RunHeld.code:
            clock.sleep(RENEW_SECONDS)
    trial.tally.count("taken over")
    return before


def _is_checked(taken: Evidence, in_flight: set[str]) -> bool:
    """Whether an effect that the zombie may be performing was called undone by its check, and may be done again."""
    checked = {
        f"{each.label}{record.key}"
        for each in taken.runs
        for record in each.records
        if record.kind == Kind.VERDICT and _says_undone(read_body(record))
    }
    return not checked.isdisjoint(in_flight)


def _says_undone(body: object) -> bool:
    return isinstance(body, Settled) and (body.by, body.outcome) == ("check", "did_not_happen")


def _in_flight(trial: Trial, point: Point) -> set[str]:
    """The effects that a process frozen here may be in the middle of: an intent is there, and nothing came of it yet.

    At the point itself it is known where the process stands. Another strand of it may be anywhere, even between the
    look at the fence and the body, where nobody but the outside can hold it back.
    """
    still_open: set[str] = set()
    for each in trial.evidence().runs:
        for record in each.records:
            if record.kind == Kind.INTENT:
                still_open.add(f"{each.label}{record.key}")
            elif record.kind in _CLOSING:
                still_open.discard(f"{each.label}{record.key}")
    return still_open - {point.key} if point.window in ("before_intent", "after_intent") else still_open


def _thaw(trial: Trial, zombie: Life, taken: Evidence, in_flight: set[str]) -> None:
    before = trial.account()
    zombie.thaw()
    ended = zombie.wait()
    refusal = refusal_of(trial, ended)
    if ended.is_late:
        trial.fault("hung", "the thawed process did not end")
    elif not trial.is_done(ended) and refusal not in _REFUSED:
        trial.fault("unclear", f"the thawed process was not told that it was taken over: {trial.ending(ended)}")
    _judge_begun(trial, ended, before, in_flight)
    _judge_written(trial, taken)


def _judge_begun(trial: Trial, ended: Ended, before: Account, in_flight: set[str]) -> None:
    """It must not have begun an effect. A step that it had decided to run is safe to run, and its result is refused."""
    for body in trial.account().bodies[len(before.bodies) :]:
        if body.life == ended.life and body.kind == "effect" and body.key not in in_flight:
            trial.fault("stale", f"the thawed process began {body.name} ({body.key})")
    trial.judge_reruns(Evidence())


def _judge_written(trial: Trial, taken: Evidence) -> None:
    """It must not have changed a journal; a late receipt is mail."""
    now = trial.evidence()
    journals = {each.run.run_id: (each.run.length, each.run.head, each.run.state) for each in taken.runs}
    for each in now.runs:
        known = journals.get(each.run.run_id)
        if known is not None and known != (each.run.length, each.run.head, each.run.state):
            new = [f"{record.kind} {record.name}" for record in each.records[known[0] :]]
            trial.fault("stale", f"the thawed process wrote to the journal: {', '.join(new) or each.run.state}")
    mail = sum(each.mail for each in now.runs) - sum(each.mail for each in taken.runs)
    trial.tally.count("late receipts", mail)


def _play_held(trial: Trial, point: Point) -> None:
    """One thread is held past the time after which a silent process is taken over; this one is not silent."""
    trial.tally.planned += 1
    holder = trial.reach(point, is_held=True)
    before = trial.before
    if holder.is_over():
        return
    if holder.is_over(_PAST_STALL * STALL_SECONDS):
        trial.fault("missed", f"not held at {point.text}: {trial.ending(holder.wait())}")
        return
    trial.tally.landed += 1
    other = trial.start().wait()
    if refusal_of(trial, other) != RunHeld.code:
        trial.fault("robbed", f"a process that works and says so was not left alone: {trial.ending(other)}")
    trial.tally.count("held, left alone")
    trial.gate.touch()
    holder.wait()
    trial.judge_reruns(before)
    trial.judge(trial.resume_to_the_end())
