"""A worker whose session has ended: it may live, and then it opens a new one before others go on with its runs."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import psycopg
import pytest

from perdure import clock
from perdure.bodies import read_body
from perdure.store.lease import Presence
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.location import read_location
from perdure.store.postgres.presence import RESTART_SECONDS, RETURN_SECONDS, Absences, Seen, life_key
from tests.postgres import schema_url
from tests.store.journals import AGENT, TERMS, claimed, held_run

HOLDS: Final = """
import sys
from perdure.store.postgres import PostgresStore
from tests.store.journals import held_run

store = PostgresStore(sys.argv[1])
held_run(store)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def url() -> Iterator[str]:
    with schema_url() as made:
        yield made


@pytest.fixture
def stores(url: str) -> Iterator[tuple[PostgresStore, PostgresStore]]:
    with contextlib.closing(PostgresStore(url)) as holder, contextlib.closing(PostgresStore(url)) as other:
        yield holder, other


def end_session(url: str, store: PostgresStore) -> None:
    with psycopg.connect(read_location(url).url, autocommit=True) as connection:
        ended = connection.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'"
            " AND ((classid::bigint << 32) | objid::bigint) = %s",
            (life_key(store.join().worker_id),),
        ).fetchall()
    assert ended == [(True,)]


def ready(store: PostgresStore) -> list[str]:
    found: list[Any] = store.list_ready(agents=[AGENT], now=store.now(), stall_seconds=TERMS.stall_seconds)
    return [run.run_id for run in found]


def test_worker_that_opens_a_new_session_keeps_its_runs(url: str, stores: tuple[PostgresStore, PostgresStore]) -> None:
    holder, other = stores
    run = held_run(holder)
    for _ in range(3):
        end_session(url, holder)
        assert ready(other) == []
        holder.read_worker(holder.join().worker_id)
        assert other.is_running(run, stall_seconds=TERMS.stall_seconds)
        assert ready(other) == []


def test_runs_of_a_worker_that_does_not_come_back_go_on_before_its_lease_is_over(
    url: str, stores: tuple[PostgresStore, PostgresStore]
) -> None:
    holder, other = stores
    held_run(holder)
    end_session(url, holder)
    while not ready(other):
        clock.sleep(0.05)
    claimed(other)
    assert read_body(other.load_journal("run-1")[-1]).unproven_seconds > 0


@pytest.mark.parametrize(
    ("returned_at", "patience"),
    [
        pytest.param(0.0, RETURN_SECONDS, id="only its session ended"),
        pytest.param(995.0, RESTART_SECONDS, id="ours ended too: the server was away"),
        pytest.param(900.0, RETURN_SECONDS, id="ours ended long before"),
    ],
)
def test_absent_worker_gets_longer_to_come_back_where_the_server_was_away(
    monkeypatch: pytest.MonkeyPatch, returned_at: float, patience: float
) -> None:
    absences, absent = Absences(), Seen(None, Presence.LOST, 20.0)

    def is_over(seconds: float) -> bool:
        monkeypatch.setattr(clock, "boot_seconds", lambda: 1000.0 + seconds)
        return absences.are_over("worker", absent, returned_at=returned_at)

    assert [is_over(seconds) for seconds in (0.0, patience - 0.01, patience)] == [False, False, True]


def test_line_that_broke_tells_when_it_came_back(url: str, stores: tuple[PostgresStore, PostgresStore]) -> None:
    line = stores[1]._reader  # noqa: SLF001 - what the store goes by
    line.fetch("read_clock")
    assert line.returned_at == 0.0
    with line.use() as connection:
        connection.pgconn.finish()
    line.fetch("read_clock")
    assert 0.0 < line.returned_at <= clock.boot_seconds()


def test_killed_worker_is_known_to_be_dead_before_its_parent_has_asked_how_it_ended(url: str) -> None:
    root = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root / "src"), str(root)))}
    command = [sys.executable, "-P", "-c", HOLDS, url]
    with (
        contextlib.closing(PostgresStore(url)) as other,
        subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder,
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        holder.kill()
        assert holder.stdout.readline() == "", "its files are closed, and nobody has waited for it"
        while not ready(other):
            clock.sleep(0.01)
        claimed(other)
        delivery = read_body(other.load_journal("run-1")[-1])
    assert delivery.before.startswith("its process died")
    assert delivery.unproven_seconds == 0
