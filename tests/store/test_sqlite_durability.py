"""What the device is asked to keep, counted at the border to the kernel, and what happens when it cannot."""

from __future__ import annotations

import functools
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import apsw
import pytest

from perdure.errors import CheckpointCorrupt, PerdureError, StoreFull, StoreReadOnly, StoreUnavailable
from perdure.store import blobs
from perdure.store.protocol import Finding
from perdure.store.sqlite import SqliteStore, connect
from tests.store.journals import held_run, land, large_step, new_run, step

_ROOT = Path(__file__).parents[2]
_TRACE = ["strace", "-f", "-y", "-qq", "-e", "trace=fsync,fdatasync"]


@functools.cache
def why_not_traceable() -> str:
    if shutil.which("strace") is None:
        return "strace is not installed, so syncs cannot be counted"
    tried = subprocess.run([*_TRACE, "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"strace may not trace here: {tried.stderr.strip()}"


def syncs(path: Path, verb: str, count: int) -> int:
    """How often a process that commits this many times asks the device to keep what it wrote to the log."""
    report = path.with_suffix(".trace")
    completed = subprocess.run(
        [*_TRACE, "-o", str(report), sys.executable, "-m", "tests.store.child", str(path)],
        input=f"create run-1\nclaim run-1\n{verb} run-1 {count}\n",
        cwd=_ROOT,
        env={"PYTHONPATH": f"{_ROOT}:{_ROOT / 'src'}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert completed.stdout.splitlines()[-1] == str(count + 2)
    return sum("sync(" in line and "-wal>" in line for line in report.read_text().splitlines())


@pytest.fixture
def traceable() -> None:
    if why_not_traceable():
        pytest.skip(why_not_traceable())


@pytest.mark.usefixtures("traceable")
def test_every_power_commit_is_synced_once(tmp_path: Path) -> None:
    few, many = syncs(tmp_path / "few.db", "step", 10), syncs(tmp_path / "many.db", "step", 60)
    assert many - few == 50


@pytest.mark.usefixtures("traceable")
def test_process_commit_is_not_synced(tmp_path: Path) -> None:
    few, many = syncs(tmp_path / "few.db", "quick_step", 10), syncs(tmp_path / "many.db", "quick_step", 60)
    assert many == few


def test_names_of_new_files_and_folders_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    path = tmp_path / "new" / ".perdure" / "perdure.db"
    SqliteStore(path).close()
    assert set(synced) == {folder.stat().st_ino for folder in (tmp_path, tmp_path / "new", path.parent)}
    SqliteStore(path).close()
    assert len(synced) == 3


def test_device_cache_is_flushed_where_the_system_knows_how(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "perdure.db")
    assert store._connection.pragma("fullfsync") == 1  # noqa: SLF001 - only its own connection can tell
    assert store._connection.pragma("synchronous") == 2  # noqa: SLF001
    store.close()


class TestFull:
    """No room is left: the whole batch is refused with the same error, and what was acknowledged stands."""

    def test_nothing_of_the_batch_is_written_and_the_store_goes_on_once_there_is_room(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "perdure.db")
        one, two = held_run(store, "run-1"), held_run(store, "run-2")
        connection = store._connection  # noqa: SLF001 - the room it may use is limited from inside
        pages = connection.pragma("page_count")
        connection.pragma("max_page_count", pages)
        outcomes = store.append_all([step(one), large_step(two, random.Random(1).randbytes(100_000))], power=True)
        assert [type(outcome) for outcome in outcomes] == [StoreFull, StoreFull]
        assert outcomes[0] is outcomes[1]
        assert (store.read_run("run-1"), store.read_run("run-2")) == (one, two)
        connection.pragma("max_page_count", 1_000_000)
        land(store, step(one))
        store.close()
        store = SqliteStore(tmp_path / "perdure.db")
        assert store.losses() == []
        assert [found for found in store.check() if isinstance(found, Finding)] == []
        store.close()

    def test_run_that_does_not_fit_is_not_accepted(self, tmp_path: Path) -> None:
        store = SqliteStore(tmp_path / "perdure.db")
        store.join()
        connection = store._connection  # noqa: SLF001
        connection.pragma("max_page_count", connection.pragma("page_count"))
        content = random.Random(1).randbytes(100_000)
        with pytest.raises(StoreFull):
            store.create_run(*new_run(), [blobs.pack(content)])
        assert store.read_run("run-1") is None
        store.close()


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "expected"),
        [
            (apsw.FullError("full"), StoreFull),
            (OSError(28, "no space"), StoreFull),
            (OSError(122, "quota"), StoreFull),
            (apsw.ReadOnlyError("read only"), StoreReadOnly),
            (PermissionError(13, "denied"), StoreReadOnly),
            (OSError(30, "read-only file system"), StoreReadOnly),
            (apsw.CorruptError("malformed"), CheckpointCorrupt),
            (apsw.NotADBError("no database"), CheckpointCorrupt),
            (UnicodeDecodeError("utf-8", b"x", 0, 1, "bad"), CheckpointCorrupt),
            (apsw.BusyError("busy"), StoreUnavailable),
            (apsw.IOError("disk"), StoreUnavailable),
            (apsw.CantOpenError("no"), StoreUnavailable),
            (OSError(5, "input/output error"), StoreUnavailable),
        ],
    )
    def test_foreign_error_says_what_it_means_and_what_to_do(
        self, error: BaseException, expected: type[PerdureError]
    ) -> None:
        explained = connect.explain(error, "/somewhere/perdure.db")
        assert type(explained) is expected
        assert "/somewhere/perdure.db" in explained.message
        assert explained.safe
        assert explained.hint

    def test_own_error_stays_what_it_is(self) -> None:
        own = StoreFull("full")
        assert connect.explain(own, "x") is own

    def test_store_that_cannot_be_trusted_to_write_stays_closed_to_writing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """After an input/output error nobody knows what the device kept: no write is tried again in this process."""
        store = SqliteStore(tmp_path / "perdure.db")
        run = held_run(store)

        def failing(*_: object) -> None:
            raise apsw.IOError("disk I/O error")

        with monkeypatch.context() as broken:
            broken.setattr("perdure.store.sqlite.store.insert_record", failing)
            (outcome,) = store.append_all([step(run)], power=True)
            assert isinstance(outcome, StoreUnavailable)
        (outcome,) = store.append_all([step(run)], power=True)
        assert isinstance(outcome, StoreUnavailable)
        assert store.read_run("run-1") == run
        store.close()
