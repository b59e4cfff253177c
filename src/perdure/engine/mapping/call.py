"""`map`: from what was asked for to a call of the run."""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, overload

from msgspec import Struct

from perdure import codec
from perdure.bodies import NULL, Batch, Cost, added, read_body
from perdure.engine.call import Prepared, Spec, spec_of
from perdure.engine.drive import drive, drive_async
from perdure.engine.effect import EffectSpec
from perdure.engine.failure import rebuild
from perdure.engine.mapping.item import Work
from perdure.engine.mapping.mapped import Mapped, Reader, Summary
from perdure.engine.mapping.source import SCOPE, Restartable, Source, checked_items
from perdure.engine.mapping.walk import Walk
from perdure.engine.scope import Frame, current_frame
from perdure.engine.signature import Signature, checked_name
from perdure.errors import UsageError
from perdure.policy import ONCE
from perdure.replay import Replayed

if TYPE_CHECKING:
    from msgspec import Raw

    from perdure.bodies import Failure

T = TypeVar("T")
R = TypeVar("R")

Items = Iterable[T] | Callable[[], Iterable[T]] | Restartable[T]
"""What can be walked: an iterable, a function that makes one, or a source that can begin in its middle."""

DEFAULT_BATCH: Final = 100
DEFAULT_SECONDS: Final = 1.0


@overload
def map_items(  # type: ignore[overload-overlap]  # a coroutine is awaited and not a result
    fn: Callable[[T], Coroutine[Any, Any, R]],
    items: Items[T],
    *,
    batch: int = ...,
    seconds: float = ...,
    concurrency: int = ...,
    key: Callable[[T], str] | None = ...,
    on_error: Literal["raise"] = ...,
    name: str | None = ...,
) -> Awaitable[Mapped[R]]: ...


@overload
def map_items(  # type: ignore[overload-overlap]  # a coroutine is awaited and not a result
    fn: Callable[[T], Coroutine[Any, Any, R]],
    items: Items[T],
    *,
    batch: int = ...,
    seconds: float = ...,
    concurrency: int = ...,
    key: Callable[[T], str] | None = ...,
    on_error: Literal["collect"],
    name: str | None = ...,
) -> Awaitable[Mapped[R | Exception]]: ...


@overload
def map_items(
    fn: Callable[[T], R],
    items: Items[T],
    *,
    batch: int = ...,
    seconds: float = ...,
    concurrency: int = ...,
    key: Callable[[T], str] | None = ...,
    on_error: Literal["raise"] = ...,
    name: str | None = ...,
) -> Mapped[R]: ...


@overload
def map_items(
    fn: Callable[[T], R],
    items: Items[T],
    *,
    batch: int = ...,
    seconds: float = ...,
    concurrency: int = ...,
    key: Callable[[T], str] | None = ...,
    on_error: Literal["collect"],
    name: str | None = ...,
) -> Mapped[R | Exception]: ...


def map_items(
    fn: Callable[[Any], Any],
    items: Items[Any],
    *,
    batch: int = DEFAULT_BATCH,
    seconds: float = DEFAULT_SECONDS,
    concurrency: int = 1,
    key: Callable[[Any], str] | None = None,
    on_error: Literal["raise", "collect"] = "raise",
    name: str | None = None,
) -> Any:
    """Call `fn` with every item, and keep the results behind a cursor that survives a crash.

    A crash repeats at most `batch` items, and about `seconds` of finished work, of a plain function or a step. An
    effect is performed once for each item, under its own key. Await it where `fn` is async. `concurrency` items are
    executed at once, in threads or tasks. The source is taken from lazily; when the run is resumed it must give the
    same items again, recognised by their content or by `key`. `on_error="collect"` goes on after an item that fails.
    """
    work = _work_of(fn)
    told_apart = _key_of(key, work)
    options = Options(
        name=f"map({work.name})" if name is None else checked_name(name),
        batch=_whole(batch, "batch"),
        seconds=_above_zero(seconds),
        concurrency=_whole(concurrency, "concurrency"),
        key=told_apart,
        collect=_collects(on_error),
        has_effect_keys=work.effect is not None and told_apart is not None,
    )
    checked_items(items, name=options.name)
    frame = current_frame()
    if frame is None or frame.body:
        plain = Source(items, name=options.name, key=options.key, frame=frame, body=frame)
        return _later_plain(fn, plain, options) if work.is_async else _now_plain(fn, plain, options)
    prepared = MapCall(work, options, items, frame)
    return _later(prepared) if work.is_async else _now(prepared)


class Options(Struct, frozen=True):
    """How a map is walked."""

    name: str
    batch: int
    seconds: float
    concurrency: int
    key: Callable[[Any], str] | None
    collect: bool
    has_effect_keys: bool


def _recorded(name: str, kind: str) -> Summary:
    """The arguments and the value of a map as its record has them; the items are recognised batch by batch."""
    raise NotImplementedError(name, kind)


class MapSpec(Spec):
    """A map as a call of the run."""

    def __init__(self, work: Work, name: str) -> None:  # the function may be of a kind that no decorator takes
        self.function = work.function
        self.signature = Signature(_recorded, word="map")
        self.name = name
        self.retry = work.retry if work.effect is None else ONCE
        self.timeout = None
        self.key = None


class MapCall(Prepared[MapSpec]):
    """One map inside a run, with its place taken: its own, and that of the calls its source makes."""

    def __init__(self, work: Work, options: Options, items: object, frame: Frame) -> None:
        self.work = work
        self.options = options
        self.batches: list[Batch] = []
        super().__init__(
            MapSpec(work, options.name), frame, (options.name, "step" if work.effect is None else "effect"), {}
        )
        self.source_scope = frame.scope.child(SCOPE, inline=True)
        own = Frame(self.active, self.source_scope, caller=frame)
        body = Frame(self.active, frame.scope, body=options.name, step_key=self.call.key)
        self.source = Source(items, name=options.name, key=options.key, frame=own, body=body)

    def shown(self) -> str:
        """The call as a person would write it."""
        return self.options.name

    def recorded_map(self, decision: Replayed) -> Mapped[Any]:
        """The results of a map that was over before; neither its source nor its function is touched."""
        active = self.active
        for place in (self.call.key, self.source_scope.path):
            for key in active.journal.inside(place):
                active.unvisited.pop(key, None)
        return self.mapped(self.recorded(decision.done))

    def mapped(self, summary: Summary) -> Mapped[Any]:
        """The results, to be read when they are asked for."""
        reader = Reader(self._load, self._value, self._failure)
        return Mapped(summary, lambda: reader.lots(summary.lots))

    def _key(self, _digest: bytes) -> str:
        key = self.frame.scope.take_key()
        journal = self.active.journal
        self.batches = [read_body(record) for record in journal.batches.get(key, ())]
        if self.batches and journal.entries[key].completion is None:
            self.active.saved_seconds += sum(batch.seconds for batch in self.batches)
        for batch in self.batches:
            self.active.saved = added(self.active.saved, batch.cost or Cost())
        return key

    def _load(self, address: bytes) -> bytes:
        return self.active.load_value(NULL, address.hex())

    def _value(self, sealed: Raw) -> Any:
        try:
            return codec.unseal(bytes(sealed), self.work.returns)
        except ValueError as error:
            raise self.unloadable(error) from error

    def _failure(self, failure: Failure) -> Exception:
        return rebuild(failure, self.spec.known_exception, name=self.work.name)


def _now(prepared: MapCall) -> Mapped[Any]:
    try:
        if type(prepared.decision) is Replayed:
            return prepared.recorded_map(prepared.decision)
        return prepared.mapped(drive(Walk(prepared).flow()))
    finally:
        prepared.leave()


async def _later(prepared: MapCall) -> Mapped[Any]:
    try:
        if type(prepared.decision) is Replayed:
            return prepared.recorded_map(prepared.decision)
        return prepared.mapped(await drive_async(Walk(prepared).flow()))
    finally:
        prepared.leave()


def _now_plain(fn: Callable[[Any], Any], source: Source, options: Options) -> Mapped[Any]:
    """Outside a run a map is a plain loop, and its results are a list in memory."""
    results: list[Any] = []
    for item in _items_of(source):
        try:
            results.append(fn(item))
        except Exception as error:
            if not options.collect:
                raise
            results.append(error)
    return _plain_mapped(results)


async def _later_plain(fn: Callable[[Any], Any], source: Source, options: Options) -> Mapped[Any]:
    results: list[Any] = []
    for item in _items_of(source):
        try:
            results.append(await fn(item))
        except Exception as error:
            if not options.collect:
                raise
            results.append(error)
    return _plain_mapped(results)


def _items_of(source: Source) -> Iterator[Any]:
    source.open()
    try:
        while (item := source.take()) is not None:
            yield item.value
    finally:
        source.close()


def _plain_mapped(results: list[Any]) -> Mapped[Any]:
    failed = sum(isinstance(result, Exception) for result in results)
    return Mapped(Summary(len(results), failed), lambda: iter((results,)))


def _work_of(fn: Callable[[Any], Any]) -> Work:
    """What is known of the function: a step or an effect brings its own options."""
    spec = spec_of(fn)
    if spec is not None:
        bound = (fn.__self__,) if inspect.ismethod(fn) else ()
        effect = spec if isinstance(spec, EffectSpec) else None
        signature = spec.signature
        return Work(
            spec.function, spec.name, signature.returns, signature.is_async, spec.retry, spec.timeout, effect, bound
        )
    if not callable(fn):
        raise UsageError(
            f"perdure.map was given {codec.describe(fn)} to call.",
            safe="nothing was performed.",
            hint="perdure.map(function, items): the function comes first",
        )
    inner: Any = fn
    while isinstance(inner, functools.partial):
        inner = inner.func
    name = getattr(inner, "__name__", type(inner).__name__)
    is_plain = inspect.isfunction(inner) or inspect.ismethod(inner)
    returns = codec.resolve_annotations(inner)[0] if is_plain else Any
    called = inner if is_plain else type(inner).__call__
    return Work(fn, name, returns, inspect.iscoroutinefunction(called), ONCE, None)


def _key_of(key: Callable[[Any], str] | None, work: Work) -> Callable[[Any], str] | None:
    """How items are told apart: as the map says, or as the effect itself does."""
    if key is not None and not callable(key):
        raise UsageError(
            f"map({work.name}): key={codec.describe(key)}.", hint="a function of the item: key=lambda item: item.id"
        )
    own = None if work.effect is None else work.effect.key
    if key is not None or own is None:
        return key
    return (lambda item: own(*work.bound, item)) if callable(own) else lambda _: own


def _whole(number: int, what: str) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise UsageError(f"perdure.map: {what}={number!r} must be a whole number of at least 1.", hint=f"{what}=10")
    return number


def _above_zero(seconds: float) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise UsageError(f"perdure.map: seconds={seconds!r} must be above 0.", hint="seconds=1")
    return float(seconds)


def _collects(on_error: str) -> bool:
    if on_error not in ("raise", "collect"):
        raise UsageError(f"perdure.map: on_error={on_error!r}.", hint='on_error="raise" or on_error="collect"')
    return on_error == "collect"
