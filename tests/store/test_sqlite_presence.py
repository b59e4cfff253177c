"""Who lives, who died, who froze: told apart with real processes."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest

from perdure import clock
from perdure.bodies import read_body
from perdure.errors import CheckpointCorrupt, RunHeld, UsageError
from perdure.store.sqlite import SqliteStore
from tests.store.child import Child
from tests.store.journals import TERMS, claimed, created, held_run, land, letter, new_run, step
from tests.store.places import SqlitePlace, foreign

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from perdure.records import Run

RACERS = 8


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "perdure.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqliteStore]:
    opened = SqliteStore(path)
    yield opened
    opened.close()


@pytest.fixture
def child(store: SqliteStore, path: Path) -> Iterator[Child]:
    """Another process, which holds run-1."""
    created(store)
    with Child(path) as process:
        assert process.ask("claim", "run-1") == "1"
        yield process


def running(store: SqliteStore) -> bool:
    return store.is_running(row(store), stall_seconds=TERMS.stall_seconds)


def row(store: SqliteStore) -> Run:
    run = store.read_run("run-1")
    assert run is not None
    return run


def pass_time(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """This process looks at its clocks so much later."""
    boot, wall = clock.boot_seconds, clock.wall_seconds
    monkeypatch.setattr(clock, "boot_seconds", lambda: boot() + seconds)
    monkeypatch.setattr(clock, "wall_seconds", lambda: wall() + seconds)


def test_killed_process_is_dead_at_once(store: SqliteStore, child: Child) -> None:
    assert running(store)
    with pytest.raises(RunHeld, match=f"pid {child.pid} "):
        claimed(store)
    child.kill()
    assert not running(store)
    assert claimed(store).epoch == 2
    assert read_body(store.load_journal("run-1")[-1]).before.startswith(f"its process died (pid {child.pid} on ")


def test_killed_between_claim_and_first_beat_is_freed(store: SqliteStore, path: Path) -> None:
    created(store)
    with Child(path) as process:
        process.ask("join")
        with foreign(path) as connection:  # as if it had never given a sign of life
            connection.execute("UPDATE workers SET beat_at = 0, beat_boot = 0")
        process.ask("claim", "run-1")
        process.kill()
    assert claimed(store).epoch == 2


def test_frozen_process_is_held_until_it_is_stalled(
    store: SqliteStore, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    child.freeze()
    assert running(store)
    with pytest.raises(RunHeld):
        claimed(store)
    with monkeypatch.context() as later:
        pass_time(later, TERMS.stall_seconds - 30)
        with pytest.raises(RunHeld):
            claimed(store)
    with monkeypatch.context() as later:
        pass_time(later, TERMS.stall_seconds + 1)
        assert not running(store)
        assert claimed(store).epoch == 2
    assert "no sign of life" in read_body(store.load_journal("run-1")[-1]).before


def test_thawed_process_is_refused_at_its_next_write(
    store: SqliteStore, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    child.freeze()
    with monkeypatch.context() as later:
        pass_time(later, TERMS.stall_seconds + 1)
        run = land(store, step(claimed(store)))
    child.thaw()
    assert child.ask("late_step", "run-1") == "LeaseLost"
    assert row(store) == run


@pytest.mark.parametrize("jump", [-1_000_000.0, 1_000_000.0])
def test_jump_of_the_wall_clock_changes_nothing(
    store: SqliteStore, child: Child, monkeypatch: pytest.MonkeyPatch, jump: float
) -> None:
    wall = clock.wall_seconds
    monkeypatch.setattr(clock, "wall_seconds", lambda: wall() + jump)
    assert running(store)
    with pytest.raises(RunHeld):
        claimed(store)


def test_process_of_an_earlier_boot_is_dead(store: SqliteStore, child: Child, monkeypatch: pytest.MonkeyPatch) -> None:
    child.kill()
    monkeypatch.setattr(clock, "boot_id", lambda: "a later boot")
    assert not running(store)


def test_process_on_another_host_is_judged_by_its_beat(
    store: SqliteStore, child: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lock cannot be seen from here, so a free lock proves nothing."""
    child.kill()
    monkeypatch.setattr(clock, "boot_id", lambda: "another boot")
    monkeypatch.setattr(clock, "host_name", lambda: "another host")
    assert running(store)
    pass_time(monkeypatch, TERMS.stall_seconds + 1)
    assert not running(store)


def test_lock_file_that_was_replaced_proves_no_death(store: SqliteStore, child: Child, path: Path) -> None:
    lock = path.with_name("perdure.db-life") / row(store).holder
    lock.rename(lock.with_name("moved"))
    lock.touch()
    assert running(store)


def test_held_lock_proves_life_even_if_the_worker_is_not_known(store: SqliteStore, child: Child, path: Path) -> None:
    SqlitePlace(path).write("DELETE FROM workers WHERE pid = ?", (child.pid,))
    assert running(store)
    with pytest.raises(RunHeld):
        claimed(store)
    child.kill()
    assert claimed(store).epoch == 2


def test_held_lock_proves_life_whatever_boot_its_row_names(store: SqliteStore, child: Child, path: Path) -> None:
    SqlitePlace(path).write("UPDATE workers SET boot_id = 'damaged', lock_inode = 7 WHERE pid = ?", (child.pid,))
    assert running(store)


def test_forked_child_does_not_keep_its_dead_parent_alive(store: SqliteStore, child: Child) -> None:
    grandchild = int(child.ask("fork"))
    try:
        child.kill()
        assert not running(store)
        assert claimed(store).epoch == 2
    finally:
        os.kill(grandchild, signal.SIGKILL)


def in_forked_child(work: Callable[[], object]) -> str:
    """What a forked child is told when it does this; the child ends at once, running no other code of the test's."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        answer = "nothing"
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - reported to the parent
            answer = type(error).__name__
        finally:
            os.write(writing, answer.encode())
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(writing)
    with os.fdopen(reading) as stream:
        return stream.read()


def append_or_raise(store: SqliteStore, run: Run) -> None:
    (outcome,) = store.append_all([step(run)], power=True)
    if outcome is not None:
        raise outcome


WORKS: dict[str, Callable[[SqliteStore, Run], object]] = {
    "read": lambda store, run: store.read_run(run.run_id),
    "journal": lambda store, run: store.load_journal(run.run_id),
    "append": append_or_raise,
    "create": lambda store, _: store.create_run(*new_run("run-2")),
    "open": lambda store, _: SqliteStore(store.path),
    "open to read": lambda store, _: SqliteStore(store.path, create=False),
}


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("work", WORKS)
def test_forked_child_may_not_use_the_store(store: SqliteStore, work: str) -> None:
    """Nor open it anew: SQLite would take none of its locks there, and acknowledged commits would be overwritten."""
    run = held_run(store)
    assert in_forked_child(lambda: WORKS[work](store, run)) == UsageError.__name__
    land(store, step(run))
    assert store.read_run("run-2") is None


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_forked_child_that_closes_the_store_takes_nothing_from_its_parent(store: SqliteStore, path: Path) -> None:
    run = held_run(store)

    def close_and_look() -> None:
        store.close()
        store._connection.pragma("user_version")  # noqa: SLF001 - SQLite forbids to close it in a child

    assert in_forked_child(close_and_look) == "nothing"
    assert running(store)
    with Child(path) as process:
        assert process.ask("claim", "run-1").startswith("RunHeld")
    land(store, step(run))


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_child_forked_after_the_store_was_closed_may_open_it(path: Path) -> None:
    store = SqliteStore(path)
    held_run(store)
    store.close()
    assert in_forked_child(lambda: SqliteStore(path)) == "nothing"


def test_racers_for_a_dead_run_have_one_winner(store: SqliteStore, child: Child, path: Path) -> None:
    racers = [Child(path) for _ in range(RACERS)]
    try:
        for racer in racers:
            racer.ask("join")
        child.kill()
        for racer in racers:
            racer.tell("claim", "run-1")
        answers = [racer.hear() for racer in racers]
        assert answers.count("2") == 1
        assert sum(answer.startswith("RunHeld") for answer in answers) == RACERS - 1
        winner = racers[answers.index("2")]
        assert winner.ask("step", "run-1") == "4"
        assert row(store).holder == winner.ask("join")
    finally:
        for racer in racers:
            racer.__exit__(None, None, None)


def test_racers_for_one_id_create_it_once(store: SqliteStore, path: Path) -> None:
    racers = [Child(path) for _ in range(RACERS)]
    try:
        for racer in racers:
            racer.ask("join")
        for racer in racers:
            racer.tell("create", "run-1")
        assert [racer.hear() for racer in racers] == ["queued"] * RACERS
    finally:
        for racer in racers:
            racer.__exit__(None, None, None)
    assert len(store.list_runs()) == 1
    assert len(store.load_journal("run-1")) == 1


def test_workers_are_forgotten_a_day_after_their_last_beat(
    store: SqliteStore, child: Child, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = row(store).holder
    child.kill()
    with monkeypatch.context() as later:
        pass_time(later, 25 * 3600.0)
        late = SqliteStore(path)
        late.join()
        assert late.read_worker(holder) is None
        assert not (path.with_name("perdure.db-life") / holder).exists()
        late.close()
    assert claimed(store).epoch == 2


def test_living_worker_is_never_forgotten(
    store: SqliteStore, child: Child, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as later:
        pass_time(later, 25 * 3600.0)
        late = SqliteStore(path)
        late.join()
        assert late.read_worker(row(store).holder) is not None
        late.close()


class TestHiddenRuns:
    """A run or a mail that no index leads to is as good as lost: no work starts on such a store."""

    def hide(self, path: Path, index: str) -> None:
        """Empty an index behind the back of its table."""
        with foreign(path) as connection:
            connection.pragma("writable_schema", "on")
            connection.execute("CREATE TABLE empty (a TEXT UNIQUE)")
            empty = "SELECT rootpage FROM sqlite_schema WHERE tbl_name = 'empty' AND type = 'index'"
            connection.execute(f"UPDATE sqlite_schema SET rootpage = ({empty}) WHERE name = ?", (index,))  # noqa: S608
            assert connection.changes() == 1

    @pytest.mark.parametrize("index", ["sqlite_autoindex_runs_1", "runs_by_call", "mailbox_by_run"])
    def test_store_that_hides_something_starts_no_work(self, path: Path, index: str) -> None:
        store = SqliteStore(path)
        held_run(store)
        store.post(letter())
        store.close()
        self.hide(path, index)
        store = SqliteStore(path)
        with pytest.raises(CheckpointCorrupt, match="index"):
            store.create_run(*new_run())
        with pytest.raises(CheckpointCorrupt):
            store.join()
        store.close()
