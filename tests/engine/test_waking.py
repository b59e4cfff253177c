"""A parent of queued children is never left asleep: not by a child that ends between its look and its decision."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import perdure
from perdure.engine import child, ending
from perdure.engine.active import Active
from perdure.engine.agent import spec_of
from perdure.engine.child import ForChild
from perdure.engine.session import session
from perdure.worker import Limits, Worker
from tests.engine.journals import state_of

PATIENCE = 60.0


@perdure.step
def work(label: str) -> str:
    return f"{label}!"


@perdure.agent
def young(label: str) -> str:
    return work(label)


@perdure.agent
def old(label: str) -> str:
    return perdure.start(young, label, queue="mail").result()


class Meeting:
    """A child that stops after it told its parent that it ends, until the test lets it go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.told, self.may_end = threading.Event(), threading.Event()
        self._monkeypatch = monkeypatch
        told = ending._tell_parent  # noqa: SLF001 - the moment between telling and ending has no other name

        def tell_and_stop(active: Active) -> None:
            told(active)
            if active.row.agent == spec_of(young).name:
                self.told.set()
                assert self.may_end.wait(PATIENCE)

        monkeypatch.setattr(ending, "_tell_parent", tell_and_stop)
        self.parents, self.children = (_worker(agent) for agent in (old, young))

    def begin(self) -> None:
        """The parent has started its child and left memory; the child has told it that it ends, and has not ended."""
        perdure.start(old, "a", queue="mail", run_id="p")
        _work(self.parents)
        assert state_of("p") == "waiting (child)"
        assert self.children._look()  # noqa: SLF001 - one that works until it is told to drain is no use here
        assert self.told.wait(PATIENCE)

    def end_child(self) -> None:
        """Let the child end; it is on record when this returns."""
        self.may_end.set()
        _work(self.children)

    def before(self, owner: type, name: str, action: Callable[[], None]) -> None:
        """Do this before the parent does that."""
        original: Callable[..., Any] = getattr(owner, name)

        def do_both(*args: Any) -> Any:
            action()
            return original(*args)

        self._monkeypatch.setattr(owner, name, do_both)

    def after(self, owner: type, name: str, action: Callable[[Any], None]) -> None:
        """Do this with what came of it after the parent did that."""
        original: Callable[..., Any] = getattr(owner, name)

        def do_both(*args: Any) -> Any:
            done = original(*args)
            action(done)
            return done

        self._monkeypatch.setattr(owner, name, do_both)


def _worker(agent: Callable[..., Any]) -> Worker:
    return Worker(session(), {spec_of(agent).name: spec_of(agent)}, Limits())


def _work(worker: Worker) -> None:
    """Let a worker do everything that it may."""
    while worker.moving() or worker._look():  # noqa: SLF001
        worker._changed.wait(0.01)  # noqa: SLF001


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Iterator[Meeting]:
    monkeypatch.setattr(child, "AGAIN_SECONDS", 300.0)  # a parent that comes back by itself would hide that it left
    monkeypatch.setattr(child, "STAY_SECONDS", 0.0)  # and so would one that stays because it has only just come
    made = Meeting(monkeypatch)
    yield made
    made.may_end.set()


def test_parent_gets_the_result_of_a_child_that_ends_between_its_look_and_its_decision(meeting: Meeting) -> None:
    meeting.begin()
    looked, ended = threading.Event(), threading.Event()

    def stop() -> None:
        looked.set()
        assert ended.wait(PATIENCE)

    meeting.before(ForChild, "standing", stop)
    assert meeting.parents._look()  # noqa: SLF001
    assert looked.wait(PATIENCE)
    meeting.end_child()
    ended.set()
    _work(meeting.parents)
    assert state_of("p") == "completed"


def test_parent_gets_the_result_of_a_child_that_ends_after_its_decision(meeting: Meeting) -> None:
    meeting.begin()
    decided, leaves = threading.Event(), []

    def decide(may_leave: bool) -> None:
        leaves.append(may_leave)
        decided.set()

    meeting.after(Active, "may_leave", decide)
    assert meeting.parents._look()  # noqa: SLF001
    assert decided.wait(PATIENCE)
    while leaves[-1] and meeting.parents.moving():  # it leaves: the child ends when it has left
        meeting.parents._changed.wait(0.01)  # noqa: SLF001
    meeting.end_child()
    _work(meeting.parents)
    assert state_of("p") == "completed"
