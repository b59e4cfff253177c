"""Walks a map from where the journal left it: items are started in order and committed in order, a batch at a time.

done, committed │ done, waits for the next commit │ executed now │ not taken from the source yet
└── never more than `batch` items ──┘
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from perdure import clock, events
from perdure.bodies import Batch, Lot
from perdure.engine.active import Failed, Stop
from perdure.engine.drive import Commit, Operation
from perdure.engine.ledger import SILENCE, Touched
from perdure.engine.mapping.item import Once, Outcome, Performer, Pure, item_key
from perdure.engine.mapping.lanes import Lanes, Tasks, Threads
from perdure.engine.mapping.mapped import Summary, read_lot
from perdure.engine.mapping.source import Item, digest_of, matches
from perdure.engine.step import heed_problem, record_failure, record_value
from perdure.errors import START_OVER, JournalDiverged, PerdureError, Signal
from perdure.records import Kind, RunState, WaitReason
from perdure.store import blobs

if TYPE_CHECKING:
    from perdure.engine.mapping.call import MapCall
    from perdure.engine.scope import Frame

LOT_BYTES: Final = 4 * 1024 * 1024
"""Results waiting for a commit are committed before they are larger than about this."""

PRINT_BYTES: Final = 4
"""What is kept of an item beside its result, to name the item that differs."""

_encode: Final = msgspec.json.Encoder().encode


class Stretch:
    """Execute items one after another, in place, until what is done should be committed."""

    __slots__ = ("_frame", "_performer", "_walk")

    def __init__(self, walk: Walk, performer: Performer, frame: Frame) -> None:
        self._walk = walk
        self._performer = performer
        self._frame = frame

    def now(self) -> None:
        walk, perform, frame = self._walk, self._performer.now, self._frame
        while walk.may_take() and (item := walk.take()) is not None:
            walk.note(item, perform(item, frame))
            if walk.is_due():
                return

    async def later(self) -> None:
        walk, perform, frame = self._walk, self._performer.later, self._frame
        while walk.may_take() and (item := walk.take()) is not None:
            walk.note(item, await perform(item, frame))
            if walk.is_due():
                return


class Walk:
    """One map on its way."""

    def __init__(self, prepared: MapCall) -> None:
        self._prepared = prepared
        self._active = prepared.active
        self._options = prepared.options
        self._source = prepared.source
        self._first = 0
        self._ready: list[tuple[Item, Outcome]] = []
        self._ready_bytes = 0
        self._early: dict[int, tuple[Item, Outcome]] = {}
        self._failing: dict[int, tuple[Item, Exception, int]] = {}
        self._more = True
        self._failed = 0
        self._seconds = 0.0
        self._lots = bytearray()
        options = prepared.options
        self._lanes_count = min(options.concurrency, options.batch)
        self._lot = options.batch - self._lanes_count + 1
        self._began = self._since = clock.elapsed_seconds()
        self._skipped = 0

    def flow(self) -> Generator[Operation, Any, Summary]:
        """Perform what is not done yet, and record the end."""
        try:
            self._skip_done()
            yield from self._walk()
        finally:
            self._source.close()
        if self._failing:
            raise (yield from self._fail(*self._failing[min(self._failing)]))
        return (yield from self._finish())

    def _walk(self) -> Generator[Operation, Any, None]:
        lanes = None if self._lanes_count == 1 else self._lanes()
        try:
            yield from self._one_by_one() if lanes is None else self._side_by_side(lanes)
        except GeneratorExit:
            raise
        except BaseException as error:
            yield from self._wind_up(lanes, error)
            raise

    def _one_by_one(self) -> Generator[Operation, Any, None]:
        stretch = Stretch(self, self._performer(), self._prepared.frame)
        while self.may_take():
            yield stretch
            yield from self._commit()

    def _side_by_side(self, lanes: Lanes) -> Generator[Operation, Any, None]:
        seconds = self._options.seconds
        while True:
            while self._may_start(lanes) and (item := self.take()) is not None:
                lanes.start(item)
            if not lanes.busy:
                break
            ended = yield lanes.next(seconds)
            if ended is not None:
                self._note_ended(*ended)
            if self.is_due():
                yield from self._commit()
        yield from self._commit()
        yield lanes.close()

    def _may_start(self, lanes: Lanes) -> bool:
        under_way = lanes.busy + len(self._ready) + len(self._early)
        return self.may_take() and lanes.busy < self._lanes_count and under_way < self._options.batch

    def may_take(self) -> bool:
        """Whether another item is wanted; raises where the run was stopped."""
        if self._active.signal is not None or self._active.deadline_at:
            self._active.raise_if_stopped()
        return self._more and not self._failing

    def take(self) -> Item | None:
        """The next item; None at the end of the source."""
        item = self._source.take()
        self._more = item is not None
        return item

    def note(self, item: Item, outcome: Outcome) -> None:
        """Put an item that is done into its place in the order."""
        item.value = None  # large items are not held until the commit
        if outcome.error is not None and not self._options.collect:
            self._failing[item.index] = (item, outcome.error, outcome.attempt)
            return
        if item.index == self._first + len(self._ready):
            self._ready.append((item, outcome))
            self._ready_bytes += len(outcome.sealed)
            if not self._early:
                return
        else:
            self._early[item.index] = (item, outcome)
        while (following := self._early.pop(self._first + len(self._ready), None)) is not None:
            self._ready.append(following)
            self._ready_bytes += len(following[1].sealed)

    def is_due(self) -> bool:
        """Whether what is ready should be committed now."""
        ready = len(self._ready)
        if ready >= self._lot or self._ready_bytes >= LOT_BYTES:
            return ready > 0
        return ready > 0 and clock.elapsed_seconds() - self._since >= self._options.seconds

    def _note_ended(self, item: Item, outcome: Outcome | None, error: BaseException | None) -> None:
        if error is not None:
            raise error
        if outcome is not None:
            self.note(item, outcome)

    def _commit(self) -> Generator[Operation, Any, None]:
        """Commit the items that are done, up to the first that is not."""
        if not self._ready:
            return
        ready, now = self._ready, clock.elapsed_seconds()
        touched = (yield from self._touched(ready)) if self._active.resources.is_busy else None
        resources, artifacts, contents = SILENCE if touched is None else touched.said
        lot = _lot_of(ready)
        address, stored = blobs.pack(_encode(lot))
        body = Batch(
            first=self._first,
            count=len(ready),
            blob=address.hex(),
            items=digest_of(item for item, _ in ready),
            failed=len(lot.failures),
            seconds=round(now - self._since, 6),
            resources=resources,
            artifacts=artifacts,
            cost=self._active.spent(self._prepared.call.key),
        )
        self._ready, self._ready_bytes = [], 0
        ticket, _ = self._active.submit(
            Kind.BATCH, self._prepared.call, body, stored=((address, stored), *contents), deliveries=0
        )
        self._since = now
        self._count(body)
        yield Commit(self._active, ticket)
        self._active.movements += 1
        self._tell()
        if touched is not None:
            self._active.resources.commit(touched)
            heed_problem(self._active, touched)

    def _touched(self, ready: list[tuple[Item, Outcome]]) -> Generator[Operation, Any, Touched]:
        """What the functions of these items said of resources, as one."""
        from perdure.engine.recovery import touched_by  # only runs with resources pay for it

        key, ledger = self._prepared.call.key, self._active.resources
        whole = ledger.touch(key)
        for item, _ in ready:
            one = ledger.take(f"{key}[{item.index}]")
            whole.resources.update(one.resources)
            whole.artifacts.extend(one.artifacts)
            whole.blobs.update(one.blobs)
        return (yield from touched_by(self._active, key, Kind.BATCH))

    def _count(self, batch: Batch) -> None:
        self._first += batch.count
        self._failed += batch.failed
        self._seconds += batch.seconds
        self._lots += bytes.fromhex(batch.blob)

    def _finish(self) -> Generator[Operation, Any, Summary]:
        """Record that every item is done, once nothing on record contradicts that."""
        prepared, active = self._prepared, self._active
        left = next((key for key in active.journal.inside(prepared.call.key) if key in active.unvisited), "")
        if left:
            recorded = active.journal.entries[left].shown_call()
            raise self._diverged(f"{recorded} is on record", f"the source ended after {self._first:,} items without it")
        active.leave(prepared.source_scope)
        if active.signal is not None:
            raise active.signal
        summary = Summary(self._first, self._failed, bytes(self._lots))
        yield from record_value(prepared, Kind.STEP, summary, attempt=1, seconds=round(self._seconds, 6))
        self._tell(ended=True)
        return summary

    def _fail(self, item: Item, error: Exception, attempt: int) -> Generator[Operation, Any, Exception]:
        """Record that an item failed: a run that fails of it attempts it anew when it is resumed."""
        prepared = self._prepared
        raised: Exception = yield from record_failure(
            prepared, Kind.STEP, error, attempt=attempt, seconds=round(self._seconds, 6)
        )
        raised.add_note(f"perdure: {prepared.spec.name} failed at item {item.index:,}: {item.shown}")
        raised.__cause__ = error
        if prepared.work.effect is not None:
            keys = [item_key(prepared.call.key, failed) for failed, _, _ in self._failing.values()]
            self._active.failed += [Failed(raised, key, {}) for key in keys]
        return raised

    def _wind_up(self, lanes: Lanes | None, error: BaseException) -> Generator[Operation, Any, None]:
        """Stop: what is being executed comes to its end, and what is done is committed where it still can be."""
        if lanes is not None:
            while lanes.busy and not isinstance(error, asyncio.CancelledError):
                ended = yield lanes.next(self._options.seconds)
                if ended is not None and ended[1] is not None:
                    self.note(ended[0], ended[1])
            yield lanes.close()
        with contextlib.suppress(Signal, PerdureError):
            yield from self._commit()

    def _performer(self) -> Performer:
        work, key = self._prepared.work, self._prepared.call.key
        if work.effect is None:
            return Pure(work, self._active, map_key=key)
        return Once(work.effect, self._active, map_key=key, bound=work.bound)

    def _lanes(self) -> Lanes:
        lanes = Tasks if self._prepared.work.is_async else Threads
        return lanes(self._performer(), self._prepared.frame, count=self._lanes_count)

    def _skip_done(self) -> None:
        """Pass over the items that are done, and make sure that they are the ones that were."""
        batches = self._prepared.batches
        for batch in batches:
            self._count(batch)
        self._visit_done()
        walked = batches
        if batches and self._source.can_restart and not self._options.has_effect_keys:
            walked = batches[-1:]
        self._source.open(walked[0].first if walked else 0)
        for batch in walked:
            self._pass_over(batch)
        self._skipped = self._first
        self._began = self._since = clock.elapsed_seconds()
        if batches:
            self._tell(resumed=True)

    def _pass_over(self, batch: Batch) -> None:
        items: list[Item] = []
        while len(items) < batch.count:
            if self._active.signal is not None:
                raise self._active.signal
            item = self._source.take()
            if item is None:
                raise self._diverged(
                    f"{self._first:,} items are done", f"the source ends after {batch.first + len(items):,} items"
                )
            items.append(item)
        if not matches(batch, items):
            raise self._differs(batch, items)
        if self._options.has_effect_keys:
            for item in items:
                key = item_key(self._prepared.call.key, item)
                self._active.claim_key(key)
                self._active.unvisited.pop(key, None)

    def _visit_done(self) -> None:
        """Effects of items that are committed were made: no walk comes by them again."""
        if self._prepared.work.effect is None or self._options.has_effect_keys:
            return
        prefix = f"{self._prepared.call.key}["
        for key in self._active.journal.inside(self._prepared.call.key):
            index = key.removeprefix(prefix).removesuffix("]")
            if index.isdecimal() and int(index) < self._first:
                self._active.unvisited.pop(key, None)

    def _differs(self, batch: Batch, items: list[Item]) -> BaseException:
        lot = read_lot(self._active.load_value(Raw(b""), batch.blob))
        for place, item in enumerate(items):
            if lot.prints[place * PRINT_BYTES :][:PRINT_BYTES] != _short(item):
                was, now = lot.shown[place], item.shown
                return self._diverged(
                    f"item {item.index:,} was {was}",
                    f"item {item.index:,} is {now}" + (", which looks the same and is not" if was == now else ""),
                )
        return self._diverged(f"items {batch.first:,} to {items[-1].index:,}", "other items")

    def _diverged(self, recorded: str, now: str) -> BaseException:
        """Park: the source does not give the items that are done."""
        run, name = self._active.row, self._prepared.spec.name
        error = JournalDiverged(
            f"Run {run.name}: {name} gets other items than before.\n  recorded: {recorded}\n  now:      {now}",
            safe=f"the results of {self._first:,} items are saved; nothing more is performed.",
            hint=f"give the same items in the same order and start again; or {START_OVER}",
        )
        return self._active.halt(Stop(RunState.WAITING, WaitReason.PARKED, error))

    def _tell(self, *, resumed: bool = False, ended: bool = False) -> None:
        if not events.is_wanted(events.MapAdvanced):
            return
        row = self._active.row
        seconds = clock.elapsed_seconds() - self._began
        rate = (self._first - self._skipped) / seconds if seconds > 0 else 0.0
        name, total = self._prepared.spec.name, self._source.total
        stage = "resumed" if resumed else "ended" if ended else "advanced"
        events.publish(
            events.MapAdvanced(row.run_id, row.name, name, self._first, total, self._failed, rate, seconds, stage)
        )


def _lot_of(ready: list[tuple[Item, Outcome]]) -> Lot:
    return Lot(
        values=[Raw(outcome.sealed) for _, outcome in ready],
        failures={place: outcome.failure for place, (_, outcome) in enumerate(ready) if outcome.failure is not None},
        prints=b"".join([_short(item) for item, _ in ready]),
        shown=[item.shown for item, _ in ready],
    )


def _short(item: Item) -> bytes:
    return zlib.crc32(item.print).to_bytes(PRINT_BYTES, "big")
