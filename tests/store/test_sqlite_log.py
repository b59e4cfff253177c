"""A log with room: commits do not make it longer, nobody takes what stands in the room for commits, or loses any."""

from __future__ import annotations

import contextlib
import itertools
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import msgspec
import pytest

from perdure.records import Run
from perdure.store.protocol import Finding
from perdure.store.sqlite import SqliteStore
from perdure.store.sqlite.connect import LOG_BYTES, PAGE_BYTES
from perdure.store.sqlite.log import PIECE_BYTES, REST_COMMITS, LogRoom
from tests import warm
from tests.store.journals import held_run, land, step
from tests.store.places import foreign

_ROOT = Path(__file__).parents[2]


def log_bytes(database: Path) -> int:
    return database.with_name(f"{database.name}-wal").stat().st_size


def taken_steps(store: SqliteStore, run: Run, count: int) -> Run:
    for _ in range(count):
        run = land(store, step(run))
    return run


def whole(store: SqliteStore) -> set[str]:
    """The runs that are found, every one of them whole."""
    found = list(store.check())
    assert not [each for each in found if isinstance(each, Finding)]
    return {each.run_id for each in found if isinstance(each, Run)}


def test_commits_do_not_make_the_log_longer(tmp_path: Path) -> None:
    database = tmp_path / "perdure.db"
    store = SqliteStore(database)
    run = taken_steps(store, held_run(store), 2)
    sizes = []
    for _ in range(60):
        run = land(store, step(run))
        sizes.append(log_bytes(database))
    grown = sum(before != after for before, after in itertools.pairwise(sizes))
    assert grown <= 2 * (1 + max(sizes) // PIECE_BYTES)
    assert any(size % PIECE_BYTES == 0 for size in sizes)
    store.close()


def test_commits_do_not_ask_for_the_state_of_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqliteStore(tmp_path / "perdure.db")
    run = taken_steps(store, held_run(store), 2)
    asked: list[object] = []
    look = os.fstat

    def watched(descriptor: int) -> os.stat_result:
        asked.append(descriptor)
        return look(descriptor)

    monkeypatch.setattr(os, "fstat", watched)
    taken_steps(store, run, 3)
    assert asked == []
    store.close()


def test_log_that_is_not_synced_gets_no_room(tmp_path: Path) -> None:
    database = tmp_path / "perdure.db"
    store = SqliteStore(database)
    run = held_run(store)
    sizes = [log_bytes(database)]
    for _ in range(60):
        one = step(run)
        assert store.append_all([one], power=False) == [None]
        run = one.run
        sizes.append(log_bytes(database))
    assert max(sizes) > sizes[0]
    assert all(after % PIECE_BYTES for before, after in itertools.pairwise(sizes) if after != before)
    store.close()


def test_log_of_full_length_that_was_made_shorter_gets_room_again(tmp_path: Path) -> None:
    database = tmp_path / "perdure.db"
    store = SqliteStore(database)
    run = held_run(store)
    while log_bytes(database) < LOG_BYTES:
        large = msgspec.structs.replace(step(run), blobs=((os.urandom(32), os.urandom(200_000)),))
        run = land(store, large)
    run = taken_steps(store, run, 1)  # which sees its length
    with foreign(database) as tidier:
        tidier.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # the log is only found by reading
        tidier.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    assert log_bytes(database) == 0
    run = taken_steps(store, run, REST_COMMITS + 2)
    assert log_bytes(database) % PIECE_BYTES == 0
    assert whole(store) == {"run-1"}
    store.close()


def test_what_stands_in_the_room_is_no_commit(tmp_path: Path) -> None:
    """The files as a dead process leaves them, with all of the room behind the last commit."""
    database = tmp_path / "perdure.db"
    store = SqliteStore(database)
    run = taken_steps(store, held_run(store), 12)
    assert log_bytes(database) % PIECE_BYTES == 0
    left = tmp_path / "left"
    left.mkdir()
    for file in tmp_path.glob("perdure.db*"):
        if file.is_file() and not file.name.endswith("-shm"):
            shutil.copy(file, left / file.name)
    store.close()
    found = SqliteStore(left / "perdure.db")
    assert whole(found) == {"run-1"}
    assert found.read_run("run-1") == run
    assert found.noticed == 0
    found.close()


def test_log_grows_by_itself_where_there_is_no_room(tmp_path: Path) -> None:
    database = tmp_path / "perdure.db"
    store = SqliteStore(database)
    run = held_run(store)
    size = log_bytes(database)
    while size % PIECE_BYTES == 0:  # use up what it has
        run = land(store, step(run))
        size = log_bytes(database)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 20 * PAGE_BYTES, hard))
    try:
        run = taken_steps(store, run, 2)
        after = log_bytes(database)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert size < after < size + 20 * PAGE_BYTES
    assert store.read_run("run-1") == run
    assert whole(store) == {"run-1"}
    store.close()


def test_room_is_made_while_nobody_else_can_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    database = tmp_path / "perdure.db"
    store = SqliteStore(database)
    other = apsw.Connection(str(database))
    could_write: list[bool] = []
    make = LogRoom.make

    def watched(room: LogRoom) -> None:
        try:
            other.execute("BEGIN IMMEDIATE; ROLLBACK")
        except apsw.BusyError:
            could_write.append(False)
        else:
            could_write.append(True)
        make(room)

    monkeypatch.setattr(LogRoom, "make", watched)
    taken_steps(store, held_run(store), 3)
    assert could_write == [False] * len(could_write)
    assert len(could_write) > 3
    other.close()
    store.close()


def _writer(database: Path) -> subprocess.Popen[str]:
    return warm.Popen(
        [sys.executable, "-m", "tests.store.child", str(database)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        env={"PYTHONPATH": f"{_ROOT}:{_ROOT / 'src'}", "PATH": "/usr/bin:/bin"},
        text=True,
    )


def test_nobody_makes_room_where_another_writes(tmp_path: Path) -> None:
    processes = 3
    database = tmp_path / "perdure.db"
    SqliteStore(database).close()
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(_writer(database)) for _ in range(processes)]
        for number, writer in enumerate(writers):
            assert writer.stdin is not None
            writer.stdin.write(f"create run-{number}\nclaim run-{number}\nstep run-{number} 60\n")
            writer.stdin.flush()
        ends = [writer.communicate()[0].splitlines()[-1] for writer in writers]
    assert ends == ["62"] * processes
    store = SqliteStore(database)
    assert whole(store) == {f"run-{number}" for number in range(processes)}
    assert [run.length for run in store.list_runs()] == [62] * processes
    store.close()
