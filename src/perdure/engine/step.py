"""`@step`: a call that is safe to run again until its result is committed, and never after."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from perdure import clock, events
from perdure.bodies import Attempt, Done
from perdure.engine.active import Active, Stop
from perdure.engine.call import Prepared, S, Spec, wrapped
from perdure.engine.drive import Commit, Operation, Pause, Perform
from perdure.engine.failure import describe_failure, exhausted, rebuild
from perdure.engine.ledger import SILENCE, Touched
from perdure.engine.scope import Frame
from perdure.errors import UnstorableValue
from perdure.policy import ONCE, Retry, delay_seconds, may_retry
from perdure.records import Kind, RunState, WaitReason
from perdure.replay import Fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

P = ParamSpec("P")
R = TypeVar("R")


@overload
def step(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def step(
    *,
    retry: Retry = ...,
    timeout: float | None = ...,
    key: str | Callable[..., str] | None = ...,
    name: str | None = ...,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def step(
    function: Callable[..., Any] | None = None,
    /,
    *,
    retry: Retry = ONCE,
    timeout: float | None = None,
    key: str | Callable[..., str] | None = None,
    name: str | None = None,
) -> Any:
    """Record this function's result: once committed, it never runs again for the same call of the same run.

    `retry` attempts a failure again, across crashes; `timeout` bounds one attempt in seconds; `key` (a text, or a
    function of the arguments) identifies a call whose position depends on timing; `name` replaces the function's own.
    `retry=Retry(deadline_seconds=…)` bounds all attempts together.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        return wrapped(Spec(function, name=name, retry=retry, timeout=timeout, key=key), step_flow)

    return decorate if function is None else decorate(function)


def step_flow(prepared: Prepared[Spec]) -> Generator[Operation, Any, Any]:
    """Attempt the body until it succeeds or the policy ends; commit what happened; hand on what was stored."""
    active, spec, decision = prepared.active, prepared.spec, prepared.decision
    if not isinstance(decision, Fresh):
        raise TypeError(decision)
    attempt, since = decision.attempt, decision.since or clock.wall_seconds()
    if decision.not_before:
        longest = 2 * spec.retry.max_delay_seconds  # whatever became of the clock since
        yield Pause(min(decision.not_before - clock.wall_seconds(), longest))
    if decision.last is not None:
        yield from refuse_late(prepared, Kind.STEP, decision)
    while True:
        if active.signal is not None or active.deadline_at:
            active.raise_if_stopped()
        started = clock.elapsed_seconds()
        frame = Frame(active, prepared.frame.scope, spec.name, prepared.call.key, attempt=attempt)
        try:
            value = yield Perform(active, frame, spec.function, prepared.args, prepared.kwargs, spec.timeout)
        except Exception as error:
            seconds = clock.seconds_since(started)
            elapsed = clock.wall_seconds() - since
            if not may_retry(spec.retry, failed_attempts=attempt, error=error, elapsed_seconds=elapsed):
                raise (
                    yield from record_failure(prepared, Kind.STEP, error, attempt=attempt, seconds=seconds)
                ) from error
            yield from record_attempt(prepared, error, attempt=attempt, seconds=seconds)
            attempt += 1
            continue
        seconds = clock.seconds_since(started)
        return (yield from record_value(prepared, Kind.STEP, value, attempt=attempt, seconds=seconds))


def refuse_late(prepared: Prepared[S], kind: Kind, decision: Fresh) -> Generator[Operation, Any, None]:
    """No attempt begins past the deadline of the policy: the last one before a crash was the last."""
    spec = prepared.spec
    if decision.last is not None and clock.wall_seconds() - decision.since >= spec.retry.deadline_seconds:
        error = rebuild(decision.last, spec.known_exception, name=spec.name)
        raise (yield from record_failure(prepared, kind, error, attempt=decision.attempt - 1, seconds=0.0)) from None


def record_value(
    prepared: Prepared[S], kind: Kind, value: Any, *, attempt: int, seconds: float
) -> Generator[Operation, Any, Any]:
    """Commit a completed call and return the decoded form of what was stored."""
    active, spec = prepared.active, prepared.spec
    sealed, decoded = seal_result(prepared, value)
    raw, blob, stored = active.stored_value(sealed)
    state, dropped = active.state_changes()
    touched = (yield from _touched(prepared, kind)) if active.resources.is_busy else None
    resources, artifacts, contents = SILENCE if touched is None else touched.said
    body = Done(
        value=raw,
        blob=blob,
        attempt=attempt,
        seconds=seconds,
        shown=prepared.shown(),
        state=state,
        dropped=dropped,
        resources=resources,
        artifacts=artifacts,
        cost=active.spent(prepared.call.key),
    )
    power = True if kind is Kind.RECEIPT else None
    ticket, _ = active.submit(kind, prepared.call, body, stored=stored + contents, power=power)
    yield Commit(active, ticket)
    active.publish_step(prepared.call, spec.kind, body)
    if touched is not None:
        active.resources.commit(touched)
        heed_problem(active, touched)
    return decoded


def seal_result(prepared: Prepared[S], value: Any) -> tuple[bytes, Any]:
    """The stored and the decoded form of a result; one that cannot be stored fails here, by name."""
    try:
        return prepared.sealed(value)
    except UnstorableValue as error:
        steps = prepared.active.row.steps
        raise UnstorableValue(
            f"Step {steps + 1} ({prepared.spec.name}) cannot be saved: {error.message}",
            safe=f"steps 1-{steps} are saved." if steps else "nothing was recorded for it.",
            hint=error.hint,
        ) from None


def record_failure(
    prepared: Prepared[S], kind: Kind, error: Exception, *, attempt: int, seconds: float
) -> Generator[Operation, Any, Exception]:
    """Commit a failure that the agent will see, and build the exception it gets, now and at every replay."""
    active, spec = prepared.active, prepared.spec
    ran_out = spec.retry.attempts > 1 and isinstance(error, spec.retry.on)
    failure = exhausted(spec.name, attempt, error) if ran_out else describe_failure(error)
    state, dropped = active.state_changes()
    touched = (yield from _touched(prepared, kind)) if active.resources.is_busy else None
    resources, artifacts, contents = SILENCE if touched is None else touched.said
    body = Done(
        failure=failure,
        attempt=attempt,
        seconds=seconds,
        shown=prepared.shown(),
        state=state,
        dropped=dropped,
        resources=resources,
        artifacts=artifacts,
        cost=active.spent(prepared.call.key),
    )
    power = True if kind is Kind.RECEIPT else None
    ticket, _ = active.submit(kind, prepared.call, body, stored=contents, power=power)
    yield Commit(active, ticket)
    active.publish_step(prepared.call, spec.kind, body)
    if touched is not None:
        active.resources.commit(touched)
        heed_problem(active, touched)
    return prepared.failed(rebuild(failure, spec.known_exception, name=spec.name))


def heed_problem(active: Active, touched: Touched) -> None:
    """Stop a run whose working directory can no longer be kept, once the step itself is on record."""
    if touched.problem is not None:
        raise active.halt(Stop(RunState.WAITING, WaitReason.PARKED, touched.problem))


def _touched(prepared: Prepared[S], kind: Kind) -> Generator[Operation, Any, Touched]:
    """What the record of this call says of resources."""
    from perdure.engine.recovery import touched_by  # only runs with resources pay for it

    return (yield from touched_by(prepared.active, prepared.call.key, kind))


def record_attempt(
    prepared: Prepared[S], error: Exception, *, attempt: int, seconds: float
) -> Generator[Operation, Any, None]:
    """Commit a failed attempt, so that it still counts after a crash, and wait for the next."""
    active = prepared.active
    delay = delay_seconds(prepared.spec.retry, failed_attempts=attempt, fraction=clock.new_fraction())
    body = Attempt(
        attempt=attempt,
        failure=describe_failure(error),
        next_at=clock.wall_seconds() + delay,
        seconds=seconds,
        shown=prepared.shown(),
        cost=active.spent(prepared.call.key),
    )
    ticket, _ = active.submit(Kind.ATTEMPT, prepared.call, body)
    yield Commit(active, ticket)
    if events.is_wanted(events.AttemptFailed):
        row = active.row
        place = (row.run_id, row.name, prepared.call.name, attempt)
        events.publish(events.AttemptFailed(*place, repr(error), delay, prepared.call.key))
    yield Pause(delay)
