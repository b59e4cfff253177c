"""What every store guarantees of runs that wait and of mail that may be posted once."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from perdure.errors import CheckpointCorrupt, UnknownRun
from perdure.records import Mail, Run, RunState, WaitReason
from perdure.store.protocol import Finding, Store
from tests import warm
from tests.crash.nursery import environment
from tests.store.journals import claimed, created, ending, held_run, land, letter, step
from tests.store.places import MemoryPlace, Place, SqlitePlace
from tests.waits.desk import PATIENCE_SECONDS


@pytest.fixture(params=["memory", "sqlite"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    if request.param == "memory":
        yield MemoryPlace()
        return
    sqlite = SqlitePlace(tmp_path / "perdure.db")
    yield sqlite
    sqlite.close()


@pytest.fixture
def store(place: Place) -> Store:
    return place.open()


@pytest.fixture
def other(place: Place) -> Store:
    """A second worker on the same records."""
    return place.open()


def waiting(
    store: Store,
    run_id: str = "run-1",
    *,
    wake_at: float = 0.0,
    heard: int = 0,
    reason: WaitReason = WaitReason.TIME,
    at: float = 100.0,
) -> Run:
    """A run that left memory so."""
    run = held_run(store, run_id, at=at)
    return land(store, ending(run, RunState.WAITING, reason=reason, wake_at=wake_at, heard=heard))


def mail(run_id: str = "run-1", kind: str = "answer", key: str = "main.0@2", body: str = "{}") -> Mail:
    return msgspec.structs.replace(letter(run_id, body=body), kind=kind, key=key)


def due(store: Store, now: float, *, limit: int = 1000) -> list[str]:
    return [run.run_id for run in store.list_due(now=now, limit=limit)]


class TestListDue:
    def test_a_run_is_due_from_its_time_on(self, store: Store, other: Store) -> None:
        run = waiting(store, wake_at=1000.5)
        assert [due(other, now) for now in (0, 1000.4, 1000.5, 1e12)] == [[], [], ["run-1"], ["run-1"]]
        assert other.list_due(now=2000) == [run]

    def test_a_run_that_only_mail_can_wake_is_never_due_by_time(self, store: Store) -> None:
        waiting(store, reason=WaitReason.HUMAN)
        assert due(store, 1e18) == []

    def test_the_soonest_is_first_and_the_limit_cuts_the_latest(self, store: Store) -> None:
        for run_id, wake_at in (("late", 30.0), ("soon", 10.0), ("between", 20.0)):
            waiting(store, run_id, wake_at=wake_at)
        assert due(store, 100) == ["soon", "between", "late"]
        assert due(store, 100, limit=2) == ["soon", "between"]
        assert due(store, 20) == ["soon", "between"]

    @pytest.mark.parametrize("state", [RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED, RunState.QUEUED])
    def test_a_run_that_does_not_wait_is_not_due(self, store: Store, state: RunState) -> None:
        land(store, ending(held_run(store), state, wake_at=10.0))
        store.post(mail())
        assert due(store, 100) == []

    def test_a_run_that_somebody_holds_is_not_due(self, store: Store, other: Store) -> None:
        waiting(store, wake_at=10.0)
        held = claimed(other)
        assert (held.wake_at, held.heard) == (0.0, 0)
        store.post(mail())
        assert due(store, 100) == []

    def test_mail_that_is_newer_than_the_run_had_heard_makes_it_due(self, store: Store, other: Store) -> None:
        waiting(store)
        other.post(mail())
        assert due(store, 0) == ["run-1"]

    def test_mail_that_the_run_had_heard_of_does_not(self, store: Store) -> None:
        created(store)
        known = store.post(mail())
        run = claimed(store)
        land(store, ending(run, RunState.WAITING, reason=WaitReason.HUMAN, heard=known.mail_id))
        assert due(store, 0) == []
        store.post(mail(key="main.1@3"))
        assert due(store, 0) == ["run-1"]

    def test_mail_that_was_taken_does_not(self, store: Store) -> None:
        created(store)
        known = store.post(mail())
        run = land(store, step(claimed(store), taken=(known.mail_id,)))
        land(store, ending(run, RunState.WAITING, reason=WaitReason.HUMAN))
        assert due(store, 0) == []

    def test_refused_mail_does_not(self, store: Store) -> None:
        waiting(store)
        store.post(mail(kind="refused"))
        assert due(store, 0) == []

    def test_mail_of_another_run_does_not(self, store: Store) -> None:
        waiting(store)
        created(store, "run-2")
        store.post(mail("run-2"))
        assert due(store, 0) == []

    @pytest.mark.parametrize(
        "fields", [{"wake_at": 50.0}, {"wake_at": 5.0}, {"heard": 7}, {"reason": "human"}], ids=str
    )
    def test_a_damaged_row_is_named(self, place: Place, store: Store, fields: dict[str, object]) -> None:
        waiting(store, wake_at=10.0)
        place.damage_run("run-1", **fields)
        for look in (lambda: store.list_due(now=100.0), lambda: store.read_run("run-1"), lambda: claimed(store)):
            with pytest.raises(CheckpointCorrupt):
                look()
        assert any(isinstance(found, Finding) for found in store.check())

    def test_a_wake_up_that_damage_took_away_is_found_by_the_check(self, place: Place, store: Store) -> None:
        waiting(store, wake_at=10.0)
        place.damage_run("run-1", wake_at=0.0)
        assert any(isinstance(found, Finding) for found in store.check())
        with pytest.raises(CheckpointCorrupt):
            store.list_runs()

    def test_times_and_tags_are_part_of_the_row_that_others_read(self, store: Store, other: Store) -> None:
        run = waiting(store, wake_at=1e10 + 0.123456, heard=3)
        found = other.read_run("run-1")
        assert found == run
        assert found is not None
        assert (found.wake_at, found.heard) == (1e10 + 0.123456, 3)


class TestPostOnce:
    def test_the_first_counts_and_every_other_is_kept_as_refused(self, store: Store, other: Store) -> None:
        created(store)
        posted = [(store, "a"), (other, "b"), (store, "a")]
        kinds = [here.post(mail(body=f'{{"by":"{who}"}}'), once=True).kind for here, who in posted]
        assert kinds == ["answer", "refused", "refused"]
        kept = other.read_mail("run-1")
        assert [(found.kind, found.body) for found in kept] == [
            ("answer", '{"by":"a"}'),
            ("refused", '{"by":"b"}'),
            ("refused", '{"by":"a"}'),
        ]

    def test_what_it_returns_is_what_is_stored(self, store: Store) -> None:
        created(store)
        first, second = store.post(mail(), once=True), store.post(mail(), once=True)
        assert store.read_mail("run-1") == [first, second]

    def test_another_key_kind_or_run_is_another_first(self, store: Store) -> None:
        created(store)
        created(store, "run-2")
        others = [mail(), mail(key="main.0@9"), mail(kind="signal"), mail("run-2")]
        assert [store.post(one, once=True).kind for one in others] == ["answer", "answer", "signal", "answer"]

    def test_it_counts_even_after_it_was_taken(self, store: Store) -> None:
        created(store)
        first = store.post(mail(), once=True)
        land(store, step(claimed(store), taken=(first.mail_id,)))
        assert store.post(mail(), once=True).kind == "refused"

    def test_without_once_everything_counts(self, store: Store) -> None:
        created(store)
        assert [store.post(mail()).kind for _ in range(3)] == ["answer"] * 3

    def test_to_nobody_it_is_refused(self, store: Store) -> None:
        with pytest.raises(UnknownRun):
            store.post(mail(), once=True)

    def test_damaged_mail_is_named_and_not_counted_as_another_kind(self, place: Place, store: Store) -> None:
        created(store)
        first = store.post(mail(), once=True)
        place.damage_mail(first.mail_id, kind="refused")
        with pytest.raises(CheckpointCorrupt):
            store.read_mail("run-1")


POSTING = """
import sys
from perdure.store.sqlite import SqliteStore
from perdure.records import Mail
store = SqliteStore(sys.argv[1])
store.join()
print("ready", flush=True)
sys.stdin.readline()
print(store.post(Mail(0, "run-1", "answer", "main.0@2", "{}", sys.argv[2], 200.0), once=True).kind, flush=True)
store.close()
"""


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
@pytest.mark.parametrize("processes", [2, 4, 8, 16])
def test_of_many_processes_that_post_once_exactly_one_is_not_refused(
    place: SqlitePlace, store: Store, processes: int
) -> None:
    path = place.path
    created(store)
    posting = [
        warm.Popen(
            [sys.executable, "-c", POSTING, str(path), str(number)],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(processes)
    ]
    try:
        for process in posting:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in posting:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        said = [process.communicate(timeout=PATIENCE_SECONDS)[0].strip() for process in posting]
    finally:
        for process in posting:
            process.kill()
            process.communicate()
    assert sorted(said) == ["answer", *["refused"] * (processes - 1)]
    assert sorted(found.kind for found in store.read_mail("run-1")) == sorted(said)
