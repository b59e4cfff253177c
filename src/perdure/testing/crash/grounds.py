"""What the modes share: on which ground each can be played at all, and why a process said that it did not go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.bodies import Delivery, read_body
from perdure.errors import EffectInDoubt, LeaseLapsed, RunHeld, RunWaits, StoreError, UsageError
from perdure.records import Kind

if TYPE_CHECKING:
    from perdure.testing.crash.evidence import Evidence
    from perdure.testing.crash.nursery import Ended
    from perdure.testing.crash.options import Options
    from perdure.testing.crash.points import Point
    from perdure.testing.crash.trial import Reference, Trial

ACKNOWLEDGED: Final = "acknowledged"
UNSYNCED: Final = "unsynced, lost"
"""How steps are counted that a run of `durability="process"` lost with the power, as it may."""

KILLS: Final = "kills before that"
REFUSALS: Final = frozenset({RunHeld.code, EffectInDoubt.code, RunWaits.code})
"""How a process may end that finds a run in other hands, or waiting for a person."""

UNSTARTED: Final = "nothing of yours was touched."
_BY_EXIT_CODE: Final = {error.exit_code: error.code for error in (RunWaits, EffectInDoubt, RunHeld, StoreError)}
_TRACEBACK: Final = "Traceback (most recent call last)"


def refuse_plain_scripts(reference: Reference, mode: str) -> None:
    """A mode that is about what perdure does needs a run of perdure, and one that every process takes for the same."""
    if not reference.uses_perdure:
        raise UsageError(
            f"--{mode} tries what perdure does with a run, and this script has none.",
            safe=UNSTARTED,
            hint="leave the mode out: at every point the script is killed and judged all the same",
        )
    if not reference.is_quiet_again:
        raise UsageError(
            f"--{mode} starts the script again and again, and this one begins another run each time it has ended.",
            safe=UNSTARTED,
            hint="name its run: perdure.run(…, run_id=…); or aim at the agent itself: script.py:agent",
        )


def refuse_servers(options: Options, mode: str, why: str) -> None:
    """A mode that does something to the files of a store needs a store in a file."""
    if options.store:
        raise UsageError(
            f"--{mode} {why}, and a PostgreSQL server keeps its files to itself.",
            safe=UNSTARTED,
            hint=f"leave --store out, or try --kill-database instead of --{mode}",
        )


def refusal_of(trial: Trial, ended: Ended) -> str:
    """The code of the error that a process ended with; empty where it ended in any other way."""
    error = trial.account().errors.get(ended.life)
    if error is not None:
        return str(error["code"])
    is_silent = trial.bench.subject.kind == "agent" or _TRACEBACK in ended.err
    return "" if is_silent else _BY_EXIT_CODE.get(ended.code, "")


def names_the_store(trial: Trial, ended: Ended) -> bool:
    """Whether a process said clearly that its store cannot be used, and what to do."""
    error = trial.account().errors.get(ended.life)
    if error is not None:
        return error["exit_code"] == StoreError.exit_code and bool(error["hint"]) and _TRACEBACK not in ended.err
    return refusal_of(trial, ended) in (StoreError.code, LeaseLapsed.code)


def kill_first(trial: Trial, point: Point) -> None:
    """Kill at a point, in a mode whose fault is another: only that one is planned, and must land."""
    tally = trial.tally
    planned, landed = tally.planned, tally.landed
    trial.kill(point)
    tally.count(KILLS, tally.landed - landed)
    tally.planned, tally.landed = planned, landed


def judge_claims(trial: Trial, before: Evidence, *, living: set[int], why: str = "") -> None:
    """Nobody may have taken a run since then from one of these processes, all of which live: the journal says who did.

    A run that its process left by itself, because it waits for a person, is anybody's.
    """
    known = {each.run.run_id: each.run.length for each in before.runs}
    for each in trial.evidence().runs:
        for record in each.records[known.get(each.run.run_id, 0) :]:
            body = read_body(record) if record.kind == Kind.DELIVERY else None
            if isinstance(body, Delivery):
                for pid in living - {body.pid}:
                    if f"(pid {pid} on " in body.before:
                        told = f"process {body.pid} took the run while process {pid} lived"
                        trial.fault("robbed", f"{told}{why}: {body.before}")


def judge_acknowledged(trial: Trial, life: str, standing: Evidence) -> None:
    """Everything that a process was told is saved must be there; `standing` is what was committed at its point.

    A run of `durability="process"` may lose what it recorded after its newest effect: only effects are synced.
    """
    told = _acknowledged(trial, life)
    synced = told - _unsynced(standing, told)
    trial.tally.count(ACKNOWLEDGED, len(told))
    kept = {f"{each.label}{key}" for each in trial.evidence().runs for key, _ in each.journal.completed()}
    for key in sorted(told - kept):
        trial.recorded.pop(key, None)
        if key in synced:
            trial.tally.count("acknowledged and lost")
            trial.fault("unsaved", f"{key} was acknowledged, and is gone")
        else:
            trial.tally.count(UNSYNCED)


def _acknowledged(trial: Trial, life: str) -> set[str]:
    """The calls of which a traced process was told that they are saved."""
    passed = trial.account().passed.get(life, [])
    return {key for _, window, key, _ in passed if window in ("recorded", "after_receipt")}


def _unsynced(standing: Evidence, told: set[str]) -> set[str]:
    """The calls that nobody promised would survive a loss of power: recorded by a run that is not synced, and after
    its newest effect that was acknowledged.
    """
    found: set[str] = set()
    for each in standing.runs:
        if each.run.durability == "process":
            keys = [f"{each.label}{record.key}" for record in each.records]
            kinds = [record.kind for record in each.records]
            effects = [at for at, kind in enumerate(kinds) if kind == Kind.RECEIPT and keys[at] in told]
            found |= set(keys[max(effects, default=-1) + 1 :])
    return found
