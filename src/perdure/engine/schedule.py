"""The schedules of an agent: whether they fit it, and the run of a tick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from perdure import codec, records
from perdure.engine import lifecycle
from perdure.errors import UsageError
from perdure.records import tick_id
from perdure.schedules import Schedule, full_name, local_tick

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.engine.agent import AgentSpec
    from perdure.engine.session import Session
    from perdure.engine.signature import Signature
    from perdure.records import Run

TICK: Final = "tick"
"""The parameter of an agent that is given the instant of the tick."""

_SAFE: Final = "nothing was started."


def checked_schedules(
    agent: str, signature: Signature, given: Schedule | Sequence[Schedule] | None
) -> tuple[records.Schedule, ...]:
    """The rows that a worker declares for an agent; raises `UsageError` where a tick could not be a call of it."""
    schedules = () if given is None else ((given,) if isinstance(given, Schedule) else tuple(given))
    for schedule in schedules:
        if not isinstance(schedule, Schedule):
            raise UsageError(
                f"{agent}: schedule={schedule!r:.80} is no schedule.",
                safe=_SAFE,
                hint='schedule=perdure.Schedule("0 9 * * *"), or a list of them',
            )
    names = [schedule.name for schedule in schedules]
    if len(set(names)) < len(names):
        raise UsageError(
            f"{agent} has {len(names)} schedules, and not each has a name of its own.",
            safe=_SAFE,
            hint='Schedule("0 9 * * *", name="morning")',
        )
    return tuple(_row(agent, signature, schedule) for schedule in schedules)


def accept_tick(session: Session, spec: AgentSpec, row: records.Schedule, tick_at: float) -> tuple[Run, bool]:
    """The run of a tick, accepted now or before, by whomever; and whether it was by this very call."""
    given = codec.unseal_arguments(row.arguments.encode(), spec.signature.parameters)
    run, first = lifecycle.drafted(
        spec,
        spec.signature.bind((), _tick_argument(spec.signature, row, tick_at) | given),
        durability=session.settings.durability,
        run_id=tick_id(row.name, tick_at),
    )
    created = session.store.create_run(run, first)
    return created, created.name == run.name


def _row(agent: str, signature: Signature, schedule: Schedule) -> records.Schedule:
    arguments = dict(schedule.arguments)
    sealed = codec.seal_arguments(arguments, of=agent).decode()
    row = records.Schedule(
        full_name(agent, schedule.name),
        agent,
        schedule.cron,
        schedule.timezone,
        schedule.catch_up,
        sealed,
        next_at=0.0,
    )
    try:
        signature.bind((), _tick_argument(signature, row, 0.0) | arguments)
    except TypeError as error:
        raise UsageError(
            f"{agent}: a tick of {schedule!r} could not call it: {error}.",
            safe=_SAFE,
            hint='give what it needs: Schedule(…, arguments={"name": value}), or a default',
        ) from None
    return row


def _tick_argument(signature: Signature, row: records.Schedule, tick_at: float) -> dict[str, Any]:
    return {TICK: local_tick(row, tick_at)} if signature.takes(TICK) else {}
