"""Many processes with many threads at one queue or bucket: no more are let in than may, and nobody is left out."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from perdure.records import Queue, RunState
from perdure.store import open_store
from tests import warm
from tests.postgres import schema_url
from tests.store.journals import created

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.store.protocol import Store

ROOT = Path(__file__).parents[2]
PROCESSES = 3
RUNS = 24
LIMIT = 5


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "perdure.db")
        return
    with schema_url() as url:
        yield url


@pytest.fixture
def store(location: str) -> Iterator[Store]:
    with contextlib.closing(open_store(location)) as opened:
        yield opened


@contextlib.contextmanager
def crowd(role: str, location: str, count: int) -> Iterator[list[list[str]]]:
    """What each process got; they all begin at one word, and stay until the test has looked."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(_process(role, location, count)) for _ in range(PROCESSES)]
        assert [_heard(child) for child in children] == [["ready"]] * PROCESSES
        for child in children:
            _tell(child)
        yield [_heard(child) for child in children]
        for child in children:
            _tell(child)


def test_many_that_claim_at_once_are_let_in_up_to_the_limit_and_no_further(store: Store, location: str) -> None:
    _fill(store, concurrency=LIMIT)
    with crowd("claim", location, 2) as got:
        held = [run_id for ids in got for run_id in ids]
        running = [run for run in store.list_runs() if run.state == RunState.RUNNING]
    assert len(held) == len(set(held)) == LIMIT
    assert {run.run_id for run in running} == set(held)


def test_many_that_work_at_once_complete_every_run_once_and_never_crowd(store: Store, location: str) -> None:
    _fill(store, concurrency=LIMIT)
    with crowd("work", location, LIMIT) as got:
        done = Counter(run_id for ids in got for run_id in ids)
    assert done == Counter({f"run-{number}": 1 for number in range(RUNS)})


def test_many_that_claim_at_once_take_a_token_each_and_no_more_than_there_are(store: Store, location: str) -> None:
    _fill(store, rate=1e-6, burst=LIMIT)
    with crowd("claim", location, 1) as got:
        held = [run_id for ids in got for run_id in ids]
    assert len(held) == LIMIT


def test_many_that_take_at_once_get_what_the_bucket_holds_and_no_more(store: Store, location: str) -> None:
    store.join()
    with crowd("take", location, 20) as got:
        tokens = [token for taken in got for token in taken]
    assert len(tokens) == 50


def _fill(store: Store, **limits: float) -> None:
    store.declare_queue(Queue("mail", **limits))  # type: ignore[arg-type]
    for number in range(RUNS):
        created(store, f"run-{number}", queue="mail")


@contextlib.contextmanager
def _process(role: str, location: str, count: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "tests.store.crowd", role, location, str(count)]
    with warm.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            yield child
        finally:
            assert child.stdin is not None
            child.stdin.close()
            child.wait()


def _tell(child: subprocess.Popen[str]) -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


def _heard(child: subprocess.Popen[str]) -> list[str]:
    assert child.stdout is not None
    return child.stdout.readline().split()
