"""How many runs stand where in each queue, over every store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from perdure.records import Queue, RunState
from perdure.store.protocol import Crowd, Which
from tests.store.journals import claimed, created, ending, held_run, land

if TYPE_CHECKING:
    from perdure.store.protocol import Store


def test_queues_are_counted_by_where_their_runs_stand(store: Store) -> None:
    mail = Queue("mail", concurrency=3, per_worker=2)
    store.declare_queue(mail)
    created(store, "old", queue="mail", at=100.0)
    created(store, "new", queue="mail", at=200.0)
    created(store, "late", queue="mail", wake_at=9e9)
    held_run(store, "held", queue="mail")
    land(store, ending(held_run(store, "done", queue="mail")))
    land(store, ending(held_run(store, "waits", queue="mail"), RunState.WAITING))
    created(store, "other", queue="bulk", at=50.0)
    assert store.count_queues() == [
        Crowd(Queue("bulk"), ready=1, oldest_at=50.0),
        Crowd(Queue("default")),
        Crowd(mail, ready=2, delayed=1, running=1, oldest_at=100.0),
    ]


def test_time_until_the_next_token_is_told(store: Store) -> None:
    store.declare_queue(Queue("mail", rate=0.001, burst=2))
    store.declare_queue(Queue("post", rate=0.001, burst=1, bucket="shared"))
    for number in range(3):
        created(store, f"run-{number}", queue="mail")
    assert [crowd.token_seconds for crowd in store.count_queues()] == [0, 0, 0]
    claimed(store, "run-0")
    claimed(store, "run-1")
    store.take_tokens("shared", rate=0.001, burst=1)
    seconds = {crowd.queue.name: crowd.token_seconds for crowd in store.count_queues()}
    assert seconds["default"] == 0
    assert 900 < seconds["mail"] <= 1000
    assert 900 < seconds["post"] <= 1000


@pytest.mark.parametrize(
    ("which", "found"),
    [
        (Which(queue="mail"), ["c", "a"]),
        (Which(tenant="ada"), ["b", "a"]),
        (Which(queue="mail", tenant="ada"), ["a"]),
        (Which(queue="mail", tenant="ada", states=("running",)), []),
        (Which(queue="mai"), []),
        (Which(queue="mail' OR '1'='1"), []),
    ],
)
def test_runs_are_found_by_queue_and_tenant(store: Store, which: Which, found: list[str]) -> None:
    created(store, "a", queue="mail", tenant="ada", at=1.0)
    created(store, "b", queue="bulk", tenant="ada", at=2.0)
    created(store, "c", queue="mail", tenant="bob", at=3.0)
    assert [run.run_id for run in store.find_runs(which)] == found
    assert store.count_runs(which) == len(found)
