"""Acknowledged commits that are gone: they are noticed, recorded, and nothing goes on as if they had never been."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from perdure.errors import CheckpointCorrupt, CommitsLost
from perdure.records import Run, RunState, WaitReason
from perdure.store.lease import read_park
from perdure.store.protocol import Finding
from perdure.store.sqlite import SqliteStore
from perdure.store.sqlite.presence import SLOT_BYTES, read_mark
from tests.store.child import Child
from tests.store.journals import claimed, created, ending, held_run, land, letter, step
from tests.store.places import SqlitePlace, foreign

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "perdure.db"


def copied(path: Path) -> Callable[[], None]:
    """Copy database and log aside as they are now; calling the answer puts this older copy back."""
    aside = path.parent / "aside"
    aside.mkdir(exist_ok=True)
    names = [path.name, f"{path.name}-wal"]
    for name in names:
        (aside / name).unlink(missing_ok=True)
        if (path.parent / name).exists():
            shutil.copy2(path.parent / name, aside / name)

    def put_back() -> None:
        for name in (*names, f"{path.name}-shm"):
            (path.parent / name).unlink(missing_ok=True)
            if (aside / name).exists():
                shutil.copy2(aside / name, path.parent / name)

    return put_back


def runs_of(store: SqliteStore) -> dict[str, Run]:
    return {run.run_id: run for run in store.list_runs()}


@pytest.mark.parametrize("state", ["in the log", "in the database"])
def test_older_copy_put_back_is_noticed_and_unfinished_runs_park(path: Path, state: str) -> None:
    store = SqliteStore(path)
    finished = land(store, ending(held_run(store, "finished")))
    queued = created(store, "queued")
    run = land(store, step(held_run(store, "going")))
    if state == "in the database":
        store.close()
        store = SqliteStore(path)
    put_back = copied(path)
    run = claimed(store, "going") if state == "in the database" else run
    before = runs_of(store)["going"]
    for _ in range(5):
        run = land(store, step(run))
    store.close()
    put_back()

    store = SqliteStore(path)
    (loss,) = store.losses()
    assert loss.generation == 2
    assert loss.expected - loss.found == (6 if state == "in the database" else 5)
    after = runs_of(store)
    assert after["finished"] == finished
    for run_id in ("queued", "going"):
        parked = after[run_id]
        assert (parked.state, parked.reason, parked.holder) == (RunState.WAITING, WaitReason.PARKED, "")
        assert read_park(parked).code == CommitsLost.code
        assert parked.suspects == 3
        with pytest.raises(CommitsLost, match="may have gone further"):
            claimed(store, run_id)
    assert after["going"].epoch > before.epoch
    assert after["queued"].epoch > queued.epoch
    assert len(store.load_journal("going")) == 3
    store.close()


def test_loss_is_noticed_once(path: Path) -> None:
    store = SqliteStore(path)
    put_back = (created(store), copied(path))[1]
    land(store, step(claimed(store)))
    store.close()
    put_back()
    for _ in range(3):
        store = SqliteStore(path)
        assert len(store.losses()) == 1
        created(store, "run-2")
        store.close()


def test_second_loss_is_noticed_too(path: Path) -> None:
    store = SqliteStore(path)
    created(store)
    for generation in (2, 3):
        put_back = copied(path)
        created(store, f"run-{generation}")
        store.close()
        put_back()
        store = SqliteStore(path)
        assert [loss.generation for loss in store.losses()] == list(range(2, generation + 1))
    store.close()


def test_repaired_run_goes_on_after_a_loss(path: Path) -> None:
    store = SqliteStore(path)
    run = held_run(store)
    put_back = copied(path)
    land(store, step(run))
    store.close()
    put_back()
    store = SqliteStore(path)
    assert store.repair_run("run-1") == 0
    again = claimed(store)
    assert again.suspects == 1
    assert again.epoch > run.epoch + 1
    land(store, step(again))
    store.close()
    store = SqliteStore(path)
    assert len(store.losses()) == 1
    assert [found for found in store.check() if isinstance(found, Finding)] == []
    store.close()


@pytest.mark.parametrize("what", ["mail", "a claim", "a new run", "a repair"])
def test_every_acknowledged_commit_counts(path: Path, what: str) -> None:
    place = SqlitePlace(path)
    store = place.open()
    land(store, ending(land(store, step(held_run(store)))))
    created(store, "run-2")
    if what == "a repair":
        place.damage_record("run-1", 2)
    put_back = copied(path)
    match what:
        case "mail":
            store.post(letter())
        case "a claim":
            claimed(store, "run-2")
        case "a new run":
            created(store, "run-3")
        case "a repair":
            assert store.repair_run("run-1") == 2
    place.close()
    put_back()
    store = SqliteStore(path)
    assert [loss.expected - loss.found for loss in store.losses()] == [1]
    store.close()


def test_repair_that_removes_records_is_no_loss(path: Path) -> None:
    place = SqlitePlace(path)
    store = place.open()
    run = held_run(store)
    for _ in range(10):
        run = land(store, step(run))
    land(store, ending(run))
    place.damage_record("run-1", 3)
    assert store.repair_run("run-1") == 10
    place.close()
    store = SqliteStore(path)
    assert store.losses() == []
    store.close()


def test_commits_of_other_processes_count_as_well(path: Path) -> None:
    """A process does not see how many commits others made; what it remembers is right all the same."""
    store = SqliteStore(path)
    run = held_run(store)
    with Child(path) as child:
        child.ask("create", "run-2")
        for _ in range(3):
            child.ask("post", "run-1")
        run = land(store, step(run))
        put_back = copied(path)
        land(store, step(run))
        store.close()
        child.kill()
    put_back()
    store = SqliteStore(path)
    assert [loss.expected - loss.found for loss in store.losses()] == [1]
    store.close()


def test_loss_of_commits_that_were_never_synced_parks_nothing(path: Path) -> None:
    """They are what `durability="process"` may lose with the power: recorded, and the runs go on from before them."""
    with Child(path) as child:
        child.ask("create", "run-1")
        child.ask("claim", "run-1")
        put_back = copied(path)
        child.ask("quick_step", "run-1", "4")
        child.kill()
    slots = [slot for slot in read_mark(path.with_name("perdure.db-mark")) or [] if slot]
    assert [slot.acknowledged - slot.synced for slot in slots] == [4]
    put_back()
    store = SqliteStore(path)
    (loss,) = store.losses()
    assert loss.expected - loss.found == 4
    run = claimed(store)
    assert (run.state, run.suspects, run.steps) == (RunState.RUNNING, 0, 0)
    store.close()


def test_synced_commit_syncs_the_unsynced_before_it(path: Path) -> None:
    with Child(path) as child:
        child.ask("create", "run-1")
        child.ask("claim", "run-1")
        put_back = copied(path)
        child.ask("quick_step", "run-1", "4")
        child.ask("step", "run-1")
        child.kill()
    put_back()
    store = SqliteStore(path)
    assert runs_of(store)["run-1"].reason == WaitReason.PARKED
    assert runs_of(store)["run-1"].suspects == 3
    store.close()


def test_mark_survives_the_reuse_of_its_slots_by_many_processes(path: Path) -> None:
    """Also by processes that only beat, read or open: none may forget what an earlier one was told."""
    store = SqliteStore(path)
    run = held_run(store)
    put_back = copied(path)
    land(store, step(run))
    store.close()
    for _ in range(10):
        idle = SqliteStore(path)
        idle.beat(idle.join().worker_id)
        idle.close()
        with Child(path) as child:
            child.ask("join")
            child.ask("beat")
    slots = read_mark(path.with_name("perdure.db-mark")) or []
    assert len(slots) == 1
    put_back()
    store = SqliteStore(path)
    assert len(store.losses()) == 1
    store.close()


def test_every_living_process_has_a_slot_of_its_own(path: Path) -> None:
    children = [Child(path) for _ in range(4)]
    try:
        names = [child.ask("join") for child in children]
        slots = read_mark(path.with_name("perdure.db-mark")) or []
        assert sorted(slot.worker_id for slot in slots if slot) == sorted(names)
        children[1].kill()
        with Child(path) as late:
            names[1] = late.ask("join")
            slots = read_mark(path.with_name("perdure.db-mark")) or []
            assert sorted(slot.worker_id for slot in slots if slot) == sorted(names)
    finally:
        for child in children:
            child.__exit__(None, None, None)


def test_rolled_back_commit_is_not_remembered(path: Path) -> None:
    """A commit that failed was not acknowledged: to miss it later would be a false alarm."""
    store = SqliteStore(path)
    run = held_run(store)
    with foreign(path) as connection:
        number = connection.execute("SELECT run FROM runs").fetchall()[0][0]
        values = f"({number}, {run.length}, 'step', '', '', x'', 0.0, 0, '', x'')"
        columns = "(run, seq, kind, key, name, arguments, at, epoch, body, digest)"
        connection.execute(f"INSERT INTO records {columns} VALUES {values}")  # noqa: S608
        (outcome,) = store.append_all([step(run)], power=True)
        assert type(outcome).__name__ == "InternalError"
        connection.execute("DELETE FROM records WHERE seq = ?", (run.length,))
    store.beat(store.join().worker_id)
    land(store, step(run))
    store.close()
    store = SqliteStore(path)
    assert store.losses() == []
    store.close()


def test_check_names_a_loss_that_nobody_has_recorded_yet(path: Path) -> None:
    store = SqliteStore(path)
    put_back = (created(store), copied(path))[1]
    created(store, "run-2")
    store.close()
    put_back()
    reader = SqliteStore(path, create=False)
    assert ["the rest is lost" in found.what for found in reader.check() if isinstance(found, Finding)] == [True]
    reader.close()


@pytest.mark.parametrize(
    ("cut", "named"), [(None, "is missing"), (0, "is empty"), (SLOT_BYTES // 2, "slot is damaged")]
)
def test_check_names_a_mark_that_cannot_warn(path: Path, cut: int | None, named: str) -> None:
    store = SqliteStore(path)
    created(store)
    store.close()
    mark = path.with_name("perdure.db-mark")
    mark.unlink() if cut is None else mark.write_bytes(mark.read_bytes()[:cut])
    reader = SqliteStore(path, create=False)
    assert [named in found.what for found in reader.check() if isinstance(found, Finding)] == [True]
    reader.close()


def test_damaged_row_is_not_made_truth_by_parking(path: Path) -> None:
    place = SqlitePlace(path)
    store = place.open()
    created(store)
    put_back = copied(path)
    claimed(store)
    place.close()
    put_back()
    place.damage_run("run-1", agent="somebody:else")
    store = place.open()
    assert len(store.losses()) == 1
    with pytest.raises(CheckpointCorrupt):
        store.read_run("run-1")
    place.close()


@pytest.mark.parametrize(
    "damage", ["UPDATE losses SET found = found - 1", "DELETE FROM losses", "UPDATE meta SET generation = 1"]
)
def test_damage_to_the_list_of_losses_is_named(path: Path, damage: str) -> None:
    store = SqliteStore(path)
    put_back = (created(store), copied(path))[1]
    created(store, "run-2")
    store.close()
    put_back()
    store = SqliteStore(path)
    assert len(store.losses()) == 1
    SqlitePlace(path).write(damage)
    with pytest.raises(CheckpointCorrupt, match="list of losses"):
        store.losses()
    assert any(isinstance(found, Finding) and "list of losses" in found.what for found in store.check())
    store.close()
