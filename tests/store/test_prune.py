"""Removing runs that ended long ago: whole or not at all, never one that is needed, and never as a loss."""

from __future__ import annotations

import itertools
import signal
import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from msgspec import Raw

from perdure.bodies import (
    Ancestor,
    Done,
    Ended,
    Kept,
    Listed,
    Listing,
    Opened,
    Origin,
    Started,
    Tracked,
    read_body,
    write_body,
)
from perdure.errors import CheckpointCorrupt, UnknownRun
from perdure.records import NO_DIGEST, Kind, Record, Run, RunState, WaitReason, extended
from perdure.store import blobs
from perdure.store.lease import Park, write_park
from perdure.store.protocol import Finding, Old, Pruned
from perdure.store.sqlite import SqliteStore
from perdure.store.sqlite.presence import read_mark
from tests import warm
from tests.store.child import Child
from tests.store.journals import (
    AGENT,
    append,
    claimed,
    created,
    ending,
    held_run,
    land,
    large_step,
    letter,
    new_run,
    step,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perdure.store.protocol import Store
    from tests.store.places import Place

LATE = 4e9
EVERYTHING = Old(LATE)
FAILED_TOO = Old(LATE, failed=True)
CONTENT = b"a page of text " * 3000


def ended(store: Store, run_id: str = "run-1", state: RunState = RunState.COMPLETED, **fields: Any) -> Run:
    return land(store, ending(land(store, step(held_run(store, run_id, **fields))), state))


def prune(store: Store, old: Old = EVERYTHING) -> Pruned:
    parts = [msgspec.structs.astuple(part) for part in store.prune(old)]
    return Pruned(*(sum(numbers) for numbers in zip(*parts, strict=True))) if parts else Pruned()


def kept(store: Store) -> set[str]:
    return {run.run_id for run in store.list_runs()}


def child_of(store: Store, parent: str, run_id: str) -> Run:
    """A child run that is held."""
    run = Run(run_id, f"name-of-{run_id}", AGENT, b"", "power", 200.0, 200.0)
    body = Started(agent=AGENT, arguments=Raw(b"{}"), code="v1", lineage=(Ancestor(parent, AGENT, ""),))
    first = Record(0, Kind.STARTED, "", AGENT, b"", 200.0, 0, write_body(body))
    after, (record,) = extended(run, at=200.0, records=(first,))
    store.create_run(after, record)
    return claimed(store, run_id)


class TestWhatGoes:
    def test_finished_runs_go_whole(self, store: Store, other: Store) -> None:
        ended(store, "run-1")
        ended(store, "run-2", RunState.CANCELLED)
        store.post(letter("run-1"))
        would = other.find_prunable(EVERYTHING)
        assert [run.run_id for run in would.runs] == ["run-1", "run-2"]
        removed = prune(store)
        assert (
            removed == Pruned(2, would.records, would.mail, would.blobs, would.size) == Pruned(2, 8, 1, 0, removed.size)
        )
        assert removed.size > 0
        assert kept(other) == set()
        assert other.read_mail("run-1") == []
        with pytest.raises(UnknownRun):
            other.load_journal("run-1")
        assert prune(store) == Pruned()

    def test_looking_removes_nothing(self, store: Store, other: Store) -> None:
        run = ended(store)
        for _ in range(3):
            assert store.find_prunable(EVERYTHING).runs == (run,)
        assert other.read_run("run-1") == run

    def test_a_run_goes_by_its_end_and_not_by_its_beginning(self, store: Store) -> None:
        run = ended(store, at=100.0)
        assert run.updated_at > 100.0
        assert prune(store, Old(run.updated_at)) == Pruned()
        assert prune(store, Old(run.updated_at + 0.5)).runs == 1

    def test_a_run_whose_id_somebody_chose_stays_where_those_are_not_asked_for(self, store: Store) -> None:
        made = (
            "01a1e2f058ee-3juxxrp2dk93",
            "01a1e2f058ee-3juxxrp2dk93~2",
            "own/0123456789abcdef",
            "undo-0123456789abcdef",
        )
        for run_id in (*made, "own", "own~2"):
            land(store, ending(held_run(store, run_id)))
        unnamed = Old(LATE, named=False)
        would = store.find_prunable(unnamed)
        assert ({run.run_id for run in would.runs}, would.named) == (set(made), 2)
        assert prune(store, unnamed).runs == 4
        assert store.find_prunable(EVERYTHING).named == 0
        assert prune(store).runs == 2

    @pytest.mark.parametrize("old", [EVERYTHING, FAILED_TOO])
    def test_unfinished_runs_stay(self, store: Store, old: Old) -> None:
        created(store, "queued")
        held_run(store, "running")
        for reason in WaitReason:
            run = held_run(store, f"waits-{reason}")
            land(store, append(run, Kind.NOTE, Ended("waiting"), state=RunState.WAITING, reason=reason, holder=""))
        before = {run_id: store.load_whole(run_id) for run_id in kept(store)}
        assert len(before) == 8
        assert prune(store, old) == Pruned()
        assert {run_id: store.load_whole(run_id) for run_id in kept(store)} == before

    def test_failed_runs_go_only_when_asked_for(self, store: Store) -> None:
        ended(store, "run-1", RunState.FAILED)
        would = store.find_prunable(EVERYTHING)
        assert (would.runs, would.failed) == ((), 1)
        assert prune(store) == Pruned()
        assert prune(store, FAILED_TOO).runs == 1
        assert kept(store) == set()


class TestWhatIsNeeded:
    def test_the_parent_of_an_unfinished_run_stays(self, store: Store) -> None:
        ended(store, "parent")
        child = child_of(store, "parent", "child")
        assert store.find_prunable(EVERYTHING).needed == 1
        assert prune(store) == Pruned()
        land(store, ending(child))
        assert prune(store).runs == 2

    @pytest.mark.parametrize("old", [EVERYTHING, FAILED_TOO])
    @pytest.mark.parametrize("state", [RunState.COMPLETED, RunState.FAILED])
    def test_the_child_of_an_unfinished_run_stays(self, store: Store, state: RunState, old: Old) -> None:
        parent = held_run(store, "parent")
        parent = land(store, append(parent, Kind.WAIT, Opened("child", child="child"), key=".1"))
        land(store, ending(child_of(store, "parent", "child"), state))
        assert prune(store, old) == Pruned()
        land(store, ending(parent))
        assert prune(store, FAILED_TOO).runs == 2

    def test_a_run_stays_as_long_as_the_one_that_goes_on_in_its_place(self, store: Store) -> None:
        """Who asks for the first by its id is led to the last."""
        for run_id, following in (("run", "run~2"), ("run~2", "run~3")):
            run = held_run(store, run_id)
            park = write_park(Park(code="continued", message=following))
            land(store, ending(run, detail=park))
        last = held_run(store, "run~3", at=500.0)
        assert prune(store) == Pruned()
        last = land(store, ending(last))
        assert prune(store, Old(last.updated_at)) == Pruned()
        assert prune(store).runs == 3

    def test_what_goes_on_in_the_place_of_a_child_stays_with_it(self, store: Store) -> None:
        parent = held_run(store, "parent")
        land(store, append(parent, Kind.WAIT, Opened("child", child="child"), key=".1"))
        child = child_of(store, "parent", "child")
        land(store, ending(child, detail=write_park(Park(code="continued", message="child~2"))))
        ended(store, "child~2")
        assert prune(store) == Pruned()

    def test_a_failed_parent_goes_before_the_child_it_would_start_again(self, store: Store) -> None:
        parent = held_run(store, "parent", at=300.0)
        parent = land(store, append(parent, Kind.WAIT, Opened("child", child="child"), key=".1"))
        land(store, ending(child_of(store, "parent", "child")))
        land(store, ending(parent, RunState.FAILED))
        assert [run.run_id for run in store.find_prunable(FAILED_TOO).runs] == ["parent", "child"]

    def test_the_origin_of_an_unfinished_fork_stays(self, store: Store) -> None:
        ended(store, "original")
        run, first = new_run("fork")
        body = msgspec.structs.replace(read_body(first), forked_from=Origin("original", "name-of-original", 1))
        bare = msgspec.structs.replace(run, length=0, head=NO_DIGEST)
        store.create_run(*_chained(bare, msgspec.structs.replace(first, body=write_body(body))))
        assert prune(store) == Pruned()
        land(store, ending(claimed(store, "fork")))
        assert prune(store).runs == 2

    def test_damage_that_could_hide_a_reference_stops_everything(self, store: Store, place: Place) -> None:
        ended(store, "run-1")
        held_run(store, "run-2")
        place.damage_run("run-2", state="completed")
        for remove in (store.find_prunable, prune_of(store)):
            with pytest.raises(CheckpointCorrupt, match="run-2"):
                remove(EVERYTHING)
        assert store.read_run("run-1") is not None


def _chained(bare: Run, first: Record) -> tuple[Run, Record]:
    run, (record,) = extended(bare, at=bare.updated_at, records=(first,))
    return run, record


def prune_of(store: Store) -> Any:
    return lambda old: list(store.prune(old))


class TestBlobs:
    def test_go_once_nobody_refers_to_them(self, store: Store) -> None:
        address = blobs.pack(CONTENT)[0]
        other_address = blobs.pack(CONTENT + b"!")[0]
        one = land(store, large_step(held_run(store, "run-1"), CONTENT))
        land(store, ending(land(store, large_step(one, CONTENT + b"!"))))
        two = land(store, large_step(held_run(store, "run-2"), CONTENT))
        assert store.find_prunable(EVERYTHING).blobs == 1
        assert prune(store).blobs == 1
        assert store.load_blob(address) == CONTENT
        with pytest.raises(CheckpointCorrupt, match="missing"):
            store.load_blob(other_address)
        land(store, ending(two))
        assert prune(store).blobs == 1
        with pytest.raises(CheckpointCorrupt, match="missing"):
            store.load_blob(address)

    def test_of_records_set_aside_stay_with_their_run(self, store: Store, place: Place) -> None:
        run = land(store, step(held_run(store)))
        land(store, ending(land(store, large_step(run, CONTENT))))
        place.damage_record("run-1", 2)
        store.repair_run("run-1")
        ended(store, "run-2")
        removed = prune(store)
        assert (removed.runs, removed.blobs) == (1, 0)
        assert store.load_blob(blobs.pack(CONTENT)[0]) == CONTENT

    def test_of_directories_and_artifacts_stay_with_their_run(self, store: Store) -> None:
        """A directory is referred to by the listing of its files, an artifact by the record that keeps it."""
        file, loose = blobs.pack(b"content of a file"), blobs.pack(b"nobody's")
        artifact = blobs.pack(b"an artifact")
        entries = (Listed("a.txt", "file", content=file[0].hex()),)
        listing = blobs.pack(msgspec.json.encode(Listing(entries)))
        tracked = Tracked("directory", "/data", 1, listing=listing[0].hex(), kept=True)
        body = Done(resources=(tracked,), artifacts=(Kept("a", artifact[0].hex(), 11),))
        stored = (file, artifact, listing, loose)
        land(store, append(held_run(store), Kind.STEP, body, key=".0", stored=stored))
        assert prune(store) == Pruned(blobs=1, size=len(loose[1]))
        for address, _ in (file, artifact, listing):
            assert store.load_blob(address)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "perdure.db"


@pytest.fixture
def sqlite(path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(path)
    yield store
    store.close()


def findings(store: Store) -> list[Finding]:
    return [item for item in store.check() if isinstance(item, Finding)]


class TestCommitCounter:
    """Records are counted by their numbers: removing the highest must not look as if they were lost."""

    def test_pruned_records_are_no_loss_to_those_who_open_the_store(self, sqlite: SqliteStore, path: Path) -> None:
        with Child(path) as child:
            child.ask("create", "run-1")
            child.ask("claim", "run-1")
            child.ask("step", "run-1", "3")
            for number in range(2, 6):
                ended(sqlite, f"run-{number}")
            marked = max(slot.acknowledged for slot in read_mark(path.with_name("perdure.db-mark")) or [] if slot)
            assert prune(sqlite).records == 16
            with SqliteStoreAgain(path) as again:
                assert (again.noticed, again.losses(), findings(again)) == (0, [], [])
                assert kept(again) == {"run-1"}
            assert child.ask("step", "run-1", "2") == "7"
            after = [slot.acknowledged for slot in read_mark(path.with_name("perdure.db-mark")) or [] if slot]
            assert max(after) == marked + 2
            child.kill()
        with SqliteStoreAgain(path) as again:
            assert (again.noticed, again.losses(), findings(again)) == (0, [], [])

    def test_a_store_that_lost_everything_by_pruning_counts_on(self, sqlite: SqliteStore, path: Path) -> None:
        for round_number in range(3):
            ended(sqlite, f"run-{round_number}")
            assert prune(sqlite).records == 4
            with SqliteStoreAgain(path) as again:
                assert (again.losses(), findings(again), kept(again)) == ([], [], set())

    def test_a_copy_from_before_the_pruning_is_noticed_once_more_was_committed(
        self, sqlite: SqliteStore, path: Path
    ) -> None:
        """The counter does not shrink, so that what comes after the pruning is told from what was before it."""
        ended(sqlite, "run-1")
        held_run(sqlite, "run-2")
        sqlite.close()
        older = path.read_bytes()
        store = SqliteStore(path)
        prune(store)
        created(store, "run-3")
        store.close()
        for name in ("perdure.db-wal", "perdure.db-shm"):
            path.with_name(name).unlink(missing_ok=True)
        path.write_bytes(older)
        with SqliteStoreAgain(path) as again:
            assert [loss.expected - loss.found for loss in again.losses()] == [1]

    def test_numbers_given_anew_lead_nobody_to_another_run(self, sqlite: SqliteStore, path: Path) -> None:
        with Child(path) as child:
            child.ask("create", "run-1")
            child.ask("claim", "run-1")
            child.ask("step", "run-1")
            ended(sqlite, "run-2")
            stale = held_run(sqlite, "run-3")
            land(sqlite, ending(stale))
            prune(sqlite)
            created(sqlite, "run-4")
            other = SqliteStore(path)
            assert [type(one).__name__ for one in other.append_all([step(stale)], power=True)] == ["LeaseLost"]
            other.close()
            assert child.ask("step", "run-1") == "4"
        assert sqlite.load_journal("run-4")[0].seq == 0
        assert findings(sqlite) == []

    def test_mail_after_pruning_wakes_who_waits(self, sqlite: SqliteStore) -> None:
        waiting = held_run(sqlite, "waits")
        heard = sqlite.post(letter("waits"))
        waiting = land(
            sqlite, append(waiting, Kind.NOTE, Ended("waiting"), state=RunState.WAITING, heard=heard.mail_id)
        )
        ended(sqlite, "run-2")
        for _ in range(3):
            sqlite.post(letter("run-2"))
        prune(sqlite)
        assert sqlite.list_due(now=0.0) == []
        sqlite.post(letter("waits"))
        assert [run.run_id for run in sqlite.list_due(now=0.0)] == ["waits"]


class SqliteStoreAgain:
    """The store opened once more, as by the next process."""

    def __init__(self, path: Path) -> None:
        self.store = SqliteStore(path)

    def __enter__(self) -> SqliteStore:
        return self.store

    def __exit__(self, *_: object) -> None:
        self.store.close()


@pytest.mark.parametrize("place", ["sqlite", "postgres"], indirect=True)
class TestMeanwhile:
    """Others go on writing between two transactions of a pruning."""

    def test_a_run_that_is_referred_to_meanwhile_stays(self, store: Store, other: Store) -> None:
        for number in range(250):
            ended(store, f"run-{number:03d}")
        removing = store.prune(EVERYTHING)
        assert next(removing).runs == 100
        child_of(other, "run-200", "child")
        assert sum(part.runs for part in removing) == 149
        assert kept(other) == {"run-200", "child"}
        assert findings(other) == []

    def test_a_failed_run_that_is_resumed_meanwhile_stays(self, store: Store, other: Store) -> None:
        for number in range(150):
            ended(store, f"run-{number:03d}", RunState.FAILED, at=100.0 + number)
        removing = store.prune(FAILED_TOO)
        assert next(removing).runs == 100
        run = land(other, step(claimed(other, "run-120")))
        assert sum(part.runs for part in removing) == 49
        assert kept(other) == {"run-120"}
        land(other, step(run))
        assert findings(other) == []

    def test_a_value_that_is_stored_again_meanwhile_stays(self, store: Store, other: Store) -> None:
        land(store, ending(land(store, large_step(held_run(store, "run-1"), CONTENT))))
        removing = store.prune(EVERYTHING)
        assert next(removing).runs == 1
        land(other, large_step(held_run(other, "run-2"), CONTENT))
        assert sum(part.blobs for part in removing) == 0
        assert other.load_blob(blobs.pack(CONTENT)[0]) == CONTENT
        assert findings(other) == []

    def test_it_is_stored_again_under_numbers_that_another_pruning_freed(self, store: Store, other: Store) -> None:
        """The record that told old from new is gone: everything is looked at anew."""
        old = land(store, ending(land(store, large_step(held_run(store, "old"), CONTENT))))
        young = held_run(store, "young")
        for _ in range(20):
            young = land(store, step(young))
        land(store, ending(young))
        removing = store.prune(Old(old.updated_at + 1))
        assert next(removing).runs == 1
        assert prune(other).runs == 1
        land(other, large_step(held_run(other, "new"), CONTENT))
        assert sum(part.blobs for part in removing) == 0
        assert other.load_blob(blobs.pack(CONTENT)[0]) == CONTENT
        assert findings(other) == []


KILLED = """
import itertools, os, signal, sys
from perdure.store.protocol import Old
from perdure.store.sqlite import SqliteStore
from perdure.store.sqlite.prune import Survey

steps = itertools.count()
def counted(verb):
    def call(*arguments):
        if next(steps) == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return verb(*arguments)
    return call

for name in ("remove", "settle", "catch_up", "may_go"):
    setattr(Survey, name, counted(getattr(Survey, name)))
list(SqliteStore(sys.argv[1]).prune(Old(4e9)))
"""


def test_killed_anywhere_every_run_is_whole_or_gone(sqlite: SqliteStore, path: Path) -> None:
    stays = land(sqlite, large_step(held_run(sqlite, "stays"), CONTENT))
    for number in range(120):
        run = land(sqlite, large_step(held_run(sqlite, f"run-{number}"), CONTENT + bytes([number])))
        land(sqlite, ending(run))
    left = [len(kept(sqlite))]
    for at in (0, 1, 50, 203, 204, 205, 30, 3, 2, 1):
        done = warm.run([sys.executable, "-c", KILLED, str(path), str(at)], check=False)
        assert done.returncode in (-signal.SIGKILL, 0)
        assert findings(sqlite) == []
        assert sqlite.losses() == []
        left.append(len(kept(sqlite)))
    assert left[0] == 121
    assert 21 in left
    prune(sqlite)
    assert kept(sqlite) == {"stays"}
    assert sqlite.load_journal("stays")[-1].digest == stays.head
    assert sqlite.find_prunable(EVERYTHING).blobs == 0


def disk_bytes(path: Path) -> int:
    """What the database and its log take."""
    return sum(file.stat().st_size for file in (path, path.with_name(f"{path.name}-wal")))


class TestRoom:
    def test_is_given_back_where_nobody_else_is_there(self, sqlite: SqliteStore, path: Path) -> None:
        fill(sqlite)
        before = disk_bytes(path)
        stays = held_run(sqlite, "stays")
        prune(sqlite)
        compacted = sqlite.compact()
        assert compacted.given_back > 500_000
        assert compacted.free == 0
        assert disk_bytes(path) < before / 2
        land(sqlite, step(stays))
        with SqliteStoreAgain(path) as again:
            assert (again.losses(), findings(again), kept(again)) == ([], [], {"stays"})

    def test_stays_in_the_file_where_somebody_would_have_to_wait(self, sqlite: SqliteStore, path: Path) -> None:
        fill(sqlite)
        prune(sqlite)
        with Child(path) as child:
            child.ask("join")
            compacted = sqlite.compact()
            assert compacted.given_back == 0
            assert compacted.free > 500_000
            assert f"process {child.pid}" in compacted.why
            child.kill()
        assert sqlite.compact().given_back > 500_000


def fill(store: Store) -> None:
    letters = itertools.cycle(b"abcdefghij")
    for number in range(20):
        noise = bytes((next(letters) * 7919 * (place + number + 1)) >> 5 & 255 for place in range(60_000))
        land(store, ending(land(store, large_step(held_run(store, f"run-{number}"), noise))))
