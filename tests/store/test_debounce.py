"""Debounced starts in every store: one untaken run of a key, with the newest arguments, and nothing is lost."""

from __future__ import annotations

import collections
import contextlib
import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from perdure.bodies import Started, read_body
from perdure.records import Kind, Record, RunState
from perdure.store import open_store
from perdure.store.protocol import EVERY, Which
from tests import warm
from tests.postgres import schema_url
from tests.store.journals import AGENT, claimed, debounced, letter, new_run
from tests.store.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.records import Run
    from perdure.store.protocol import Store
    from tests.store.places import Place

ROOT = Path(__file__).parents[2]
PATIENCE = 120.0


def number_of(store: Store, run: Run) -> int:
    """Which start the run executes, as its journal tells, verified."""
    records = store.load_journal(run.run_id)
    first: Record = records[0]
    body: Started = read_body(first)
    assert first.kind == Kind.STARTED
    assert first.arguments == run.arguments
    return int(json.loads(bytes(body.arguments))["number"])


def test_first_start_is_a_run_that_waits_for_another(store: Store, other: Store) -> None:
    before = store.now()
    run = store.debounce_run(debounced(1, quiet=30.0))
    assert other.read_run(run.run_id) == run
    assert (run.state, run.epoch, run.length) == (RunState.QUEUED, 0, 1)
    assert before + 30.0 <= run.wake_at <= store.now() + 30.0
    assert number_of(other, run) == 1


def test_newest_start_replaces_the_arguments_and_keeps_id_and_name(store: Store, other: Store) -> None:
    first = store.debounce_run(debounced(1, at=100.0, tags='{"a":"1"}'))
    second = other.debounce_run(debounced(2, at=200.0, tags='{"a":"2"}', priority=4, queue="mail", tenant="t"))
    assert (second.run_id, second.name, second.created_at) == (first.run_id, first.name, first.created_at)
    assert (second.tags, second.priority, second.queue, second.tenant) == ('{"a":"2"}', 4, "mail", "t")
    assert second.wake_at >= first.wake_at
    assert store.read_run(first.run_id) == second
    assert number_of(store, second) == 2
    assert [run.run_id for run in store.find_runs(Which(), limit=EVERY)] == [first.run_id]
    assert "mail" in [queue.name for queue in store.list_queues()]


def test_run_waits_no_longer_than_it_may_after_the_first_start(store: Store) -> None:
    first = store.debounce_run(debounced(1, quiet=3600.0, most=7200.0))
    second = store.debounce_run(debounced(2, quiet=36000.0, most=7200.0))
    assert second.wake_at == pytest.approx(first.wake_at + 3600.0, abs=0.001)


def test_start_after_the_run_was_taken_is_a_run_of_its_own(store: Store, other: Store) -> None:
    first = store.debounce_run(debounced(1))
    taken = claimed(other, first.run_id)
    second = store.debounce_run(debounced(2))
    assert second.run_id != first.run_id
    assert store.read_run(first.run_id) == taken
    assert (number_of(store, taken), number_of(store, second)) == (1, 2)
    assert second.wake_at > store.now() + 3000.0
    third = store.debounce_run(debounced(3))
    assert third.run_id == second.run_id


def test_run_that_somebody_wrote_to_is_not_replaced(store: Store) -> None:
    first = store.debounce_run(debounced(1))
    store.post(letter(first.run_id))
    assert store.debounce_run(debounced(2)).run_id != first.run_id
    assert number_of(store, first) == 1


def test_keys_and_agents_do_not_meet(store: Store) -> None:
    starts = (debounced(1), debounced(2, key="bob"), debounced(3, agent="shop:other"))
    assert len({store.debounce_run(each).run_id for each in starts}) == 3


def test_start_that_is_sent_again_is_not_a_second_one(store: Store, other: Store) -> None:
    """The answer to it was lost, and meanwhile the run was taken and another start came."""
    lost = debounced(1)
    first = store.debounce_run(lost)
    claimed(other, first.run_id)
    second = other.debounce_run(debounced(2))
    assert store.debounce_run(lost).run_id == first.run_id
    assert number_of(store, second) == 2
    assert store.count_runs(Which()) == 2


def test_start_that_is_sent_again_does_not_come_back_over_a_newer_one(store: Store, other: Store) -> None:
    lost = debounced(1)
    store.debounce_run(lost)
    newer = other.debounce_run(debounced(2))
    assert store.debounce_run(lost) == newer
    assert number_of(store, newer) == 2


def test_damaged_run_is_left_alone_and_the_start_is_not_lost(store: Store, place: Place) -> None:
    first = store.debounce_run(debounced(1))
    place.damage_run(first.run_id, tags="?")
    second = store.debounce_run(debounced(2))
    assert second.run_id != first.run_id
    assert number_of(store, second) == 2


def test_ready_run_that_may_wait_no_longer_keeps_its_place_in_the_queue(store: Store) -> None:
    for tenant in ("t", "t", "u"):
        store.create_run(*new_run(f"other-{tenant}-{store.count_runs(Which())}", tenant=tenant))
    first = store.debounce_run(debounced(1, quiet=0.001, most=0.0, tenant="t"))
    assert store.wake_due(now=first.wake_at + 1) == 1
    ready = store.read_run(first.run_id)
    assert ready is not None
    assert (ready.wake_at, ready.turn) == (0.0, 2)
    again = store.debounce_run(debounced(2, quiet=3600.0, most=0.0, tenant="x"))
    assert (again.wake_at, again.turn, again.tenant) == (0.0, 2, "t")
    assert number_of(store, again) == 2


def test_ready_run_that_may_still_wait_waits_again(store: Store) -> None:
    first = store.debounce_run(debounced(1, quiet=0.001))
    store.wake_due(now=first.wake_at + 1)
    again = store.debounce_run(debounced(2))
    assert again.run_id == first.run_id
    assert again.wake_at > store.now() + 3000.0
    assert again.run_id not in [run.run_id for run in ready_runs(store)]


def test_everything_is_whole_after_many_starts(store: Store, other: Store) -> None:
    for number in range(60):
        (store, other)[number % 2].debounce_run(debounced(number, key=f"k{number % 3}"))
    assert [run.run_id for run in store.check() if hasattr(run, "run_id")] == [f"draft-{number}" for number in range(3)]


def ready_runs(store: Store) -> list[Run]:
    return store.list_ready(agents=[AGENT], now=store.now(), stall_seconds=120.0)


def test_replaced_start_that_an_older_copy_of_the_file_lost_is_noticed(tmp_path: Path) -> None:
    path, copy = tmp_path / "perdure.db", tmp_path / "copy.db"
    for number in (1, 2):
        with _opened(str(path)) as store:
            assert store.debounce_run(debounced(number)).run_id == "draft-1"
        if number == 1:
            shutil.copy(path, copy)
    shutil.copy(copy, path)
    with _opened(str(path)) as store:
        assert store.noticed == 1
        assert len(store.losses()) == 1


@pytest.fixture(params=["sqlite", "postgres"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield str(tmp_path / "perdure.db")
        return
    with schema_url() as url:
        yield url


def test_no_start_is_lost_and_no_two_runs_wait_at_once_while_processes_start_and_take(
    location: str, tmp_path: Path
) -> None:
    """Real processes: starters of one key, and takers who claim whatever is queued, all at the same time."""
    open_store(location).close()
    log = tmp_path / "log.txt"
    starters = [_process("start", location, log, str(number)) for number in range(3)]
    takers = [_process("take", location, log, str(number)) for number in range(2)]
    assert [process.wait(PATIENCE) for process in starters] == [0] * len(starters)
    (tmp_path / "log.txt.done").touch()
    assert [process.wait(PATIENCE) for process in takers] == [0] * len(takers)
    lines = [line.split() for line in log.read_text().splitlines()]
    _check(lines)


@pytest.mark.parametrize("when", ["request", "answer"])
def test_start_whose_answer_was_lost_is_there_once_whatever_happened_meanwhile(when: Any) -> None:
    """While nobody answers, the run is taken and another start comes; then the first one is sent again."""
    with schema_url() as url, Proxy(url) as wire, _opened(wire.url) as store, _opened(url) as other:
        claimed(other, store.debounce_run(debounced(1)).run_id)
        wire.cut_once(when, b"COMMIT")
        wire.is_down = True
        told: list[Run] = []
        sender = threading.Thread(target=lambda: told.append(store.debounce_run(debounced(2))))
        sender.start()
        while not wire.refused:
            sender.join(0.01)
        if when == "answer":
            claimed(other, "draft-2")
        newer = other.debounce_run(debounced(3))
        wire.is_down = False
        sender.join(PATIENCE)
        (run,) = told
        assert wire.cuts == 1
        if when == "answer":
            assert (run.run_id, number_of(other, run)) == ("draft-2", 2)
            assert number_of(other, newer) == 3
        else:
            assert (run.run_id, number_of(other, run)) == (newer.run_id, 2)
        assert other.count_runs(Which()) == (3 if when == "answer" else 2)


@contextlib.contextmanager
def _opened(location: str) -> Iterator[Store]:
    with contextlib.closing(open_store(location)) as store:
        yield store


def _process(role: str, location: str, log: Path, name: str) -> subprocess.Popen[bytes]:
    return warm.Popen([sys.executable, "-m", "tests.store.debouncer", role, location, str(log), name], cwd=ROOT)


def _check(lines: list[list[str]]) -> None:
    begun = {line[1]: place for place, line in enumerate(lines) if line[0] == "begin"}
    acknowledged = {line[1]: (place, line[2]) for place, line in enumerate(lines) if line[0] == "accepted"}
    taken = [(line[1], line[2]) for line in lines if line[0] == "took"]
    executed = dict(taken)
    assert not [line for line in lines if line[0] == "crowd"]
    assert begun.keys() == acknowledged.keys()
    assert max(collections.Counter(run_id for run_id, _ in taken).values()) == 1
    assert {run_id for _, run_id in acknowledged.values()} == executed.keys()
    for number, (_, run_id) in acknowledged.items():
        newest = executed[run_id]
        assert acknowledged[newest][1] == run_id, "a run executes a start that was told another run"
        assert not acknowledged[newest][0] < begun[number], f"start {number} came after {newest}, and was lost"
    assert len(executed) > 1
    assert len(executed) < len(begun)
