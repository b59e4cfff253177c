"""What is done for one item: a pure one is attempted as its retry policy says, an effect walks its whole way."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from perdure import clock, codec, events
from perdure.bodies import Failure
from perdure.engine.call import Prepared, note_undoable
from perdure.engine.drive import Operation, Pause, Perform, drive, drive_async
from perdure.engine.effect import EffectSpec, effect_flow
from perdure.engine.failure import describe_failure, exhausted
from perdure.engine.scope import Frame, current_frame, enter_frame
from perdure.errors import UnstorableValue, UsageError
from perdure.policy import Retry, delay_seconds, may_retry
from perdure.replay import Replayed

if TYPE_CHECKING:
    from perdure.engine.active import Active
    from perdure.engine.mapping.source import Item


class Work(Struct, frozen=True):
    """The function that a map calls with each item, and what is known of it."""

    function: Callable[..., Any]
    name: str
    returns: object
    is_async: bool
    retry: Retry
    timeout: float | None
    effect: EffectSpec | None = None
    bound: tuple[Any, ...] = ()
    """The object a method belongs to, given before the item."""


class Outcome(Struct, frozen=True, gc=False):
    """What became of an item: its sealed result, or its failure as it is stored and as it was raised."""

    sealed: bytes = b"null"
    failure: Failure | None = None
    error: Exception | None = None
    attempt: int = 1


class Performer(Protocol):
    """Executes the function of a map for one item, in the frame of whoever does it."""

    def now(self, item: Item, frame: Frame) -> Outcome:
        """Do it, blocking this thread."""

    async def later(self, item: Item, frame: Frame) -> Outcome:
        """Do it, letting the event loop go on."""


class Pure:
    """Performs a function that is safe to call again. The first attempt goes straight to it: most succeed."""

    def __init__(self, work: Work, active: Active, *, map_key: str) -> None:
        self._work = work
        self._active = active
        self._map_key = map_key
        self._function = active.body_of(work.function)
        self._bound = work.bound
        self._returns = work.returns

    def now(self, item: Item, frame: Frame) -> Outcome:
        if self._work.timeout is not None:
            return drive(self._attempts(item, frame))
        active, body, before = self._active, self._body(item, frame, attempt=1), current_frame()
        try:
            active.begin_body(body)
            enter_frame(body)
            value = self._function(*self._bound, item.value)
        except Exception as error:  # noqa: BLE001 - the outcome of the item
            failed = error
        else:
            return self._outcome(item, value)
        finally:
            try:
                enter_frame(before)
            finally:
                active.end_body(body)
        return drive(self._attempts(item, frame, error=failed))

    async def later(self, item: Item, frame: Frame) -> Outcome:
        if self._work.timeout is not None:
            return await drive_async(self._attempts(item, frame))
        active, body, before = self._active, self._body(item, frame, attempt=1), current_frame()
        try:
            active.begin_body(body)
            enter_frame(body)
            value = await self._function(*self._bound, item.value)
        except Exception as error:  # noqa: BLE001 - the outcome of the item
            failed = error
        else:
            return self._outcome(item, value)
        finally:
            try:
                enter_frame(before)
            finally:
                active.end_body(body)
        return await drive_async(self._attempts(item, frame, error=failed))

    def _body(self, item: Item, frame: Frame, *, attempt: int) -> Frame:
        key = f"{self._map_key}[{item.index}]"
        return Frame(self._active, frame.scope, body=self._work.name, step_key=key, attempt=attempt)

    def _attempts(
        self, item: Item, frame: Frame, *, error: Exception | None = None
    ) -> Generator[Operation, Any, Outcome]:
        """Attempt the function until it succeeds or the policy ends; `error` is how the first attempt failed."""
        active, work, attempt = self._active, self._work, 1
        began = clock.elapsed_seconds()
        while True:
            active.raise_if_stopped()
            if error is None:
                body = self._body(item, frame, attempt=attempt)
                arguments = (*self._bound, item.value)
                try:
                    value = yield Perform(active, body, self._function, arguments, timeout=work.timeout)
                except Exception as raised:  # noqa: BLE001 - the outcome of the item
                    error = raised
                else:
                    return self._outcome(item, value)
            elapsed = clock.elapsed_seconds() - began
            if not may_retry(work.retry, failed_attempts=attempt, error=error, elapsed_seconds=elapsed):
                return Outcome(failure=_described(work, error, attempt), error=error, attempt=attempt)
            yield from self._rest(error, attempt)
            error, attempt = None, attempt + 1

    def _rest(self, error: Exception, attempt: int) -> Generator[Operation, Any, None]:
        """Wait for the next attempt."""
        delay = delay_seconds(self._work.retry, failed_attempts=attempt, fraction=clock.new_fraction())
        if events.is_wanted(events.AttemptFailed):
            row = self._active.row
            events.publish(events.AttemptFailed(row.run_id, row.name, self._work.name, attempt, repr(error), delay))
        yield Pause(delay)

    def _outcome(self, item: Item, value: Any) -> Outcome:
        try:
            return Outcome(codec.seal_faithfully(value, self._returns)[0])
        except UnstorableValue as error:
            name = self._work.name
            raise UnstorableValue(
                f"{name}: what it returned for item {item.index:,} ({item.shown}) cannot be saved: {error.message}",
                safe="the items before it are saved.",
                hint=error.hint,
            ) from None


class Once:
    """Performs an effect: each item has its own intent and receipt, under its own key."""

    def __init__(self, effect: EffectSpec, active: Active, *, map_key: str, bound: tuple[Any, ...]) -> None:
        self._effect = effect
        self._active = active
        self._map_key = map_key
        self._bound = bound

    def now(self, item: Item, frame: Frame) -> Outcome:
        return drive(self._flow(item, frame))

    async def later(self, item: Item, frame: Frame) -> Outcome:
        return await drive_async(self._flow(item, frame))

    def _flow(self, item: Item, frame: Frame) -> Generator[Operation, Any, Outcome]:
        prepared = ItemCall(self._effect, frame, item, map_key=self._map_key, bound=self._bound)
        try:
            if type(prepared.decision) is Replayed:
                value = prepared.recorded(prepared.decision.done)
                note_undoable(prepared, value)
            else:
                value = yield from effect_flow(prepared)
        except Exception as error:
            if not self._was_recorded(error):
                raise
            return Outcome(failure=describe_failure(error), error=error)
        finally:
            prepared.leave()
        return Outcome(codec.seal(value))

    def _was_recorded(self, error: Exception) -> bool:
        """Whether this is the failure of the effect itself, on record; the map answers for it from here on."""
        failures = self._active.failed
        found = next((failed for failed in list(failures) if failed.error is error), None)
        if found is not None:
            failures.remove(found)
        return found is not None


class ItemCall(Prepared[EffectSpec]):
    """The call of an effect for one item: its key is the map's and the item's own, whichever lane performs it."""

    def __init__(self, spec: EffectSpec, frame: Frame, item: Item, *, map_key: str, bound: tuple[Any, ...]) -> None:
        self._item = item
        self._map_key = map_key
        super().__init__(spec, frame, (*bound, item.value), {})

    def _key(self, _digest: bytes) -> str:
        key = item_key(self._map_key, self._item)
        if self._item.key and not self.active.claim_key(key):
            raise UsageError(
                f"{self.spec.name}: two items have the key {self._item.key!r}; the second is {self._item.shown}.",
                safe="nothing was performed for the second.",
                hint="make key= differ from item to item, or leave it out",
            )
        return key


def item_key(map_key: str, item: Item) -> str:
    """The key of an effect for this item."""
    return f"{map_key}[={item.key}]" if item.key else f"{map_key}[{item.index}]"


def _described(work: Work, error: Exception, attempt: int) -> Failure:
    ran_out = work.retry.attempts > 1 and isinstance(error, work.retry.on)
    return exhausted(work.name, attempt, error) if ran_out else describe_failure(error)
