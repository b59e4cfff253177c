"""What must be true when a simulation is over: nothing accepted is lost, and every result is what its journal says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure import codec
from perdure.bodies import Done, Ended, Settled, Started, read_body
from perdure.records import FINISHED, Kind, Record, Run, RunState
from perdure.store.lease import read_park
from tests.simulation.agents import FAILED, Regret

_ROUNDING: Final = 0.001

if TYPE_CHECKING:
    from tests.simulation.plan import Op, RunPlan
    from tests.simulation.play import Play


def is_over(play: Play) -> bool:
    """Whether everything that was to be done has its outcome, and nobody acts any more but workers."""
    return not unfinished(play)


def unfinished(play: Play) -> str:
    """What is not over yet; empty where all is."""
    missing = [plan.run_id for plan in play.plan.runs if not plan.is_child and plan.number not in play.accepted]
    if missing:
        return f"{', '.join(missing)} not accepted"
    rows = [row for row in play.truth.rows() if row.state not in FINISHED and row.state != RunState.FAILED]
    return "; ".join(f"{row.run_id} is {row.state} ({row.reason}) {read_park(row).code}" for row in rows)


def judge(play: Play) -> None:
    """Compare what is left with what was promised."""
    _judge_rates(play)
    for place, word in play.witness.promised.items():
        if play.witness.answered.get(place, word) != word:
            play.witness.fail("P6", place[0], f"took {play.witness.answered[place]}, and {word} was told to count")
    by_id = {row.run_id: row for row in play.truth.rows()}
    for plan in play.plan.runs:
        if not plan.is_child and plan.run_id not in by_id:
            play.witness.fail("P7", plan.run_id, "was accepted, and is gone")
    for run in by_id.values():
        _judge_run(play, run)


def _judge_rates(play: Play) -> None:
    """No more runs of a queue began in any time than its rate allows, by a clock that was never set."""
    if play.scheduler.jumped:
        return
    for queue, rate in play.plan.rate.items():
        begun = sorted(play.witness.begun[queue])
        for first, start in enumerate(begun):
            for last, end in enumerate(begun[first:], 1):
                if last > 1 + rate * (end - start) + _ROUNDING:
                    play.witness.fail("queues", queue, f"{last} runs began in {end - start:.3f} s, rate {rate}")


def _judge_run(play: Play, run: Run) -> None:
    records = play.truth.records(run.run_id)
    seen = play.witness.stories[run.run_id].records
    if [record.digest for record in records] != [record.digest for record in seen]:
        play.witness.fail("P4", run.run_id, "its journal is not what was seen to be written")
    is_cancelled = run.state == RunState.CANCELLED
    if run.state == RunState.FAILED:
        _judge_failure(play, run)
    if is_cancelled and not any(plan.cancel_after for plan in play.plan.runs):
        play.witness.fail("P7", run.run_id, "was cancelled by nobody")
    if run.state == RunState.COMPLETED:
        _judge_result(play, run)


def _judge_failure(play: Play, run: Run) -> None:
    """It was meant to fail, and everything that can be taken back was taken back, once."""
    plan, _ = planned(play, run)
    if not plan.fails or Regret.__name__ not in read_park(run).message:
        play.witness.fail("P7", run.run_id, f"failed: {read_park(run).message}")
    booked = {op.place for op in plan.all_ops() if op.effect == "booked" and plan.is_rueful}
    for (run_id, place), requests in list(play.outside.requests.items()):
        if run_id == run.run_id and place in booked and any(request.is_done for request in requests):
            undone = play.outside.requests.get((run_id, f"undo {place}"), [])
            if sum(request.is_done for request in undone) != 1:
                play.witness.fail("P2", run_id, f"{place} was taken back {len(undone)} times")


def _judge_result(play: Play, run: Run) -> None:
    """The result is made of what was recorded for each call, and every effect was done once."""
    ended: Ended = read_body(play.truth.records(run.run_id)[-1])
    if ended.continued:
        if play.truth.row(ended.continued) is None:
            play.witness.fail("P7", run.run_id, f"goes on as {ended.continued}, which is gone")
        return
    result, expected = msgspec.json.decode(ended.value, type=str), expected_result(play, run)
    if result != expected:
        play.witness.fail("P1", run.run_id, f"returned {result!r}, its journal says {expected!r}")
    for (run_id, place), requests in play.outside.requests.items():
        done = sum(request.is_done for request in requests if not request.keyed)
        if run_id == run.run_id and not any(request.is_done for request in requests):
            play.witness.fail("P2", run_id, f"{place} was never done")
        if run_id == run.run_id and done > 1:
            play.witness.fail("P2", run_id, f"{place} was done {done} times")


def expected_result(play: Play, run: Run) -> str:
    """What the run must return, made of its plan and of what its journal holds for each call."""
    plan, begin = planned(play, run)
    name = "_branch_softly" if plan.is_soft else "_branched.<locals>.walk"
    walk = _Walk(_recorded(play.truth.records(run.run_id)), name)
    return " ".join(walk.strand("main", plan.part(begin)))


def planned(play: Play, run: Run) -> tuple[RunPlan, int]:
    """What the run was to do, and from which of its calls on."""
    started: Started = read_body(play.truth.records(run.run_id)[0])
    arguments = msgspec.json.decode(started.arguments, type=dict[str, int])
    return play.plan.runs[arguments["number"]], arguments.get("begin", 0)


class _Walk:
    """The calls of a plan, in the order and under the keys in which an agent makes them."""

    def __init__(self, values: dict[str, Any], branch: str) -> None:
        self._values = values
        self._branch = branch
        self._spawned = 0

    def strand(self, scope: str, ops: tuple[Op, ...]) -> list[str]:
        found, calls = [], 0
        for op in ops:
            if op.kind == "branches":
                for branch in op.branches:
                    inner = f"{scope}/{self._branch}#{self._spawned}"
                    self._spawned += 1
                    found.append(" ".join(self.strand(inner, branch)))
            else:
                found.append(_said(op, self._values.get(f"{scope}.{calls}")))
                calls += 1
        return found


def _recorded(records: list[Record]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for record in records:
        body = read_body(record) if record.kind in (Kind.STEP, Kind.RECEIPT, Kind.ANSWER, Kind.VERDICT) else None
        if isinstance(body, Done) or (isinstance(body, Settled) and body.outcome == "happened"):
            is_failure = isinstance(body, Done) and body.failure is not None
            values[record.key] = FAILED if is_failure else codec.unseal(bytes(body.value))
    return values


def _said(op: Op, value: Any) -> str:
    """What an agent makes of a value."""
    match op.kind:
        case "sleep":
            return "slept"
        case "ask":
            return str(value["choice"])
        case "now":
            return f"{value.timestamp():.3f}"
    return str(value)
