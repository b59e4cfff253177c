"""`perdure migrate`: old or new, never between, however many try at once and wherever one of them is killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import psycopg
import pytest

from perdure.store.postgres import PostgresStore
from perdure.store.postgres.location import read_location
from perdure.store.sql import load_schema
from perdure.store.sqlite.connect import APPLICATION_ID
from tests import warm
from tests.faces.conftest import SECONDS, Place
from tests.postgres import schema_url
from tests.sampling import every
from tests.store.proxy import Proxy
from tests.summary import note

NEWEST = len(load_schema("postgres"))
NEWEST_FILE = len(load_schema("sqlite"))
OLD = 2
TOGETHER = 8


@contextlib.contextmanager
def admin(url: str) -> Iterator[psycopg.Connection[Any]]:
    location = read_location(url)
    with psycopg.connect(location.url, autocommit=True) as connection:
        connection.execute(f"SET search_path TO {location.schema}")
        yield connection


def make_old(url: str) -> None:
    """A store as an older perdure left it."""
    with admin(url) as connection:
        connection.execute(f"CREATE SCHEMA {read_location(url).schema}")
        connection.execute("CREATE TABLE meta (one BIGINT PRIMARY KEY, version BIGINT NOT NULL)")
        connection.execute("INSERT INTO meta VALUES (1, %s)", (OLD,))
        for statements in load_schema("postgres")[:OLD]:
            for statement in statements:
                connection.execute(statement)


def shape(url: str) -> tuple[int, list[Any]]:
    """The version, and every column there is."""
    with admin(url) as connection:
        ((version,),) = connection.execute("SELECT version FROM meta").fetchall()
        columns = connection.execute(
            "SELECT table_name, column_name, data_type FROM information_schema.columns WHERE table_schema = %s"
            " ORDER BY 1, 2",
            (read_location(url).schema,),
        ).fetchall()
    return version, columns


@pytest.fixture
def url() -> Iterator[str]:
    with schema_url() as made:
        yield made


@pytest.fixture
def fresh() -> Iterator[tuple[int, list[Any]]]:
    """What a store made from nothing looks like."""
    with schema_url() as made:
        PostgresStore(made).close()
        yield shape(made)


@pytest.mark.parametrize("begin", ["empty", "old"])
def test_any_number_may_migrate_and_open_at_once(url: str, fresh: Any, begin: str, tmp_path: Path) -> None:
    if begin == "old":
        make_old(url)
    place = Place(tmp_path)
    opening = f"from perdure.store import open_store; open_store({url!r}).close()"
    commands = [["-c", opening] if number % 2 else ["-m", "perdure", "migrate"] for number in range(TOGETHER)]
    processes = [
        warm.Popen(
            [sys.executable, *command],
            cwd=tmp_path,
            env={**place.environment, "PERDURE_STORE": url},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for command in commands
    ]
    ended = [(process.communicate(timeout=SECONDS), process.returncode) for process in processes]
    assert [code for _, code in ended] == [0] * TOGETHER, ended
    assert shape(url) == fresh


def test_versions_are_shown(url: str, tmp_path: Path) -> None:
    make_old(url)
    place = Place(tmp_path)
    place.environment["PERDURE_STORE"] = url
    looked = place.perdure("ls")
    assert (looked.code, "perdure migrate" in looked.err) == (6, True), looked
    assert f"schema version {OLD} → {NEWEST}" in place.perdure("migrate").out
    done = place.perdure("migrate", "--json").json()
    assert (done["before"], done["version"], done["created"]) == (NEWEST, NEWEST, False)
    assert place.perdure("ls").code == 0


@pytest.mark.parametrize("moment", [b"CREATE TABLE", b"ALTER TABLE", b"CREATE INDEX", b"UPDATE meta", b"COMMIT"])
@pytest.mark.parametrize("begin", ["empty", "old"])
def test_killed_migration_leaves_old_or_new(url: str, fresh: Any, moment: bytes, begin: str, tmp_path: Path) -> None:
    if begin == "old":
        make_old(url)
        before = shape(url)
    with Proxy(url) as wire:
        place = Place(tmp_path)
        wire.cut_once("stall", moment)
        process = warm.Popen(
            [sys.executable, "-m", "perdure", "migrate"],
            cwd=tmp_path,
            env={**place.environment, "PERDURE_STORE": wire.url},
        )
        while not wire.is_stalled():
            assert process.poll() is None
        process.kill()
        process.wait()
        wire.hang_up()
        wire.flow()
    with admin(url) as connection:
        tables = connection.execute(
            "SELECT count(*) FROM information_schema.tables WHERE table_schema = %s", (read_location(url).schema,)
        ).fetchone()
    if begin == "old":
        assert shape(url) == before
    else:
        assert tables == (0,)
    PostgresStore(url).close()
    assert shape(url) == fresh


def make_old_file(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    connection = apsw.Connection(str(path))
    for statements in load_schema("sqlite")[: OLD + 2]:
        for statement in statements:
            connection.execute(statement)
    connection.pragma("application_id", APPLICATION_ID)
    connection.pragma("user_version", OLD + 2)
    connection.close()


def file_shape(path: Path) -> tuple[int, list[Any]]:
    connection = apsw.Connection(str(path))
    try:
        tables = connection.execute("SELECT type, name FROM sqlite_schema ORDER BY 1, 2").fetchall()
        return int(connection.pragma("user_version")), tables
    finally:
        connection.close()


def can_trace() -> bool:
    probe = ["strace", "-o", os.devnull, "-e", "trace=none", "true"]
    return shutil.which("strace") is not None and subprocess.run(probe, check=False).returncode == 0


@pytest.mark.skipif(not can_trace(), reason="strace is not installed, or tracing is not allowed")
@every(sampled=13, tortured=1)
def test_killed_migration_of_a_file_leaves_old_or_new(tmp_path: Path, stride: int) -> None:
    place = Place(tmp_path)
    make_old_file(place.database)
    old = file_shape(place.database)
    assert place.perdure("migrate", "--store", str(tmp_path / "new.db")).code == 0
    new = file_shape(tmp_path / "new.db")
    migrate = [sys.executable, "-m", "perdure", "migrate"]
    seen = set()
    kills = 0
    for write in range(1, 60, stride):
        shutil.rmtree(place.database.parent)
        make_old_file(place.database)
        inject = ["-f", "-o", os.devnull, "-P", str(place.database), "-P", f"{place.database}-wal"]
        done = subprocess.run(
            ["strace", *inject, f"-einject=pwrite64,fdatasync:signal=KILL:when={write}", *migrate],
            cwd=tmp_path,
            env=place.environment,
            capture_output=True,
            check=False,
        )
        found = file_shape(place.database)
        assert found in (old, new)
        seen.add(found[0])
        assert place.perdure("migrate").code == 0
        assert file_shape(place.database) == new
        if done.returncode == 0:
            break
        kills += 1
    note("migrations of a file", trials=kills, landed={"kills": kills}, planned=kills)
    assert seen == {old[0], new[0]}


def test_any_number_may_migrate_a_file_at_once(tmp_path: Path) -> None:
    place = Place(tmp_path)
    make_old_file(place.database)
    processes = [
        warm.Popen(
            [sys.executable, "-m", "perdure", "migrate"],
            cwd=tmp_path,
            env=place.environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(TOGETHER)
    ]
    ended = [(process.communicate(timeout=SECONDS)[0], process.returncode) for process in processes]
    assert [code for _, code in ended] == [0] * TOGETHER, ended
    assert file_shape(place.database)[0] == NEWEST_FILE
