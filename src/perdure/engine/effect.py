"""`@effect`: a call the world remembers.

An intent is committed before it, a receipt after it, and what lies between is never guessed:

    Fresh ─ intent ─ fence ─ body ─┬─ value ───────────────── receipt
                                   ├─ proves nothing happened ─ failure (or another attempt)
                                   └─ anything else ─────────── in doubt ─ settle ─┬─ happened
                                                                                   ├─ did not happen ─ another attempt
                                                                                   └─ nobody can tell ─ a person
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, Protocol, TypeVar, overload

from msgspec import Raw

from perdure import clock, codec, events
from perdure.bodies import Intended, Settled
from perdure.engine.approval import approval
from perdure.engine.call import Prepared, Spec, approval_key, note_undoable, pristine, spec_of, wrapped
from perdure.engine.drive import Commit, Operation, Pause, Perform, Quiet
from perdure.engine.failure import message_of
from perdure.engine.scope import Frame
from perdure.engine.session import heed
from perdure.engine.settle import (
    KNOWN_TO_HAPPEN,
    Happened,
    Intent,
    Verdict,
    ask_person,
    leave_in_doubt,
    record_doubt,
    settle,
    verdict_value,
)
from perdure.engine.signature import Signature
from perdure.engine.step import record_attempt, record_failure, record_value, refuse_late
from perdure.errors import LeaseLost, PerdureError, Signal, UnstorableValue, UsageError
from perdure.policy import (
    DEFAULT_IN_FLIGHT_SECONDS,
    DEFAULT_KEY_TTL_SECONDS,
    ONCE,
    SAME_KEY,
    ExceptionTypes,
    Retry,
    are_exceptions,
    delay_seconds,
    may_retry,
    proves_nothing_happened,
)
from perdure.records import Kind, Mail
from perdure.replay import Fresh, InDoubt, Verdicted

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    from perdure.records import Record

P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
C = TypeVar("C", bound="Callable[[Intent], Verdict | Awaitable[Verdict]]")


class Effect(Protocol[P, R_co]):
    """A decorated effect: called like the function itself, with a place for its check."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Perform the effect once."""

    def check(self, function: C, /) -> C:
        """Register the read-only function that tells whether an attempt happened."""


class EffectSpec(Spec):
    """What `@effect` was told."""

    kind = "effect"

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(
            function, name=options["name"], retry=options["retry"], timeout=options["timeout"], key=options["key"]
        )
        self.keyed: bool = options["keyed"]
        self.key_from: Callable[..., str] | None = options["key_from"]
        self.key_ttl_seconds: float = options["key_ttl"]
        self.in_flight_seconds: float = options["in_flight_seconds"]
        self.certain: ExceptionTypes = options["certain"]
        self.ambiguous: ExceptionTypes = options["ambiguous"]
        self.undo: Callable[..., Any] | None = options["undo"]
        self.approve: bool | Callable[..., bool] = options["approve"]
        self.check: Callable[[Intent], Any] | None = None
        if not (are_exceptions(self.certain) and are_exceptions(self.ambiguous)):
            raise UsageError(
                f"{self.name}: certain={self.certain!r}, ambiguous={self.ambiguous!r}.",
                hint="list exception classes: certain=(ConnectionError,)",
            )
        if not (isinstance(self.approve, bool) or (callable(self.approve) and not iscoroutinefunction(self.approve))):
            raise UsageError(
                f"{self.name}: approve={self.approve!r}.",
                hint="approve=True, or a plain function of the arguments that says whether to ask",
            )
        if self.undo is not None and Signature(self.undo, word="undo").is_async and not self.signature.is_async:
            raise UsageError(
                f"The undo of {self.name} is async, but {self.name} is not.",
                hint="make both async, or both plain functions",
            )
        if self.in_flight_seconds < 0 or self.key_ttl_seconds < 0:
            raise UsageError(
                f"{self.name}: in_flight_seconds and key_ttl must not be negative.", hint="0 where nothing can linger"
            )

    def inverse(self, step_key: str) -> EffectSpec:
        """The effect that takes this one back: called with the result, then with the arguments.

        An undo that is an effect itself brings its own key, check and retries; any other is judged like this effect.
        """
        own = spec_of(self.undo)
        place = {"approve": False, "undo": None, "name": f"undo {self.name}", "key": step_key}
        if isinstance(own, EffectSpec):
            undoing = EffectSpec(own.function, own.options() | place)
            undoing.check = own.check
            return undoing
        plain = {"keyed": False, "key_from": None, "timeout": None}
        return EffectSpec(self.undo or self.function, self.options() | plain | place)

    def options(self) -> dict[str, Any]:
        """What decides how an attempt is judged and repeated, as `@effect` was told."""
        return {
            "keyed": self.keyed,
            "key_from": self.key_from,
            "key_ttl": self.key_ttl_seconds,
            "in_flight_seconds": self.in_flight_seconds,
            "certain": self.certain,
            "ambiguous": self.ambiguous,
            "retry": self.retry,
            "timeout": self.timeout,
        }

    def needs_approval(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether a person must be asked before this call is performed."""
        return bool(self.approve(*args, **kwargs) if callable(self.approve) else self.approve)

    def effect_key(self, prepared: Prepared[EffectSpec]) -> str:
        """The key under which the outside knows this effect."""
        if self.key_from is not None:
            key = self.key_from(*prepared.args, **prepared.kwargs)
            if not isinstance(key, str) or not key:
                raise UsageError(
                    f"{prepared.shown()}: key_from returned {codec.describe(key)}.",
                    safe="nothing was performed.",
                    hint="return a text that tells this effect from every other, such as an order number",
                )
            return key
        return prepared.active.effect_key(prepared.call.key)


@overload
def effect(function: Callable[P, R], /) -> Effect[P, R]: ...


@overload
def effect(
    *,
    keyed: bool = ...,
    key_from: Callable[..., str] | None = ...,
    key_ttl: float = ...,
    in_flight_seconds: float = ...,
    certain: ExceptionTypes = ...,
    ambiguous: ExceptionTypes = ...,
    undo: Callable[..., Any] | None = ...,
    approve: bool | Callable[..., bool] = ...,
    retry: Retry = ...,
    timeout: float | None = ...,
    key: str | Callable[..., str] | None = ...,
    name: str | None = ...,
) -> Callable[[Callable[P, R]], Effect[P, R]]: ...


def effect(
    function: Callable[..., Any] | None = None,
    /,
    *,
    keyed: bool = False,
    key_from: Callable[..., str] | None = None,
    key_ttl: float = DEFAULT_KEY_TTL_SECONDS,
    in_flight_seconds: float = DEFAULT_IN_FLIGHT_SECONDS,
    certain: ExceptionTypes = (),
    ambiguous: ExceptionTypes = (),
    undo: Callable[..., Any] | None = None,
    approve: bool | Callable[..., bool] = False,
    retry: Retry = ONCE,
    timeout: float | None = None,
    key: str | Callable[..., str] | None = None,
    name: str | None = None,
) -> Any:
    """Perform this function at most once for each call of a run, whatever dies in between.

    `keyed=True`: the outside honours `perdure.current().key`, so an interrupted attempt is sent again under the same
    key until it is `key_ttl` seconds old. `.check` registers how to find out. `in_flight_seconds`: how long a dead
    sender's request may still land. `certain` / `ambiguous`: exceptions that prove that nothing happened, or do not.
    `key_from`: a business key in place of the made one. `undo`: called with the result, then the arguments, to take
    the effect back. `approve=True`, or a function of the arguments that says so: a person is asked before it is
    performed; the approval holds for these arguments and no others.
    """
    options = {
        "keyed": keyed or key_from is not None,
        "key_from": key_from,
        "key_ttl": key_ttl,
        "in_flight_seconds": in_flight_seconds,
        "certain": certain,
        "ambiguous": ambiguous,
        "undo": undo,
        "approve": approve,
        "retry": retry,
        "timeout": timeout,
        "key": key,
        "name": name,
    }

    def decorate(function: Callable[..., Any]) -> Any:
        spec = EffectSpec(function, options)
        wrapper: Any = wrapped(spec, effect_flow)
        wrapper.check = _check_decorator(spec)
        return wrapper

    return decorate if function is None else decorate(function)


def _check_decorator(spec: EffectSpec) -> Callable[[Any], Any]:
    def check(function: Any = None, /, **options: Any) -> Any:
        if options:
            raise UsageError(
                f"The check of {spec.name} takes no options, but was given {', '.join(options)}.",
                hint=f"@{spec.name}.check above the def, and options such as in_flight_seconds= in @perdure.effect(…)",
            )
        if Signature(function, word="check").is_async and not spec.signature.is_async:
            raise UsageError(
                f"The check of {spec.name} is async, but {spec.name} is not.",
                hint="make both async, or both plain functions",
            )
        spec.check = function
        return function

    return check


def effect_flow(prepared: Prepared[EffectSpec]) -> Generator[Operation, Any, Any]:
    """Act on the decision: perform, or settle what an earlier attempt left behind first."""
    decision = prepared.decision
    key_at, forgiven, since = 0.0, 0, 0.0
    prepared.active.unvisited.pop(approval_key(prepared.call.key), None)
    match decision:
        case Fresh(attempt, not_before, forgiven, since):
            yield from _refuse_moved(prepared)
            yield from _approved(prepared, attempt)
            if not_before:
                yield Pause(min(not_before - clock.wall_seconds(), 2 * prepared.spec.retry.max_delay_seconds))
            yield from refuse_late(prepared, Kind.RECEIPT, decision)
        case InDoubt(attempt, intent, why):
            settled = yield from settle(prepared, intent, attempt=attempt, why=why)
            if isinstance(settled, Happened):
                return _undoable(prepared, settled.value)
            attempt, key_at = settled.attempt, settled.key_at
            yield from _approved(prepared, attempt)  # a fork, or a run that lost records, may not have the approval
        case Verdicted(verdict):
            return _undoable(prepared, verdict_value(prepared, verdict))
        case _:
            raise AssertionError(decision)
    value = yield from _perform(prepared, attempt, key_at, forgiven=forgiven, since=since)
    return _undoable(prepared, value)


def _approved(prepared: Prepared[EffectSpec], attempt: int) -> Generator[Operation, Any, None]:
    """Go on where the effect may be performed; otherwise record the refusal, and raise it."""
    denied = yield from approval(prepared)
    if denied is not None:
        raise (yield from record_failure(prepared, Kind.RECEIPT, denied, attempt=attempt, seconds=0.0))


def _refuse_moved(prepared: Prepared[EffectSpec]) -> Generator[Operation, Any, None]:
    """Park where changed code makes a recorded effect in another scope: it would be performed a second time."""
    active = prepared.active
    if active.moved(prepared.call) is None or not (yield Quiet(active)):
        return
    entry = active.moved(prepared.call)
    if entry is not None:
        raise active.diverge(entry.shown_call(), f"{prepared.shown()} at another place ({prepared.call.key})")


def _undoable(prepared: Prepared[EffectSpec], value: Any) -> Any:
    note_undoable(prepared, value)
    return value


def _perform(
    prepared: Prepared[EffectSpec], attempt: int, key_at: float, *, forgiven: int, since: float
) -> Generator[Operation, Any, Any]:
    """Attempts, one after the other, each with its own intent."""
    spec, since = prepared.spec, since or clock.wall_seconds()
    while True:
        intent = yield from _intend(prepared, attempt, key_at)
        started = clock.elapsed_seconds()
        performance = _performance(prepared, spec, attempt)
        try:
            value = yield performance
        except asyncio.CancelledError:
            leave_in_doubt(prepared, attempt=attempt, why="it was cancelled while it was performed")
            raise
        except Exception as error:
            seconds = clock.seconds_since(started)
            failed, elapsed = attempt - forgiven, clock.wall_seconds() - since
            is_first = not key_at  # of an attempt under the same key before this one, no error can prove anything
            if is_first and proves_nothing_happened(error, certain=spec.certain, ambiguous=spec.ambiguous):
                if not may_retry(spec.retry, failed_attempts=failed, error=error, elapsed_seconds=elapsed):
                    raise (
                        yield from record_failure(prepared, Kind.RECEIPT, error, attempt=attempt, seconds=seconds)
                    ) from error
                yield from record_attempt(prepared, error, attempt=attempt, seconds=seconds)
                attempt, key_at = attempt + 1, 0.0
                continue
            why = f"{type(error).__name__}: {message_of(error)}{_place_of(error)}"
            yield from record_doubt(prepared, attempt=attempt, why=why)
            settled = yield from settle(prepared, intent, attempt=attempt, why=why, performance=performance)
            if isinstance(settled, Happened):
                return settled.value
            if not settled.key_at:
                yield from _refuse_endless(prepared, error, attempt=attempt, failed=failed, seconds=seconds)
            attempt, key_at = settled.attempt, settled.key_at
            continue
        return (yield from _confirm(prepared, value, attempt=attempt, seconds=clock.seconds_since(started)))


def _refuse_endless(
    prepared: Prepared[EffectSpec], error: Exception, *, attempt: int, failed: int, seconds: float
) -> Generator[Operation, Any, None]:
    """An effect that raises, and did not happen, again and again: wait longer each time, and in the end let it fail."""
    if failed >= max(prepared.spec.retry.attempts, SAME_KEY.attempts):
        raise (yield from record_failure(prepared, Kind.RECEIPT, error, attempt=attempt, seconds=seconds)) from error
    yield Pause(delay_seconds(SAME_KEY, failed_attempts=failed, fraction=clock.new_fraction()))


def _intend(prepared: Prepared[EffectSpec], attempt: int, key_at: float) -> Generator[Operation, Any, Record]:
    """Commit the intent, then make sure once more that nobody else has taken the run over.

    A cancel or a pause that was committed before is heeded: no effect begins after somebody was told that none will.
    """
    active, spec = prepared.active, prepared.spec
    active.read(heed, active)
    active.raise_if_stopped()
    sealed = codec.seal_arguments(prepared.arguments, of=spec.name)
    raw, blob, stored = active.stored_value(sealed)
    body = Intended(
        effect_key=spec.effect_key(prepared),
        attempt=attempt,
        arguments=raw,
        blob=blob,
        key_at=key_at or clock.wall_seconds(),
        shown=prepared.shown(),
    )
    ticket, intent = active.submit(Kind.INTENT, prepared.call, body, stored=stored, power=True)
    try:
        yield Commit(active, ticket)
    except asyncio.CancelledError:
        if key_at:
            leave_in_doubt(prepared, attempt=attempt, why="it was cancelled before it was sent again")
        else:
            never = Settled(attempt=attempt, outcome="did_not_happen", by="cancelled before it began")
            active.submit(Kind.VERDICT, prepared.call, never, power=True)
        raise
    active.movements += 1
    if events.is_wanted(events.IntentRecorded):
        row = active.row
        place = (row.run_id, row.name, row.steps + 1, spec.name, attempt)
        events.publish(events.IntentRecorded(*place, prepared.call.key))
    active.mind_lease()
    if not active.read(active.store.holds, active.row.run_id, active.row.epoch):
        raise active.fenced(LeaseLost(f"Run {active.row.name} was taken over before {spec.name} began."))
    if active.signal is not None:  # the store was away while the intent was written, or somebody stopped the run
        if not key_at:  # of an earlier attempt under the same key nobody knows yet
            never = Settled(attempt=attempt, outcome="did_not_happen", by="stopped before it began")
            ticket, _ = active.submit(Kind.VERDICT, prepared.call, never, power=True)
            yield Commit(active, ticket)
        raise active.signal
    return intent


def _place_of(error: BaseException) -> str:
    """Where the effect raised, so that a person who must judge it can find the line."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""


def _performance(prepared: Prepared[EffectSpec], spec: EffectSpec, attempt: int) -> Perform:
    frame = Frame(
        prepared.active,
        prepared.frame.scope,
        body=spec.name,
        step_key=prepared.call.key,
        effect_key=spec.effect_key(prepared),
        attempt=attempt,
    )
    args, kwargs = pristine(prepared.args, prepared.kwargs)
    return Perform(prepared.active, frame, spec.function, args, kwargs, timeout=spec.timeout)


def _confirm(
    prepared: Prepared[EffectSpec], value: Any, *, attempt: int, seconds: float
) -> Generator[Operation, Any, Any]:
    """Commit the receipt. What cannot be stored happened all the same; what comes too late is kept as evidence."""
    try:
        return (yield from record_value(prepared, Kind.RECEIPT, value, attempt=attempt, seconds=seconds))
    except UnstorableValue as error:
        why = f"{KNOWN_TO_HAPPEN}: {error.message}"
        yield from record_doubt(prepared, attempt=attempt, why=why)
        return (yield from ask_person(prepared, why=why))
    except Signal:
        # Somebody else has the run, or it ended here meanwhile. A store that fails now leaves the doubt as it is.
        with contextlib.suppress(PerdureError):
            _leave_evidence(prepared, value, attempt=attempt)
        raise


def _leave_evidence(prepared: Prepared[EffectSpec], value: Any, *, attempt: int) -> None:
    """Tell whoever holds the run now that this attempt did happen."""
    row = prepared.active.row
    sealed = codec.seal(value)
    body = f'{{"attempt":{attempt},"value":{bytes(Raw(sealed)).decode()}}}'
    prepared.active.store.post(
        Mail(0, row.run_id, "evidence", prepared.call.key, body, f"worker {row.holder}", clock.wall_seconds())
    )
