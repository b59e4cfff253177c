"""Random histories, played on a store and on memory: every answer must be the same, for memory is the specification."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from perdure import clock
from perdure.errors import PerdureError, Signal
from perdure.records import NO_DIGEST, Append, Queue, Run, RunState, Schedule, extended, mail_digest, sealed_schedule
from perdure.store.memory import Shelf
from perdure.store.protocol import Finding, Old, Prunable, Terms, Which, Whole
from perdure.store.sqlite.transaction import Pen
from tests.postgres import emptied_schema
from tests.store.journals import debounced, ending, intent, large_step, letter, new_run, step
from tests.store.places import MemoryPlace, PostgresPlace, SqlitePlace

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.store.debounce import Start
    from perdure.store.protocol import Store

WORKERS = 3
RUN_IDS = ("run-1", "run-2", "run-3", "run-4", "run-5")
AGENTS = ("shop:outreach", "shop:billing")
QUEUES = ("default", "mail", "web")
STALL_SECONDS = 120.0
CONTENT = b"a page of text " * 3000

workers = st.integers(0, WORKERS - 1)
run_ids = st.sampled_from(RUN_IDS)
instants = st.sampled_from([0.0, 900_000.0, 1_000_000.0, 1_000_001.0, 1_100_000.0])
wanted = st.builds(
    Which,
    states=st.sampled_from([(), ("queued",), ("running", "failed"), ("completed", "cancelled")]),
    reasons=st.sampled_from([(), ("parked",)]),
    unfinished=st.booleans(),
    agent=st.sampled_from(["", "outreach", "shop:outreach", "reach"]),
    beginning=st.sampled_from(["", "run", "run-2", "name-of-run-1", "r_n"]),
    since_at=instants,
    until_at=instants,
    tags=st.sampled_from([{}, {"run": "run-1"}, {"run": "run-2", "tier": "1"}]),
)


queue_names = st.sampled_from(QUEUES)
limits = st.builds(
    Queue,
    name=queue_names,
    concurrency=st.integers(0, 2),
    per_worker=st.integers(0, 1),
    rate=st.sampled_from([0.0, 0.01]),
    burst=st.integers(0, 2),
    bucket=st.sampled_from(["", "openai"]),
)
placements = st.fixed_dictionaries(
    {
        "agent": st.sampled_from(AGENTS),
        "queue": queue_names,
        "priority": st.integers(-1, 1),
        "tenant": st.sampled_from(["", "ada", "bob"]),
        "wake_at": st.sampled_from([0.0, 0.0, 1_000_100.0]),
        "version": st.sampled_from(["", "", "v1"]),
    }
)


class Side:
    """One implementation with its workers; ids of workers are counted, so that both sides hand out the same."""

    def __init__(self, place: MemoryPlace | SqlitePlace | PostgresPlace) -> None:
        self.place = place
        self.stores: list[Store] = [place.open() for _ in range(WORKERS)]
        self._tokens = itertools.count()

    def token(self, length: int) -> str:
        return f"w{next(self._tokens):0{length - 1}d}"

    def reopen(self, worker: int) -> None:
        self.stores[worker].close()
        self.stores[worker] = self.place.open()


class LikeMemory(RuleBasedStateMachine):
    """Plays each operation on both sides and compares what comes back."""

    most_appends = 4

    def place(self) -> SqlitePlace | PostgresPlace:
        """Where the store keeps its records that is compared with memory."""
        raise NotImplementedError

    @initialize()
    def begin(self) -> None:
        self.patched = pytest.MonkeyPatch()
        self.wall, self.boot = 1_000_000.0, 500.0
        self.patched.setattr(clock, "wall_seconds", lambda: self.wall)
        self.patched.setattr(clock, "boot_seconds", lambda: self.boot)
        self.starts: list[Start] = []
        self.opened = contextlib.ExitStack()
        self.tested = Side(self.place())
        self.memory = Side(MemoryPlace())
        self.believed: dict[tuple[int, str], Run] = {}
        for run_id in RUN_IDS[:2]:
            self.create(0, run_id, {})

    def teardown(self) -> None:
        if hasattr(self, "memory"):
            for side in (self.tested, self.memory):
                for store in side.stores:
                    store.close()
            self.patched.undo()
            self.opened.close()

    def both(self, worker: int, verb: Callable[[Store], Any]) -> Any:
        """What both sides answered, which must be the same."""
        answers = [self._answer(side, worker, verb) for side in (self.tested, self.memory)]
        assert answers[0] == answers[1]
        return answers[1]

    def _answer(self, side: Side, worker: int, verb: Callable[[Store], Any]) -> Any:
        self.patched.setattr(clock, "new_token", side.token)
        try:
            return self.comparable(plain(verb(side.stores[worker])))
        except (PerdureError, Signal) as error:
            return self.comparable(described(error))

    def comparable(self, answer: Any) -> Any:
        """An answer without what this store and memory may tell differently."""
        return answer

    @rule(worker=workers, run_id=run_ids, placement=placements)
    def create(self, worker: int, run_id: str, placement: dict[str, Any]) -> None:
        run, first = new_run(run_id, at=self.wall, tags=json.dumps({"run": run_id, "tier": "1"}), **placement)
        self.both(worker, lambda store: store.create_run(run, first))

    @rule(worker=workers, queue=limits)
    def declare(self, worker: int, queue: Queue) -> None:
        self.both(worker, lambda store: store.declare_queue(queue))

    @rule(worker=workers, tokens=st.integers(0, 3), burst=st.integers(0, 3))
    def take(self, worker: int, tokens: int, burst: int) -> None:
        """From a bucket that queues have too; how long to wait is a matter of each store's clock."""
        self.both(worker, lambda store: store.take_tokens("openai", tokens, rate=0.01, burst=burst) == 0)

    @rule(
        worker=workers,
        agents=st.lists(st.sampled_from(AGENTS), max_size=2, unique=True),
        queues=st.lists(queue_names, max_size=2, unique=True),
        version=st.sampled_from(["", "v1", "v2"]),
        limit=st.integers(0, 4),
    )
    def list_ready(self, worker: int, agents: list[str], queues: list[str], version: str, limit: int) -> None:
        self.both(
            worker,
            lambda store: store.list_ready(
                agents=agents, queues=queues, version=version, now=self.wall, stall_seconds=STALL_SECONDS, limit=limit
            ),
        )
        self.both(worker, lambda store: store.list_due(now=self.wall, limit=limit))

    @rule(worker=workers, data=st.data())
    def take_what_is_ready(self, worker: int, data: st.DataObject) -> None:
        """What a worker does: look, and claim some of what it saw."""
        found = self.both(
            worker,
            lambda store: store.list_ready(agents=AGENTS, now=self.wall, stall_seconds=STALL_SECONDS, limit=3),
        )
        for run in found[: data.draw(st.integers(0, 3))] if isinstance(found, list) else ():
            self.claim(worker, run.run_id, 3, pardon=False)

    @rule(worker=workers, run_id=run_ids, deliveries=st.integers(1, 3), pardon=st.booleans())
    def claim(self, worker: int, run_id: str, deliveries: int, pardon: bool) -> None:
        terms = Terms(deliveries, STALL_SECONDS, pardon)
        claimed = self.both(worker, lambda store: store.claim_run(run_id, store.join().worker_id, terms))
        if isinstance(claimed, Run):
            self.believed[worker, run_id] = claimed

    @rule(worker=workers, data=st.data(), power=st.booleans())
    def append(self, worker: int, data: st.DataObject, power: bool) -> None:
        """Whatever some worker believes to hold, stale or not, also twice in one batch."""
        if not self.believed:
            return
        batch: list[Append] = []
        some = st.lists(st.sampled_from(sorted(self.believed)), min_size=1, max_size=self.most_appends)
        for holder, run_id in data.draw(some):
            one = data.draw(st.sampled_from(KINDS))(self.believed[holder, run_id])
            taken = tuple(data.draw(st.lists(st.sampled_from(self._mail_to(run_id)), max_size=2)))
            batch.append(msgspec.structs.replace(one, taken=taken))
            if data.draw(st.integers(0, 3)):
                self.believed[holder, run_id] = one.run
        self._append(worker, batch, power=power)

    def _append(self, worker: int, batch: list[Append], *, power: bool = False) -> None:
        self.both(worker, lambda store: store.append_all(batch, power=power))

    @rule(worker=workers, run_id=st.sampled_from(RUN_IDS[:2]), data=st.data())
    def work(self, worker: int, run_id: str, data: st.DataObject) -> None:
        """What a healthy worker does: claim, complete a few steps, consume its mail."""
        self.post(worker, run_id, "{}")
        self.claim(worker, run_id, 3, pardon=True)
        for _ in range(data.draw(st.integers(0, 3))):
            run = self.believed.get((worker, run_id))
            if run is not None and run.state == RunState.RUNNING:
                one = data.draw(st.sampled_from([step, intent, large]))(run)
                taken = tuple(data.draw(st.lists(st.sampled_from(self._mail_to(run_id)), max_size=2)))
                batch = [msgspec.structs.replace(one, taken=taken)]
                self._append(worker, batch)
                self.believed[worker, run_id] = one.run

    def _mail_to(self, run_id: str) -> list[int]:
        """Mail of this run, taken or not, and one that is somebody else's or nobody's."""
        shelf: Shelf = self.memory.place.shelf  # type: ignore[union-attr]
        return [*(mail.mail_id for mail in shelf.mail.values() if mail.run_id == run_id), len(shelf.mail) + 1, 1]

    @rule(worker=workers, run_id=run_ids)
    def read_again(self, worker: int, run_id: str) -> None:
        """A worker learns where a run stands; unless it claims, its next append may be anybody's."""
        run = self.both(worker, lambda store: store.read_run(run_id))
        if run is not None:
            self.believed[worker, run_id] = run

    @rule(worker=workers, run_id=run_ids, body=st.text(max_size=5))
    def post(self, worker: int, run_id: str, body: str) -> None:
        mail = letter(run_id, body=body, at=self.wall)
        self.both(worker, lambda store: store.post(mail))

    @rule(worker=workers)
    def beat(self, worker: int) -> None:
        self.both(worker, lambda store: store.beat(store.join().worker_id))

    @rule(seconds=st.sampled_from([1.0, STALL_SECONDS, STALL_SECONDS + 1]))
    def wait(self, seconds: float) -> None:
        self.wall += seconds
        self.boot += seconds

    @rule(seconds=st.sampled_from([-100_000.0, 100_000.0]))
    def jump(self, seconds: float) -> None:
        """The wall clock is set; no lease may care."""
        self.wall += seconds

    @rule(worker=workers)
    def reopen(self, worker: int) -> None:
        """A worker leaves and another comes; the last to leave moves the log into the database."""
        for side in (self.tested, self.memory):
            side.reopen(worker)
        self.believed = {key: run for key, run in self.believed.items() if key[0] != worker}

    @rule()
    def reopen_all(self) -> None:
        for side in (self.tested, self.memory):
            for store in side.stores:
                store.close()
            side.stores = [side.place.open() for _ in range(WORKERS)]
        self.believed.clear()

    @precondition(lambda self: bool(self.memory.place.shelf.runs))
    @rule(worker=workers, data=st.data())
    def damage_and_repair(self, worker: int, data: st.DataObject) -> None:
        shelf: Shelf = self.memory.place.shelf  # type: ignore[union-attr]
        run_id = data.draw(st.sampled_from(sorted(shelf.runs)))
        seq = data.draw(st.integers(0, len(shelf.journals[run_id]) - 1))
        if shelf.journals[run_id][seq].body == '{"value":2}':
            return
        for side in (self.tested, self.memory):
            side.place.damage_record(run_id, seq)
        self.both(worker, lambda store: sorted(map(named, store.check())))
        self.both(worker, lambda store: store.load_journal(run_id))
        self.both(worker, lambda store: store.repair_run(run_id))

    @rule(worker=workers, run_id=run_ids)
    def repair(self, worker: int, run_id: str) -> None:
        self.both(worker, lambda store: store.repair_run(run_id))

    @rule(worker=workers, run_id=run_ids, epoch=st.integers(0, 5))
    def look(self, worker: int, run_id: str, epoch: int) -> None:
        run = self.both(worker, lambda store: store.read_run(run_id))
        self.both(worker, lambda store: store.holds(run_id, epoch))
        self.both(worker, lambda store: store.load_blob(large_step(new_run()[0], CONTENT).blobs[0][0]))
        if isinstance(run, Run):
            self.both(worker, lambda store: store.is_running(run, stall_seconds=STALL_SECONDS))
            self.both(worker, lambda store: store.list_runs(name=run.name, limit=2))
            self.both(worker, lambda store: store.list_runs(agent=run.agent, arguments=run.arguments))
            self.both(worker, lambda store: store.read_worker(run.holder))

    @rule(worker=workers, which=wanted, limit=st.integers(0, 4), skip=st.integers(0, 4))
    def find(self, worker: int, which: Which, limit: int, skip: int) -> None:
        self.both(worker, lambda store: store.find_runs(which, limit=limit, skip=skip))
        self.both(worker, lambda store: store.count_runs(which))

    @rule(worker=workers, since=st.sampled_from([-1.0, 1.0, STALL_SECONDS, 200_000.0]), failed=st.booleans())
    def prune(self, worker: int, since: float, failed: bool) -> None:
        old = Old(self.wall + since, failed=failed)
        would = self.both(worker, lambda store: store.find_prunable(old))
        removed = self.both(worker, lambda store: pruned(store, old))
        if isinstance(would, Prunable):
            assert removed == [len(would.runs), would.records, would.mail, would.blobs, would.size]
        self.both(worker, lambda store: sorted(map(named, store.check())))

    @rule(worker=workers, run_id=run_ids)
    def end_prune_and_reopen(self, worker: int, run_id: str) -> None:
        """The newest records go, and whoever opens the store next must not take that for a loss."""
        self.claim(worker, run_id, 3, pardon=True)
        run = self.believed.get((worker, run_id))
        if run is not None and run.state == RunState.RUNNING:
            self._append(worker, [ending(run)])
        self.prune(worker, 200_000.0, failed=True)
        self.reopen_all()

    @rule(worker=workers, run_id=run_ids, copy_id=st.sampled_from(["copy-1", "copy-2"]))
    def carry(self, worker: int, run_id: str, copy_id: str) -> None:
        """Take a run in from another store that has it under another id."""
        whole = self.both(worker, lambda store: store.load_whole(run_id))
        if isinstance(whole, Whole):
            same = renamed(whole, copy_id)
            self.both(worker, lambda store: store.import_run(same))
            self.both(worker, lambda store: store.load_whole(copy_id))

    @rule(
        worker=workers, key=st.sampled_from(["ada", "bob"]), quiet=st.sampled_from([1.0, 3600.0]), again=st.booleans()
    )
    def debounce(self, worker: int, key: str, quiet: float, again: bool) -> None:
        """A start, or one whose answer was lost and that is sent again."""
        if not again or not self.starts:
            self.starts.append(debounced(len(self.starts), key=key, quiet=quiet, most=10 * quiet, at=self.wall))
        self.both(worker, lambda store: store.debounce_run(self.starts[-1]))

    @rule(worker=workers, number=st.integers(0, 3))
    def take_debounced(self, worker: int, number: int) -> None:
        self.claim(worker, f"draft-{number}", 3, pardon=True)

    @rule(worker=workers, later=st.sampled_from([0.0, 1000.0]), limit=st.integers(0, 3))
    def wake(self, worker: int, later: float, limit: int) -> None:
        self.both(worker, lambda store: store.wake_due(now=self.wall + later, limit=limit))

    @rule(worker=workers, name=st.sampled_from(["a", "b"]), next_at=instants, goes=st.booleans(), knows=st.booleans())
    def schedule(self, worker: int, name: str, next_at: float, goes: bool, knows: bool) -> None:
        """Somebody who knows what is kept changes it, or somebody who does not."""
        shelf: Shelf = self.memory.place.shelf  # type: ignore[union-attr]
        before = shelf.schedules.get(name) if knows else None
        after = sealed_schedule(Schedule(name, "shop:outreach", "@daily", "UTC", "last", "{}", next_at))
        self.both(worker, lambda store: store.change_schedule(before, None if goes and before else after))

    @invariant()
    def everything_kept_is_the_same(self) -> None:
        if hasattr(self, "memory"):
            self.both(0, lambda store: store.list_runs())
            self.both(0, lambda store: store.losses())
            self.both(0, lambda store: store.list_schedules())
            self.both(0, lambda store: [attempted(store.load_journal, run_id) for run_id in RUN_IDS])
            self.both(0, lambda store: [attempted(store.read_mail, run_id) for run_id in RUN_IDS])
            self.both(0, lambda store: store.find_runs(Which()))
            self.both(0, lambda store: store.list_queues())


class SqliteIsLikeMemory(LikeMemory):
    """One file, whose commits need not survive the machine here."""

    def place(self) -> SqlitePlace:
        self.patched.setattr(Pen, "sync_on_commit", without_sync)
        folder = Path(tempfile.mkdtemp(prefix="perdure-machine-"))
        self.opened.callback(shutil.rmtree, folder)
        return SqlitePlace(folder / "perdure.db")


class PostgresIsLikeMemory(LikeMemory):
    """A server, which tells the time by itself: it passes there too, and beats are not compared."""

    most_appends = 1
    """Appends that follow each other land or are refused as one there, also after a stale one of the same epoch."""

    def place(self) -> PostgresPlace:
        return PostgresPlace(self.opened.enter_context(emptied_schema()))

    @rule(seconds=st.sampled_from([50.0, 150.0]))
    def wait(self, seconds: float) -> None:
        """Never close to an instant at which something changes: the server's own time passes too."""
        super().wait(seconds)
        self.tested.place.let_pass(seconds)  # type: ignore[union-attr]

    def jump(self, seconds: float) -> None:
        """The server does not care, and the buckets in memory do."""

    def debounce(self, worker: int, key: str, quiet: float, again: bool) -> None:
        """Quiet times are counted from the server's time, which is in the rows."""

    def prune(self, worker: int, since: float, failed: bool) -> None:
        """Numbers of mail are not given again on a server."""

    def end_prune_and_reopen(self, worker: int, run_id: str) -> None:
        """The same."""

    def comparable(self, answer: Any) -> Any:
        if type(answer).__name__ == "Worker":
            return msgspec.structs.replace(answer, beat_at=0.0, beat_boot=0.0)
        if isinstance(answer, list):
            return [self.comparable(item) for item in answer]
        if isinstance(answer, dict) and "message" in answer:
            return answer | {"message": re.sub(r"beat \d+ s ago", "beat", answer["message"])}
        return answer


def pruned(store: Store, old: Old) -> list[int]:
    """How much of each was removed, in however many transactions."""
    parts = [msgspec.structs.astuple(part) for part in store.prune(old)]
    return [sum(numbers) for numbers in zip(*parts, strict=True)] or [0] * 5


def renamed(whole: Whole, run_id: str) -> Whole:
    """The same run under another id, chained anew."""
    bare = msgspec.structs.replace(whole.run, run_id=run_id, length=0, head=NO_DIGEST)
    records = tuple(msgspec.structs.replace(record) for record in whole.records)
    run, chained = extended(bare, at=whole.run.updated_at, records=records)
    mail = [msgspec.structs.replace(one, run_id=run_id) for one in whole.mail]
    return Whole(run, chained, tuple(msgspec.structs.replace(one, digest=mail_digest(one)) for one in mail))


def without_sync(pen: Pen, _: bool) -> None:
    """What is compared here does not depend on the device."""
    pen.connection.pragma("synchronous", "off")


def failed(run: Run) -> Append:
    return ending(run, RunState.FAILED)


def cancelled(run: Run) -> Append:
    return ending(run, RunState.CANCELLED)


def large(run: Run) -> Append:
    return large_step(run, CONTENT)


def rejected(run: Run) -> Append:
    """What a holder of an earlier epoch would write."""
    return step(msgspec.structs.replace(run, epoch=run.epoch - 1))


def waiting(run: Run) -> Append:
    return ending(run, RunState.WAITING, reason="time", wake_at=1_000_150.0)


def written_to(run: Run) -> Append:
    return ending(run, RunState.WAITING, reason="signal")


def back(run: Run) -> Append:
    return ending(run, RunState.QUEUED)


KINDS = (step, step, step, intent, large, failed, ending, cancelled, rejected, waiting, written_to, back)


def attempted(read: Callable[[str], Any], run_id: str) -> Any:
    try:
        return read(run_id)
    except PerdureError as error:
        return error


def plain(answer: Any) -> Any:
    """An answer without what belongs to one implementation: inodes, and errors as what they say."""
    if isinstance(answer, list):
        return [plain(item) for item in answer]
    if isinstance(answer, BaseException):
        return described(answer)
    if type(answer).__name__ == "Worker":
        return msgspec.structs.replace(answer, lock_inode=0)
    return answer


def described(error: BaseException) -> dict[str, str]:
    message = str(error)
    return {
        "error": type(error).__name__,
        "message": message.partition(" in ")[0] if "There is no run" in message else message,
    }


def named(found: Finding | Run) -> str:
    return f"{found.where}: {found.what}" if isinstance(found, Finding) else f"{found.run_id} is whole"


def sized(examples: int, steps: int) -> settings:
    return settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


class TestSqliteIsLikeMemory(SqliteIsLikeMemory.TestCase):  # type: ignore[misc,valid-type]
    settings = sized(15, 40)


class TestPostgresIsLikeMemory(PostgresIsLikeMemory.TestCase):  # type: ignore[misc,valid-type]
    settings = sized(5, 25)


@pytest.mark.exhaustive
class TestSqliteIsLikeMemoryForLong(SqliteIsLikeMemory.TestCase):  # type: ignore[misc,valid-type]
    settings = sized(100, 40)


@pytest.mark.exhaustive
class TestPostgresIsLikeMemoryForLong(PostgresIsLikeMemory.TestCase):  # type: ignore[misc,valid-type]
    settings = sized(30, 40)
