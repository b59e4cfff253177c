"""What adapters keep: the same in every store, verified, and quick for those who write at once."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import psycopg
import pytest

from perdure import clock
from perdure.errors import CheckpointCorrupt, UsageError
from perdure.settings import Settings
from perdure.store import open_cabinet, open_store
from perdure.store.cabinet import Cabinet, Rows, key_of, names_of
from perdure.store.postgres.location import read_location
from perdure.store.protocol import Finding
from perdure.store.sqlite.cabinet import SqliteCabinet
from tests.postgres import emptied_schema, schema_url


@pytest.fixture(params=["memory", "sqlite", "postgres"])
def cabinet(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cabinet]:
    with contextlib.ExitStack() as stack:
        file = str(tmp_path / "cabinet.db")
        location = {"memory": "memory:", "sqlite": file}.get(request.param) or stack.enter_context(emptied_schema())
        opened = open_cabinet(Settings(store=location))
        stack.callback(opened.close)
        yield opened


def test_rows_are_found_by_key_by_beginning_and_from_the_end(cabinet: Cabinet) -> None:
    rows = {key_of(b"tt", "a", str(number)): bytes((number,)) for number in range(5)}
    cabinet.write(lambda write: write.put(rows))
    cabinet.write(lambda write: write.keep({key_of(b"tt", "a", "1"): b"other", key_of(b"tt", "ab"): b"beside"}))
    cabinet.write(lambda write: write.put({key_of(b"tt", "a", "2"): b"other"}))
    beginning = key_of(b"tt", "a")
    assert cabinet.read(lambda read: read.scan(beginning, limit=3)) == [
        (key_of(b"tt", "a", "0"), b"\0"),
        (key_of(b"tt", "a", "1"), b"\1"),
        (key_of(b"tt", "a", "2"), b"other"),
    ]
    before = key_of(b"tt", "a", "3")
    newest = cabinet.read(lambda read: read.newest(beginning, before=before, limit=2))
    assert [names_of(key) for key in newest] == [["a", "2"], ["a", "1"]]
    assert cabinet.read(lambda read: read.get([before, b"ttnone"])) == {before: b"\3"}
    cabinet.write(lambda write: write.remove([before, b"ttnone"]))
    cabinet.write(lambda write: write.clear(key_of(b"tt", "a", "0")))
    assert len(cabinet.read(lambda read: read.scan(b"tt"))) == 4
    cabinet.write(lambda write: write.clear(beginning))
    assert cabinet.read(lambda read: read.scan(b"tt")) == [(key_of(b"tt", "ab"), b"beside")]


def test_nothing_of_a_change_that_failed_is_there(cabinet: Cabinet) -> None:
    def fail(rows: Rows) -> None:
        rows.put({b"tta": b"1"})
        raise UsageError("no")

    with pytest.raises(UsageError):
        cabinet.write(fail)
    assert cabinet.read(lambda rows: rows.scan(b"tt")) == []


@pytest.mark.parametrize("name", ["", "a", "\0", "\1", "\1\2", "\0\1", "a\0b", "ä\uffff", "\ud800"])
def test_a_name_comes_back_from_its_key(name: str) -> None:
    assert names_of(key_of(b"tt", name, "x", name)) == [name, "x", name]


def test_those_who_write_at_once_share_a_transaction(tmp_path: Path) -> None:
    with contextlib.closing(SqliteCabinet(tmp_path / "cabinet.db")) as cabinet:
        assert commits_of(cabinet, [put("1"), put("2"), put("3")]) == 2
        assert names_in(cabinet) == ["1", "2", "3", "first"]


def test_one_that_fails_among_those_who_write_at_once_fails_alone(tmp_path: Path) -> None:
    def fail(rows: Rows) -> None:
        put("2")(rows)
        raise UsageError("no")

    with contextlib.closing(SqliteCabinet(tmp_path / "cabinet.db")) as cabinet:
        assert commits_of(cabinet, [put("1"), fail, put("3")]) == 3
        assert names_in(cabinet) == ["1", "3", "first"]


def put(name: str) -> Callable[[Rows], None]:
    return lambda rows: rows.put({key_of(b"tt", name): b""})


def names_in(cabinet: Cabinet) -> list[str]:
    return [names_of(key)[0] for key, _ in cabinet.read(lambda rows: rows.scan(b"tt"))]


def commits_of(cabinet: SqliteCabinet, acts: Sequence[Callable[[Rows], None]]) -> int:
    """How many transactions it takes when these come while another one writes."""
    commits: list[None] = []
    cabinet._connection.set_commit_hook(lambda: bool(commits.append(None)))  # type: ignore[func-returns-value]  # noqa: SLF001
    is_in, go_on = threading.Event(), threading.Event()

    def first(rows: Rows) -> None:
        is_in.set()
        assert go_on.wait(60)
        put("first")(rows)

    def write(act: Callable[[Rows], None]) -> None:
        with contextlib.suppress(UsageError):
            cabinet.write(act)

    threads = [threading.Thread(target=write, args=(act,)) for act in (first, *acts)]
    threads[0].start()
    assert is_in.wait(60)
    for thread in threads[1:]:
        thread.start()
    while len(cabinet._waiting) < len(threads):  # noqa: SLF001 - nobody else knows who waits
        clock.sleep(0.001)
    go_on.set()
    for thread in threads:
        thread.join()
    return len(commits)


def test_a_damaged_row_on_a_server_is_refused_and_found() -> None:
    with schema_url() as url, contextlib.closing(open_cabinet(Settings(store=url))) as cabinet:
        cabinet.write(lambda rows: rows.put({key_of(b"tt", "whole"): b"1", key_of(b"tt", "damaged"): b"2"}))
        where = read_location(url)
        with psycopg.connect(where.url, autocommit=True) as connection:
            connection.execute(f"SET search_path TO {where.schema}")
            connection.execute("UPDATE cabinet SET value = 'x' WHERE value = '2'")
        with pytest.raises(CheckpointCorrupt, match="tt damaged"):
            cabinet.read(lambda rows: rows.scan(b"tt"))
        with contextlib.closing(open_store(url, create=False)) as store:
            found = [finding.where for finding in store.check() if isinstance(finding, Finding)]
        assert found == ["cabinet tt damaged"]
