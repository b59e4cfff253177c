"""What a worker may take: it asks nobody twice for what was just refused, and leaves nothing that needs no place."""

from __future__ import annotations

from collections import Counter

import pytest

from perdure import clock
from perdure.records import Queue, Run, RunState
from perdure.store.memory import MemoryStore
from perdure.worker.intake import Intake, Search

NOBODY: Counter[str] = Counter()
SEARCH = Search(agents=("a",), stall_seconds=60.0, limit=10)


def run(queue: str = "mail", *, state: RunState = RunState.QUEUED, epoch: int = 0) -> Run:
    return Run("r", "r", "a", b"", "power", 0.0, 0.0, state=state, epoch=epoch, queue=queue)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock's hand."""
    hand = [1000.0]
    monkeypatch.setattr(clock, "boot_seconds", lambda: hand[0])
    return hand


def test_refused_queue_is_asked_again_when_its_time_has_come(now: list[float]) -> None:
    intake = Intake()
    assert intake.admits(run(), NOBODY)
    intake.refuse(run(), 5.0)
    assert not intake.admits(run(), NOBODY)
    assert intake.admits(run("other"), NOBODY)
    now[0] += 4.9
    assert not intake.admits(run(), NOBODY)
    now[0] += 0.2
    assert intake.admits(run(), NOBODY)


def test_run_of_a_dead_process_is_taken_although_its_queue_is_full(now: list[float]) -> None:
    intake = Intake()
    intake.refuse(run(), 5.0)
    intake.refuse(run(epoch=1), 5.0)
    assert intake.admits(run(state=RunState.RUNNING, epoch=1), NOBODY)


def test_missing_token_keeps_only_what_begins(now: list[float]) -> None:
    intake = Intake()
    intake.refuse(run(), 3600.0)
    assert intake.admits(run(state=RunState.WAITING, epoch=2), NOBODY)
    intake.refuse(run(state=RunState.WAITING, epoch=2), 1.0)
    assert not intake.admits(run(state=RunState.WAITING, epoch=2), NOBODY)


def test_run_that_ended_here_opens_its_queue_at_once(now: list[float]) -> None:
    intake = Intake()
    intake.refuse(run(), 60.0)
    intake.refuse(run("other"), 60.0)
    intake.make_room("mail")
    assert intake.admits(run(), NOBODY)
    assert not intake.admits(run("other"), NOBODY)


def test_refusal_without_a_time_is_no_reason_to_ask_without_end(now: list[float]) -> None:
    intake = Intake()
    intake.refuse(run(), 0.0)
    assert not intake.admits(run(), NOBODY)


def test_queue_of_which_this_process_has_enough_is_not_looked_at() -> None:
    store = MemoryStore()
    store.declare_queue(Queue("mail", per_worker=2))
    intake = Intake()
    intake.find(store, SEARCH, NOBODY)
    assert intake.admits(run(), Counter(mail=1))
    assert not intake.admits(run(), Counter(mail=2))
    assert not intake.admits(run(state=RunState.RUNNING, epoch=1), Counter(mail=2))
    assert intake.admits(run("other"), Counter(mail=2))
    assert Intake(["mail"]).find(store, SEARCH, Counter(mail=2)) == []
