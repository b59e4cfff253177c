"""A run that a process was given, or may have been given, and does not execute: it is given back, and no other is."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure.engine.agent import resume, spec_of
from perdure.engine.ending import queue_anew
from perdure.engine.execute import to_pause
from perdure.engine.lifecycle import open_run
from perdure.engine.scope import carriers
from perdure.engine.session import Session, session
from perdure.errors import RunWaits, StoreUnavailable
from perdure.records import Run
from perdure.store.protocol import Terms
from tests.engine.journals import run_of, state_of
from tests.engine.world import world

LOOKS = 100


@perdure.step
def work(label: str) -> str:
    world.note(label)
    return label


@perdure.agent
def plain(label: str) -> str:
    return work(label) + "!"


@perdure.agent
def breaks() -> str:
    raise ValueError("no")


@perdure.agent
def asks(label: str) -> str:
    work(label)
    return perdure.ask("Go on?", options=["on", "off"]).choice


def away() -> StoreUnavailable:
    return StoreUnavailable("The store is away.", safe="what it has stands.", hint="try again")


def losing_answers(monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    """From now on the store does what this verb asks for, and its answer never arrives."""
    kind = type(session().store)
    right: Callable[..., Any] = getattr(kind, verb)

    def lost(*args: Any, **kwargs: Any) -> Any:
        right(*args, **kwargs)
        raise away()

    monkeypatch.setattr(kind, verb, lost)


def until_given_back(run_id: str) -> Run:
    """The run once this process has let go of it."""
    for _ in range(LOOKS):
        session().give_back()
        if not run_of(run_id).holder:
            return run_of(run_id)
    raise AssertionError(run_of(run_id))


def executed_by_another(agent: Any, run_id: str) -> None:
    """Another worker takes the run and executes it for as long as it goes."""
    other, spec = Session(session().settings), spec_of(agent)
    with contextlib.closing(other), contextlib.suppress(RunWaits):
        to_pause(other, spec, open_run(other, spec, run_of(run_id)))


def test_run_whose_claim_was_not_answered_is_given_back_and_the_delivery_forgiven(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    handle = perdure.start(plain, "a", queue="mail")
    with monkeypatch.context() as patch:
        losing_answers(patch, "claim_run")
        with pytest.raises(StoreUnavailable):
            session().claim(handle.run_id)
    assert run_of(handle.run_id).holder == session().store.join().worker_id
    given_back = until_given_back(handle.run_id)
    assert (given_back.state, given_back.deliveries) == ("queued", 0)
    assert world.elsewhere(lambda: resume(plain, run_of(handle.run_id), waits=False)) == 0
    assert handle.result() == "a!"


def test_run_whose_acceptance_was_not_answered_can_be_taken_by_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        losing_answers(patch, "create_run")
        with pytest.raises(StoreUnavailable):
            perdure.run(plain, "a", run_id="r")
    assert until_given_back("r").state == "queued"
    assert world.elsewhere(lambda: perdure.run(plain, "a", run_id="r")) == 0
    assert (state_of("r"), world.lines) == ("completed", ["a"])


def test_failed_run_that_cannot_be_loaded_to_be_queued_anew_is_released_once(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="no"):
        perdure.run(breaks, run_id="r")
    failed, before = run_of("r"), carriers._active  # noqa: SLF001 - what keeps threads of runs part of them

    def away_again(*_: Any) -> None:
        raise away()

    with monkeypatch.context() as patch:
        patch.setattr(type(session().store), "load_journal", away_again)
        with pytest.raises(StoreUnavailable):
            queue_anew(session(), failed)
    assert carriers._active == before  # noqa: SLF001 - as above
    assert until_given_back("r").state == "queued"


@pytest.mark.parametrize(("agent", "state"), [(plain, "completed"), (asks, "waiting (human)")])
def test_run_that_somebody_took_before_it_could_be_given_back_stays_as_it_is_there(
    monkeypatch: pytest.MonkeyPatch, agent: Any, state: str
) -> None:
    handle = perdure.start(agent, "a", queue="mail")
    kind = type(session().store)
    right = kind.claim_run
    with monkeypatch.context() as patch:
        losing_answers(patch, "claim_run")
        with pytest.raises(StoreUnavailable):
            session().claim(handle.run_id)
    taken: list[str] = []

    def claimed_late(self: Any, run_id: str, worker_id: str, terms: Terms) -> Run:
        if not taken:  # this process stood still here, for so long that it was taken for dead
            taken.append(run_id)
            self.record_death(worker_id, "out of sight")
            executed_by_another(agent, run_id)
        return right(self, run_id, worker_id, terms)

    monkeypatch.setattr(kind, "claim_run", claimed_late)
    for _ in range(LOOKS):
        session().give_back()
    assert taken == [handle.run_id]
    assert state_of(handle.run_id) == state
    assert world.lines == ["a"]
