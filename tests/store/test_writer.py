"""Group commit: who commits, what is grouped, in which order, and who hears of an error."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, cast

import pytest

from perdure import clock
from perdure.errors import LeaseLost, StoreFull
from perdure.records import Append
from perdure.store import writer as writing
from perdure.store.sqlite import SqliteStore
from perdure.store.writer import Ticket, Writer
from tests.interrupting import interrupted_at, lines_of
from tests.store.journals import held_run, new_run, step

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from perdure.store.protocol import Outcome, Store

PATIENCE_SECONDS = 20.0
"""How long a test waits for what must happen at once; it is only ever used up by a failure."""


class FakeStore:
    """Remembers each transaction; `during` is called inside of it."""

    def __init__(
        self, during: Callable[[Sequence[Append]], list[Outcome] | None] = lambda _: None, *, lanes: int = 1
    ) -> None:
        self.lanes = lanes
        self.batches: list[list[str]] = []
        self.powers: list[bool] = []
        self.threads: list[int] = []
        self.during = during

    def append_all(self, batch: Sequence[Append], *, power: bool) -> list[Outcome]:
        self.batches.append([append.run.run_id for append in batch])
        self.powers.append(power)
        self.threads.append(threading.get_ident())
        return self.during(batch) or [None] * len(batch)


def writer_on(store: FakeStore) -> Writer:
    return Writer(cast("Store", store))


def numbered(number: int, *, power: bool = True) -> Append:
    run, first = new_run(str(number))
    return Append(run, (first,), power=power)


def at_time(number: int, at: float) -> Append:
    run, first = new_run(str(number), at=at)
    return Append(run, (first,))


def submitted(writer: Writer, count: int) -> list[Ticket]:
    return [writer.submit(numbered(number)) for number in range(count)]


def make_slow(writer: Writer, store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the writer learn that a commit takes a second; none is spent."""
    readings = iter([0.0, 1.0])
    with monkeypatch.context() as patched:
        patched.setattr(clock, "elapsed_seconds", lambda: next(readings))
        writer.wait(writer.submit(numbered(0)))
    store.batches.clear()
    store.threads.clear()


class TestThreads:
    def test_lone_caller_commits_inline_in_its_own_thread(self) -> None:
        store = FakeStore()
        writer = writer_on(store)
        threads = threading.active_count()
        for number in range(10):
            writer.wait(writer.submit(numbered(number)))
        assert store.threads == [threading.get_ident()] * 10
        assert store.batches == [[str(number)] for number in range(10)]
        assert threading.active_count() == threads

    def test_fifty_threads_share_fewer_transactions_than_appends(self, tmp_path: Path) -> None:
        """The first to commit is held up until all have queued; the second takes everybody along."""
        queued = threading.Semaphore(0)
        transactions: list[int] = []

        class Crowded(SqliteStore):
            def append_all(self, batch: Sequence[Append], *, power: bool) -> list[Outcome]:
                transactions.append(len(batch))
                if len(transactions) == 1:
                    for _ in range(50):
                        assert queued.acquire(timeout=PATIENCE_SECONDS)
                return super().append_all(batch, power=power)

        store = Crowded(tmp_path / "perdure.db")
        runs = [held_run(store, f"run-{number}") for number in range(50)]
        writer = Writer(store)

        def work(number: int) -> None:
            ticket = writer.submit(step(runs[number]))
            queued.release()
            writer.wait(ticket)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert sum(transactions) == 50
        assert len(transactions) <= 2
        assert [run.steps for run in store.list_runs()] == [1] * 50
        store.close()

    def test_order_of_submission_is_the_order_of_commit(self) -> None:
        store = FakeStore()
        writer = writer_on(store)
        tickets = submitted(writer, 2000)
        threads = [threading.Thread(target=writer.wait, args=(ticket,)) for ticket in reversed(tickets[::100])]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        writer.wait(tickets[-1])
        assert [name for batch in store.batches for name in batch] == [str(number) for number in range(2000)]
        assert max(map(len, store.batches)) <= writing.MAX_BATCH

    def test_one_who_needs_power_brings_it_to_all_of_the_batch(self) -> None:
        store = FakeStore()
        writer = writer_on(store)
        for powers in ((False, False), (False, True), (True, False)):
            tickets = [writer.submit(numbered(0, power=power)) for power in powers]
            writer.wait(tickets[-1])
        assert store.powers == [False, True, True]


class TestEventLoop:
    def test_callers_on_one_loop_share_one_transaction(self) -> None:
        store = FakeStore()
        writer = writer_on(store)

        async def crowd() -> None:
            await asyncio.gather(*(writer.wait_async(writer.submit(numbered(number))) for number in range(30)))

        asyncio.run(crowd())
        assert store.batches == [[str(number) for number in range(30)]]

    def test_quick_commits_are_made_on_the_loop(self) -> None:
        store = FakeStore()
        writer = writer_on(store)
        asyncio.run(writer.wait_async(writer.submit(numbered(0))))
        assert store.threads == [threading.get_ident()]

    def test_slow_store_does_not_hold_the_loop_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        entered, released = threading.Event(), threading.Event()
        store = FakeStore()
        writer = writer_on(store)
        make_slow(writer, store, monkeypatch)
        in_time: list[bool] = []

        def during(_: Sequence[Append]) -> None:
            entered.set()
            in_time.append(released.wait(PATIENCE_SECONDS))

        store.during = during

        async def scenario() -> None:
            waiting = asyncio.ensure_future(writer.wait_async(writer.submit(numbered(1))))
            assert await asyncio.to_thread(entered.wait, PATIENCE_SECONDS)
            for _ in range(100):  # the loop turns while the store is busy
                await asyncio.sleep(0)
            assert not waiting.done()
            released.set()
            await waiting

        asyncio.run(scenario())
        assert in_time == [True]
        assert threading.get_ident() not in store.threads

    def test_commit_of_another_thread_does_not_hold_the_loop_up(self) -> None:
        entered, released = threading.Event(), threading.Event()
        in_time: list[bool] = []

        def during(_: Sequence[Append]) -> None:
            if not entered.is_set():
                entered.set()
                in_time.append(released.wait(PATIENCE_SECONDS))

        store = FakeStore(during)
        writer = writer_on(store)
        blocked = threading.Thread(target=lambda: writer.wait(writer.submit(numbered(0))))
        blocked.start()
        assert entered.wait(PATIENCE_SECONDS)

        async def scenario() -> None:
            waiting = asyncio.ensure_future(writer.wait_async(writer.submit(numbered(1))))
            for _ in range(100):
                await asyncio.sleep(0)
            assert not waiting.done()
            released.set()
            await waiting

        asyncio.run(scenario())
        blocked.join(PATIENCE_SECONDS)
        assert in_time == [True]
        assert store.batches == [["0"], ["1"]]

    def test_loop_and_threads_can_be_served_at_once(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "perdure.db")
        runs = {name: held_run(store, name) for name in ("sync", "async-0", "async-1")}
        writer = Writer(store)

        def work() -> None:
            for _ in range(50):
                one = step(runs["sync"])
                writer.wait(writer.submit(one))
                runs["sync"] = one.run

        async def strand(name: str) -> None:
            for _ in range(50):
                one = step(runs[name])
                await writer.wait_async(writer.submit(one))
                runs[name] = one.run

        async def crowd() -> None:
            await asyncio.gather(strand("async-0"), strand("async-1"), asyncio.to_thread(work))

        asyncio.run(crowd())
        assert [store.read_run(name) for name in runs] == list(runs.values())
        assert [len(store.load_journal(name)) for name in runs] == [52, 52, 52]
        store.close()

    def test_caller_that_was_cancelled_does_not_disturb_the_others(self) -> None:
        store = FakeStore()
        writer = writer_on(store)

        async def scenario() -> None:
            gone, stays = (asyncio.ensure_future(writer.wait_async(ticket)) for ticket in submitted(writer, 2))
            gone.get_loop().call_soon(gone.cancel)
            await stays
            with pytest.raises(asyncio.CancelledError):
                await gone

        asyncio.run(scenario())
        assert store.batches == [["0", "1"]]

    def test_loop_that_was_closed_under_its_callers_is_passed_over(self) -> None:
        store = FakeStore()
        writer = writer_on(store)

        async def leave() -> None:
            waiting = asyncio.ensure_future(writer.wait_async(writer.submit(numbered(0))))
            await asyncio.sleep(0)
            waiting.cancel()

        loop = asyncio.new_event_loop()
        with writer._turns:  # noqa: SLF001 - nobody may commit while the loop lives
            loop.run_until_complete(leave())
            loop.close()
        writer.wait(writer.submit(numbered(1)))
        assert sorted(name for batch in store.batches for name in batch) == ["0", "1"]


class TestInterruption:
    """A signal may raise an exception between any two lines; whoever comes afterwards can still commit."""

    @pytest.mark.parametrize("line", lines_of(Writer.wait))
    def test_exception_at_any_line_of_a_wait_leaves_the_turn_to_others(self, line: int) -> None:
        store = FakeStore()
        writer = writer_on(store)
        with interrupted_at(Writer.wait, line):
            writer.wait(writer.submit(numbered(0)))
        assert not writer._turns.locked()  # noqa: SLF001
        writer.wait(writer.submit(numbered(1)))
        assert "1" in {name for batch in store.batches for name in batch}


class TestLanes:
    """A store with several lanes: other runs overtake, the appends of one run never do."""

    def test_commits_of_different_runs_are_under_way_at_once(self) -> None:
        both = threading.Barrier(2)

        def during(_: Sequence[Append]) -> None:
            both.wait(PATIENCE_SECONDS)

        store = FakeStore(during, lanes=2)
        writer = writer_on(store)
        threads = [threading.Thread(target=writer.wait, args=(ticket,)) for ticket in submitted(writer, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert sorted(store.batches) == [["0"], ["1"]]

    def test_append_waits_for_the_one_before_it_of_the_same_run(self) -> None:
        blocked = Blocked("0")
        store = FakeStore(blocked, lanes=2)
        writer = writer_on(store)
        first = threading.Thread(target=writer.wait, args=(writer.submit(numbered(0)),))
        first.start()
        assert blocked.entered.wait(PATIENCE_SECONDS)
        second = threading.Thread(target=writer.wait, args=(writer.submit(numbered(0)),))
        second.start()
        writer.wait(writer.submit(numbered(1)))
        assert store.batches == [["0"], ["1"]]  # the second lane was free, and took what it might
        blocked.released.set()
        for thread in (first, second):
            thread.join(PATIENCE_SECONDS)
        assert store.batches == [["0"], ["1"], ["0"]]

    def test_append_on_a_loop_goes_on_after_a_thread_that_held_it_back(self) -> None:
        blocked = Blocked("0")
        store = FakeStore(blocked, lanes=2)
        writer = writer_on(store)
        first = threading.Thread(target=writer.wait, args=(writer.submit(numbered(0)),))
        first.start()
        assert blocked.entered.wait(PATIENCE_SECONDS)

        async def scenario() -> None:
            held_back = asyncio.ensure_future(writer.wait_async(writer.submit(numbered(0))))
            await writer.wait_async(writer.submit(numbered(1)))
            assert not held_back.done()
            blocked.released.set()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await held_back

        asyncio.run(scenario())
        first.join(PATIENCE_SECONDS)
        assert store.batches == [["0"], ["1"], ["0"]]

    def test_caller_whose_append_another_thread_took_along_hears_of_its_end(self) -> None:
        blocked = Blocked("0")
        store = FakeStore(blocked, lanes=2)
        writer = writer_on(store)
        tickets = [writer.submit(numbered(0)), writer.submit(numbered(0))]
        threads = [threading.Thread(target=writer.wait, args=(ticket,)) for ticket in tickets]
        for thread in threads:
            thread.start()
        assert blocked.entered.wait(PATIENCE_SECONDS)
        writer.wait(writer.submit(numbered(1)))
        blocked.released.set()
        for thread in threads:
            thread.join(PATIENCE_SECONDS)
        assert not any(thread.is_alive() for thread in threads)
        assert [name for batch in store.batches for name in batch].count("0") == 2

    def test_crowd_on_a_loop_is_spread_over_the_lanes_and_stays_in_order(self) -> None:
        seen: dict[str, list[float]] = {}
        under_way: list[str] = []

        def during(batch: Sequence[Append]) -> None:
            names = [append.run.run_id for append in batch]
            assert not set(names) & set(under_way)
            under_way.extend(names)
            for append in batch:
                seen.setdefault(append.run.run_id, []).append(append.run.updated_at)
            for name in names:
                under_way.remove(name)

        store = FakeStore(during, lanes=2)
        writer = writer_on(store)

        async def strand(number: int) -> None:
            for at in range(20):
                run, first = new_run(str(number), at=float(at))
                await writer.wait_async(writer.submit(Append(run, (first,))))

        async def crowd() -> None:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(*(strand(number) for number in range(30)))

        asyncio.run(crowd())
        assert list(seen.values()) == [[float(at) for at in range(20)]] * 30
        assert max(map(len, store.batches)) <= 15

    def test_what_is_held_back_keeps_its_place_in_a_long_queue(self) -> None:
        blocked = Blocked("0")
        seen: list[float] = []

        def during(batch: Sequence[Append]) -> None:
            seen.extend(append.run.updated_at for append in batch if append.run.run_id == "0")
            blocked(batch)

        store = FakeStore(during, lanes=2)
        writer = writer_on(store)
        first = threading.Thread(target=writer.wait, args=(writer.submit(at_time(0, 1.0)),))
        first.start()
        assert blocked.entered.wait(PATIENCE_SECONDS)
        writer.submit(at_time(0, 2.0))
        for _ in range(writing.MAX_BATCH):
            writer.submit(numbered(1))
        last = writer.submit(numbered(1))
        writer.submit(at_time(0, 3.0))
        writer.wait(last)
        blocked.released.set()
        writer.wait(writer.submit(at_time(0, 4.0)))
        first.join(PATIENCE_SECONDS)
        assert seen == [1.0, 2.0, 3.0, 4.0]

    def test_branches_of_one_run_share_one_transaction(self) -> None:
        store = FakeStore(lanes=2)
        writer = writer_on(store)

        async def crowd() -> None:
            await asyncio.gather(*(writer.wait_async(writer.submit(numbered(0))) for _ in range(30)))

        asyncio.run(crowd())
        assert store.batches == [["0"] * 30]

    @pytest.mark.parametrize("error", [RuntimeError("broken"), KeyboardInterrupt()], ids=["broken", "interrupted"])
    def test_run_whose_append_failed_while_it_was_alone_goes_on(self, error: BaseException) -> None:
        def during(_: Sequence[Append]) -> None:
            if len(store.batches) == 1:
                raise error

        store = FakeStore(during, lanes=2)
        writer = writer_on(store)
        with pytest.raises(type(error)):
            writer.wait(writer.submit(numbered(0)))
        next_one = threading.Thread(target=writer.wait, args=(writer.submit(numbered(0)),), daemon=True)
        next_one.start()
        next_one.join(PATIENCE_SECONDS)
        assert store.batches == [["0"], ["0"]]
        assert not next_one.is_alive()

    def test_interrupt_leaves_what_it_held_back_to_others(self) -> None:
        """A run has two branches: one of them is interrupted in the store, the other is on a loop."""
        entered, released = threading.Event(), threading.Event()

        def during(batch: Sequence[Append]) -> None:
            if not entered.is_set():
                entered.set()
                assert released.wait(PATIENCE_SECONDS)
                raise KeyboardInterrupt

        store = FakeStore(during, lanes=2)
        writer = writer_on(store)
        ended: list[BaseException] = []

        def interrupted() -> None:
            try:
                writer.wait(writer.submit(numbered(0)))
            except KeyboardInterrupt as error:
                ended.append(error)

        first = threading.Thread(target=interrupted)
        first.start()
        assert entered.wait(PATIENCE_SECONDS)

        async def scenario() -> None:
            held_back = asyncio.ensure_future(writer.wait_async(writer.submit(numbered(0))))
            await writer.wait_async(writer.submit(numbered(1)))
            released.set()
            async with asyncio.timeout(PATIENCE_SECONDS):
                await held_back

        asyncio.run(scenario())
        first.join(PATIENCE_SECONDS)
        assert len(ended) == 1
        assert store.batches == [["0"], ["1"], ["0"]]


class Blocked:
    """Holds the first batch up in which this run is, until it is released."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.entered, self.released = threading.Event(), threading.Event()

    def __call__(self, batch: Sequence[Append]) -> None:
        if batch[0].run.run_id == self.run_id and not self.entered.is_set():
            self.entered.set()
            assert self.released.wait(PATIENCE_SECONDS)


class TestErrors:
    def test_store_that_cannot_commit_is_heard_by_every_caller(self) -> None:
        full = StoreFull("No room is left.")
        store = FakeStore(lambda batch: [full] * len(batch))
        writer = writer_on(store)
        for ticket in submitted(writer, 5):
            with pytest.raises(StoreFull) as refused:
                writer.wait(ticket)
            assert refused.value is full
        assert len(store.batches) == 1

    def test_refusal_is_heard_by_its_caller_alone(self) -> None:
        store = FakeStore(lambda batch: [LeaseLost("held") if a.run.run_id == "1" else None for a in batch])
        writer = writer_on(store)
        zero, one, two = submitted(writer, 3)
        writer.wait(zero)
        with pytest.raises(LeaseLost):
            writer.wait(one)
        writer.wait(two)
        assert len(store.batches) == 1

    def test_broken_store_is_heard_by_every_caller_and_the_next_batch_goes_on(self) -> None:
        store = FakeStore()
        writer = writer_on(store)

        def during(_: Sequence[Append]) -> None:
            if len(store.batches) == 1:
                raise RuntimeError("broken")

        store.during = during
        tickets = submitted(writer, writing.MAX_BATCH + 1)
        writer.wait(tickets[-1])
        for ticket in tickets[:-1]:
            with pytest.raises(RuntimeError, match="broken"):
                writer.wait(ticket)

    @pytest.mark.parametrize("slow", [False, True])
    def test_broken_store_leaves_no_coroutine_waiting(self, monkeypatch: pytest.MonkeyPatch, slow: bool) -> None:
        store = FakeStore()
        writer = writer_on(store)
        if slow:
            make_slow(writer, store, monkeypatch)

        def during(_: Sequence[Append]) -> None:
            if len(store.batches) == 1:
                raise RuntimeError("broken")

        store.during = during

        async def scenario() -> list[BaseException | None]:
            waiting = (writer.wait_async(ticket) for ticket in submitted(writer, writing.MAX_BATCH + 10))
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await asyncio.gather(*waiting, return_exceptions=True)

        outcomes = asyncio.run(scenario())
        assert [type(outcome) for outcome in outcomes] == [RuntimeError] * writing.MAX_BATCH + [type(None)] * 10

    def test_interrupt_reaches_the_caller_and_those_it_committed_for(self) -> None:
        def interrupted(_: Sequence[Append]) -> None:
            raise KeyboardInterrupt

        writer = writer_on(FakeStore(interrupted))
        mine, others = submitted(writer, 2)
        with pytest.raises(KeyboardInterrupt):
            writer.wait(mine)
        with pytest.raises(KeyboardInterrupt):
            writer.wait(others)
