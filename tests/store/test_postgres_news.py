"""News hasten and carry nothing: whoever waits is woken where that is possible, and comes to an end where it is not."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from perdure import clock
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.location import read_location
from perdure.store.protocol import ANYTHING, Store
from tests.postgres import schema_url
from tests.store.journals import created, held_run, letter, outcome_of, step

LONG = 60.0


@pytest.fixture
def url() -> Iterator[str]:
    with schema_url() as made:
        yield made


@pytest.fixture
def opened(url: str) -> Iterator[Any]:
    with contextlib.ExitStack() as stack:
        yield lambda where=url: stack.enter_context(contextlib.closing(PostgresStore(where)))


def listening(store: Store) -> None:
    """The first news of a new line are that anything may have happened before."""
    assert store.wait_for_news(LONG) == ANYTHING


def heard(store: Store) -> set[str]:
    """What is heard until nothing more comes for a moment."""
    found: set[str] = set()
    seconds = LONG
    while runs := store.wait_for_news(seconds):
        found |= runs
        seconds = 0.5
    return found


def sessions(url: str, statement: str) -> list[Any]:
    with psycopg.connect(read_location(url).url, autocommit=True) as connection:
        return connection.execute(statement, (f"LISTEN perdure_{read_location(url).schema}%",)).fetchall()


LISTENERS = "SELECT pid FROM pg_stat_activity WHERE query LIKE %s"
ENDED = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE %s"


def test_waiting_for_news_ends_by_itself(store: Store) -> None:
    assert store.wait_for_news(0.01) <= ANYTHING
    assert store.wait_for_news(0.01) == frozenset()


def test_accepted_run_and_mail_wake_whoever_waits(opened: Any) -> None:
    waiting, other = opened(), opened()
    listening(waiting)
    with ThreadPoolExecutor(1) as pool:
        woken = pool.submit(waiting.wait_for_news, LONG)
        created(other)
        assert woken.result(LONG) == {"run-1"}
        woken = pool.submit(waiting.wait_for_news, LONG)
        other.post(letter())
        assert woken.result(LONG) == {"run-1"}


def test_steps_are_not_told_of(opened: Any) -> None:
    waiting, other = opened(), opened()
    listening(waiting)
    run = held_run(other)
    assert heard(waiting) == {"run-1"}
    for _ in range(20):
        append = step(run)
        assert outcome_of(other, append) is None
        run = append.run
    created(other, "run-2")
    assert heard(waiting) == {"run-2"}


def test_line_that_was_lost_is_opened_anew(url: str, opened: Any) -> None:
    waiting, other = opened(), opened()
    listening(waiting)
    (before,) = sessions(url, LISTENERS)
    with ThreadPoolExecutor(1) as pool:
        lost = pool.submit(waiting.wait_for_news, LONG)
        assert sessions(url, ENDED) == [(True,)]
        assert lost.result(LONG) == frozenset()
    assert waiting.wait_for_news(LONG) == ANYTHING
    assert sessions(url, LISTENERS) != [before]
    created(other)
    assert heard(waiting) == {"run-1"}


def test_closed_store_lets_go_of_whoever_waits(opened: Any) -> None:
    waiting = opened()
    listening(waiting)
    with ThreadPoolExecutor(1) as pool:
        woken = pool.submit(waiting.wait_for_news, LONG)
        waiting.close()
        assert woken.result(LONG) == frozenset()


def test_portable_store_neither_listens_nor_tells() -> None:
    with schema_url(options="portable=true") as url, contextlib.ExitStack() as stack:
        waiting, other = (stack.enter_context(contextlib.closing(PostgresStore(url))) for _ in range(2))
        created(other)
        assert waiting.wait_for_news(0.1) == frozenset()
        assert sessions(url, LISTENERS) == []


def test_more_runs_than_one_notification_can_name_are_anything(opened: Any) -> None:
    waiting, other = opened(), opened()
    listening(waiting)
    other._news.tell([f"run-{number}-{'x' * 90}" for number in range(200)])  # noqa: SLF001 - as a large batch would
    assert waiting.wait_for_news(LONG) == ANYTHING


@pytest.mark.parametrize("told", range(12))
def test_what_was_told_last_is_heard_and_nobody_is_left_telling(opened: Any, told: int) -> None:
    """However far the one who tells has come when the store is closed."""
    before = set(threading.enumerate())
    ear, mouth = opened(), opened()
    listening(ear)
    with contextlib.closing(mouth):
        created(mouth, f"r{told}")
        clock.sleep(told / 4000)
    assert f"r{told}" in heard(ear)
    assert "perdure-news" not in [thread.name for thread in set(threading.enumerate()) - before]
