"""Opening a database file: what is refused, what is made, and that a refusal touches nothing."""

from __future__ import annotations

import os
import stat
import sys
import threading
from pathlib import Path

import apsw
import pytest

from perdure.errors import (
    CheckpointCorrupt,
    CommitsLost,
    PerdureError,
    SchemaTooNew,
    StoreReadOnly,
    StoreUnavailable,
    UnsafeEngine,
)
from perdure.store import open_store
from perdure.store.memory import MemoryStore
from perdure.store.protocol import Finding, Which
from perdure.store.sql import load_schema
from perdure.store.sqlite import SqliteStore, connect
from perdure.store.sqlite.presence import exclusive
from tests.store.child import Child
from tests.store.journals import claimed, created, ending, held_run, land, letter, new_run, step
from tests.store.places import foreign


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "perdure.db"


def files_of(path: Path) -> dict[str, bytes]:
    """The database and its log, byte by byte; an empty log is none."""
    kept = (path, path.with_name(path.name + "-wal"))
    return {file.name: file.read_bytes() for file in kept if file.exists() and file.stat().st_size}


class TestEngine:
    @pytest.mark.parametrize("version", ["3.51.2", "3.51.0", "3.50.6", "3.50.8", "3.44.5", "3.44.7", "3.37.0"])
    def test_unsafe_version_is_refused(self, version: str) -> None:
        with pytest.raises(UnsafeEngine, match=version) as refused:
            connect.gate(version)
        assert refused.value.hint == "pip install --upgrade apsw"

    @pytest.mark.parametrize("version", ["3.51.3", "3.50.7", "3.44.6", "3.52.0", "4.0.0"])
    def test_safe_version_is_accepted(self, version: str) -> None:
        connect.gate(version)

    def test_unsafe_engine_opens_nothing(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(apsw, "sqlite_lib_version", lambda: "3.51.2")
        with pytest.raises(UnsafeEngine):
            SqliteStore(path)
        assert not path.exists()


class TestFiles:
    def test_are_for_their_owner_alone_and_ignored_by_git(self, tmp_path: Path) -> None:
        path = tmp_path / ".perdure" / "perdure.db"
        store = SqliteStore(path)
        created(store)
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert (path.parent / ".gitignore").read_text() == "*\n"
        kept = [file for file in path.parent.rglob("*") if file.name != ".gitignore"]
        assert {file.name for file in kept} >= {path.name + tail for tail in ("", "-wal", "-mark", "-lock", "-life")}
        for file in kept:
            assert stat.S_IMODE(file.stat().st_mode) == (0o700 if file.is_dir() else 0o600), file
        store.close()

    def test_folder_that_is_there_is_left_as_it_is(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o755)
        SqliteStore(tmp_path / "perdure.db").close()
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o755
        assert not (tmp_path / ".gitignore").exists()

    def test_directory_is_not_a_store(self, tmp_path: Path) -> None:
        for create in (True, False):
            with pytest.raises(StoreUnavailable, match="is a directory") as refused:
                SqliteStore(tmp_path, create=create)
            assert str(tmp_path / "perdure.db") in refused.value.hint
        assert list(tmp_path.iterdir()) == []

    def test_says_whether_it_was_made(self, path: Path) -> None:
        first = SqliteStore(path)
        second = SqliteStore(path)
        assert (first.created, second.created) == (True, False)
        first.close()
        second.close()

    def test_missing_store_is_not_made_by_a_reader(self, path: Path) -> None:
        with pytest.raises(StoreUnavailable, match="no store"):
            SqliteStore(path, create=False)
        assert list(path.parent.iterdir()) == []

    def test_nothing_is_left_in_the_folder_of_living_processes(self, path: Path) -> None:
        store = SqliteStore(path)
        store.join()
        life = path.with_name("perdure.db-life")
        assert len(list(life.iterdir())) == 1
        store.close()
        assert list(life.iterdir()) == []

    def test_first_opening_by_many_at_once_makes_one_store(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "folder" / "perdure.db"
        children = [Child(path) for _ in range(6)]
        try:
            for number, child in enumerate(children):
                child.tell("create", f"run-{number}")
            assert [child.hear() for child in children] == ["queued"] * 6
        finally:
            for child in children:
                child.__exit__(None, None, None)
        store = SqliteStore(path)
        assert len(store.list_runs()) == 6
        assert store.losses() == []
        store.close()


class TestOpenLock:
    def test_one_process_at_a_time_opens_and_joins(self, path: Path) -> None:
        """Two that looked for a free slot of the mark at once would take the same."""
        store = SqliteStore(path, seconds=0.05)
        with exclusive(path.with_name("perdure.db-lock"), seconds=0.05):
            with pytest.raises(StoreUnavailable, match=r"has been locked by another process for 0\.05 s"):
                SqliteStore(path, seconds=0.05)
            with pytest.raises(StoreUnavailable, match="locked"):
                store.join()
        store.join()
        store.close()

    def test_reader_does_not_wait_for_it(self, path: Path) -> None:
        SqliteStore(path).close()
        with exclusive(path.with_name("perdure.db-lock"), seconds=0.05):
            SqliteStore(path, create=False, seconds=0.05).close()


class TestLocation:
    def test_names_the_implementation(self, tmp_path: Path) -> None:
        assert isinstance(open_store("memory:"), MemoryStore)
        for location in (str(tmp_path / "a.db"), f"sqlite:{tmp_path}/b.db", f"sqlite://{tmp_path}/c.db"):
            store = open_store(location)
            assert isinstance(store, SqliteStore)
            store.close()
        assert {file.name for file in tmp_path.glob("*.db")} == {"a.db", "b.db", "c.db"}

    def test_of_another_kind_is_refused(self) -> None:
        with pytest.raises(PerdureError, match="mysql"):
            open_store("mysql://somewhere/else")


class TestSchema:
    def dump(self, path: Path) -> list[tuple[object, ...]]:
        with foreign(path) as connection:
            rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY name").fetchall()
            return [*rows, (connection.pragma("user_version"), connection.pragma("application_id"))]

    def test_from_scratch_equals_by_migration_from_every_version(self, tmp_path: Path) -> None:
        scratch = tmp_path / "scratch.db"
        SqliteStore(scratch).close()
        schema = load_schema("sqlite")
        for version in range(len(schema) + 1):
            path = tmp_path / f"from-{version}.db"
            path.touch()
            with foreign(path) as connection:
                for statements in schema[:version]:
                    for statement in statements:
                        connection.execute(statement)
                connection.pragma("user_version", version)
                connection.pragma("application_id", connect.APPLICATION_ID if version else 0)
            SqliteStore(path).close()
            assert self.dump(path) == self.dump(scratch)

    def test_older_store_is_migrated_and_keeps_its_runs(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        store = SqliteStore(path)
        run = land(store, step(held_run(store)))
        store.close()
        newer = [*load_schema("sqlite"), ["CREATE TABLE later (at REAL NOT NULL) STRICT"]]
        monkeypatch.setattr(connect, "load_schema", lambda _: newer)
        store = SqliteStore(path)
        assert not store.created
        assert store.read_run("run-1") == run
        store.close()
        assert "later" in [row[1] for row in self.dump(path)[:-1]]

    def test_older_store_is_migrated_by_whoever_looks_first(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(connect, "load_schema", lambda store: load_schema(store)[:1])
            SqliteStore(path).close()
        looking = SqliteStore(path, create=False)
        assert looking.count_runs(Which()) == 0
        assert looking.find_runs(Which()) == []
        looking.close()
        assert self.dump(path)[-1][0] == len(load_schema("sqlite"))

    def test_migration_that_fails_half_way_changes_nothing(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        SqliteStore(path).close()
        before = self.dump(path)
        broken = [*load_schema("sqlite"), ["CREATE TABLE later (at REAL) STRICT", "CREATE NONSENSE"]]
        with monkeypatch.context() as patched:
            patched.setattr(connect, "load_schema", lambda _: broken)
            with pytest.raises(PerdureError):
                SqliteStore(path)
        assert self.dump(path) == before
        SqliteStore(path).close()

    @pytest.mark.parametrize("create", [True, False])
    @pytest.mark.parametrize("log", ["in the database", "in the log"])
    def test_newer_schema_is_refused_and_nothing_is_written(self, path: Path, create: bool, log: str) -> None:
        store = SqliteStore(path)
        created(store)
        store.close()
        connection = apsw.Connection(str(path))
        connection.pragma("user_version", 99)
        if log == "in the database":
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        before = files_of(path)
        with pytest.raises(SchemaTooNew, match="schema 99"):
            SqliteStore(path, create=create)
        assert files_of(path) == before
        connection.close()

    @pytest.mark.parametrize("mode", ["delete", "wal"])
    @pytest.mark.parametrize("create", [True, False])
    def test_database_of_somebody_else_is_refused_and_not_touched(self, path: Path, mode: str, create: bool) -> None:
        connection = apsw.Connection(str(path))
        connection.pragma("journal_mode", mode)
        connection.execute("CREATE TABLE customers (name TEXT)")
        connection.close()
        before = files_of(path)
        with pytest.raises(StoreUnavailable, match="not one of perdure's"):
            SqliteStore(path, create=create)
        assert files_of(path) == before

    @pytest.mark.parametrize("create", [True, False])
    def test_file_that_is_no_database_is_refused_and_not_touched(self, path: Path, create: bool) -> None:
        path.write_text("Dear Ada,\n" * 1000)
        with pytest.raises(CheckpointCorrupt, match="not a database"):
            SqliteStore(path, create=create)
        assert path.read_text() == "Dear Ada,\n" * 1000

    def test_nothing_a_file_brings_along_is_executed(self, path: Path) -> None:
        store = SqliteStore(path)
        created(store)
        store.close()
        with foreign(path) as connection:
            connection.execute("CREATE TRIGGER t AFTER UPDATE ON runs BEGIN DELETE FROM records; END")
        store = SqliteStore(path)
        claimed(store)
        assert len(store.load_journal("run-1")) == 2
        store.close()


class TestMissing:
    @pytest.mark.parametrize("create", [True, False])
    def test_deleted_database_with_its_mark_is_a_loss(self, path: Path, create: bool) -> None:
        store = SqliteStore(path)
        created(store)
        store.close()
        path.unlink()
        with pytest.raises(CommitsLost, match=r"perdure\.db-mark"):
            SqliteStore(path, create=create)
        assert not path.exists()

    @pytest.mark.parametrize("create", [True, False])
    def test_emptied_database_is_a_loss_and_its_log_is_kept(self, path: Path, create: bool) -> None:
        store = SqliteStore(path)
        created(store)
        log = path.with_name("perdure.db-wal")
        kept = log.read_bytes()
        store.close()
        path.write_bytes(b"")
        log.write_bytes(kept)
        with pytest.raises(CommitsLost):
            SqliteStore(path, create=create)
        path.with_name("perdure.db-mark").unlink()
        with pytest.raises(CommitsLost, match=r"perdure\.db-wal"):
            SqliteStore(path, create=create)
        assert log.read_bytes() == kept


class TestReading:
    def test_reader_changes_nothing_and_moves_no_log(self, path: Path) -> None:
        store = SqliteStore(path)
        run = land(store, step(held_run(store)))
        before = files_of(path)
        assert len(before) == 2
        reader = SqliteStore(path, create=False)
        assert reader.read_run("run-1") == run
        assert len(list(reader.check())) == 1
        for write in (
            reader.join,
            lambda: reader.create_run(*new_run("run-2")),
            lambda: reader.post(letter()),
            lambda: reader.repair_run("run-1"),
            lambda: reader.beat("worker"),
        ):
            with pytest.raises(StoreReadOnly, match="to be read only"):
                write()
        (outcome,) = reader.append_all([step(run)], power=True)
        assert isinstance(outcome, StoreReadOnly)
        reader.close()
        assert files_of(path) == before
        store.close()

    def test_reader_leaves_the_log_of_a_killed_process_where_it_is(self, path: Path) -> None:
        with Child(path) as child:
            child.ask("create", "run-1")
            child.kill()
        before = files_of(path)
        assert len(before) == 2
        reader = SqliteStore(path, create=False)
        assert len(reader.list_runs()) == 1
        reader.close()
        assert files_of(path) == before

    def test_growing_journal_is_never_mistaken_for_a_damaged_one(self, path: Path) -> None:
        """Neither by readers of one journal nor by a walk over everything, mark included."""
        with Child(path) as child:
            child.ask("create", "run-1")
            child.ask("claim", "run-1")
            reader = SqliteStore(path, create=False)
            child.tell("step", "run-1", "400")
            answers: list[str] = []
            listener = threading.Thread(target=lambda: answers.append(child.hear()))
            listener.start()
            lengths = [len(reader.load_journal("run-1"))]
            while listener.is_alive():
                lengths.append(len(reader.load_journal("run-1")))
                assert [found for found in reader.check() if isinstance(found, Finding)] == []
            listener.join()
            assert answers == ["402"]
            assert lengths == sorted(lengths)
            assert len(reader.load_journal("run-1")) == 402
            reader.close()

    def test_mail_and_finished_runs_survive_closing(self, path: Path) -> None:
        store = SqliteStore(path)
        run = land(store, ending(held_run(store)))
        posted = store.post(letter())
        store.close()
        assert not path.with_name("perdure.db-wal").exists()
        store = SqliteStore(path)
        assert store.read_run("run-1") == run
        assert store.read_mail("run-1") == [posted]
        store.close()


def test_new_database_has_small_pages(path: Path) -> None:
    SqliteStore(path).close()
    with foreign(path) as connection:
        assert connection.pragma("page_size") == connect.PAGE_BYTES


def test_database_with_pages_of_another_size_goes_on(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(connect, "PAGE_BYTES", 4096)
        store = SqliteStore(path)
        run = land(store, step(held_run(store)))
        store.close()
    store = SqliteStore(path)
    run = claimed(store, run.run_id)
    for _ in range(20):
        run = land(store, step(run))
    assert not [found for found in store.check() if isinstance(found, Finding)]
    assert store.read_run(run.run_id) == run
    assert len(store.load_journal(run.run_id)) == run.length
    store.close()
    with foreign(path) as connection:
        assert connection.pragma("page_size") == 4096


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells which locks a process holds")
def test_store_that_is_opened_twice_keeps_its_locks(path: Path) -> None:
    """Whoever opens and closes a file takes every lock away that his process holds on it, also those of SQLite."""

    def locks() -> set[str]:
        inode, mine = str(path.stat().st_ino), str(os.getpid())
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        return {
            " ".join(line[1:])
            for line in lines
            if line[1] == "POSIX" and line[4] == mine and line[5].endswith(f":{inode}")
        }

    store = SqliteStore(path)
    run = land(store, step(held_run(store)))
    before = locks()
    assert before
    SqliteStore(path).close()
    SqliteStore(path, create=False).close()
    assert locks() == before
    assert store.read_run(run.run_id) == run
    store.close()
