"""What is done for one item: a pure one is attempted as its retry policy says, an effect walks its whole way."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from perdure import clock, codec, events
from perdure.engine.call import Prepared, note_undoable
from perdure.engine.drive import Operation, Pause, Perform
from perdure.engine.effect import EffectSpec, effect_flow
from perdure.engine.failure import describe_failure, exhausted
from perdure.engine.scope import Frame
from perdure.errors import UnstorableValue, UsageError
from perdure.policy import Retry, delay_seconds, may_retry
from perdure.records import Failure
from perdure.replay import Replayed

if TYPE_CHECKING:
    from perdure.engine.active import Active
    from perdure.engine.mapping.source import Item


class Outcome(Struct, frozen=True, gc=False):
    """What became of an item: its sealed result, or its failure as it is stored and as it was raised."""

    sealed: bytes = b"null"
    failure: Failure | None = None
    error: Exception | None = None
    attempt: int = 1


class Work(Struct, frozen=True):
    """The function that a map calls with each item, and what is known of it."""

    function: Callable[[Any], Any]
    name: str
    returns: object
    is_async: bool
    retry: Retry
    timeout: float | None
    effect: EffectSpec | None = None


class ItemCall(Prepared[EffectSpec]):
    """The call of an effect for one item: its key is the map's and the item's own, whichever lane performs it."""

    def __init__(self, spec: EffectSpec, frame: Frame, item: Item, *, map_key: str) -> None:
        self._item = item
        self._map_key = map_key
        super().__init__(spec, frame, (item.value,), {})

    def _key(self) -> str:
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


def effect_item(
    work: EffectSpec, active: Active, map_key: str
) -> Callable[[Item, Frame], Generator[Operation, Any, Outcome]]:
    """The flow of one item whose function is an effect."""

    def perform(item: Item, frame: Frame) -> Generator[Operation, Any, Outcome]:
        prepared = ItemCall(work, frame, item, map_key=map_key)
        try:
            if type(prepared.decision) is Replayed:
                value = prepared.recorded(prepared.decision.done)
                note_undoable(prepared, value)
            else:
                value = yield from effect_flow(prepared)
        except Exception as error:
            if not _was_recorded(active, error):
                raise
            return Outcome(failure=describe_failure(error), error=error)
        finally:
            prepared.leave()
        return Outcome(codec.seal(value))

    return perform


def pure_item(work: Work, active: Active, map_key: str) -> Callable[[Item, Frame], Generator[Operation, Any, Outcome]]:
    """The flow of one item whose function is safe to call again."""
    function, name, timeout, returns = work.function, work.name, work.timeout, work.returns

    def perform(item: Item, frame: Frame) -> Generator[Operation, Any, Outcome]:
        attempt = 1
        while True:
            if active.signal is not None:
                raise active.signal
            body = Frame(active, frame.scope, body=name, step_key=f"{map_key}[{item.index}]", attempt=attempt)
            try:
                value = yield Perform(active, body, function, (item.value,), timeout=timeout)
            except Exception as error:  # noqa: BLE001 - the outcome of the item
                if not may_retry(work.retry, failed_attempts=attempt, error=error):
                    return Outcome(failure=_described(work, error, attempt), error=error, attempt=attempt)
                yield from _rest(work, active, error, attempt=attempt)
                attempt += 1
                continue
            return Outcome(_sealed(name, item, value, returns))

    return perform


def _rest(work: Work, active: Active, error: Exception, *, attempt: int) -> Generator[Operation, Any, None]:
    """Wait for the next attempt."""
    delay = delay_seconds(work.retry, failed_attempts=attempt, fraction=clock.new_fraction())
    if events.is_wanted(events.AttemptFailed):
        row = active.row
        events.publish(events.AttemptFailed(row.run_id, row.name, work.name, attempt, repr(error), delay))
    yield Pause(delay)


def _described(work: Work, error: Exception, attempt: int) -> Failure:
    ran_out = work.retry.attempts > 1 and isinstance(error, work.retry.on)
    return exhausted(work.name, attempt, error) if ran_out else describe_failure(error)


def _sealed(name: str, item: Item, value: Any, returns: object) -> bytes:
    try:
        return codec.seal_faithfully(value, returns, what="result")[0]
    except UnstorableValue as error:
        raise UnstorableValue(
            f"{name}: what it returned for item {item.index:,} ({item.shown}) cannot be saved: {error.message}",
            safe="the items before it are saved.",
            hint=error.hint,
        ) from None


def _was_recorded(active: Active, error: Exception) -> bool:
    """Whether this is the failure of the effect itself, on record; the map answers for it from here on."""
    for failed in active.failed:
        if failed.error is error:
            active.failed.remove(failed)
            return True
    return False
