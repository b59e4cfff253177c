"""What is sent to a run while it goes on as another one reaches that one: no signal, cancel or pause falls between."""

from __future__ import annotations

import asyncio
import getpass
import threading
from typing import Any

import pytest

import perdure
from perdure import events
from perdure.engine.session import session
from perdure.engine.whereabouts import hand_on, previous_id
from perdure.errors import JournalDiverged, NotInRun, RunCancelled, RunDeaf, RunWaits, UsageError
from perdure.records import Mail
from tests.engine.journals import newest_run, run_of, state_of
from tests.engine.world import world

PATIENCE = 60.0
SIGNALS = 50
LAST_ROUND = 2000


@perdure.step
def work(label: str) -> str:
    world.note(label)
    return label


@perdure.agent
def listener(round_number: int) -> int:
    world.note(str(perdure.wait_for("tick")))
    if round_number == SIGNALS:
        return round_number
    return perdure.restart_with(round_number + 1)


@perdure.agent
def runner(round_number: int) -> int:
    work(f"round {round_number}")
    if round_number == LAST_ROUND:
        return round_number
    return perdure.restart_with(round_number + 1)


def test_signals_sent_while_the_run_restarts_all_arrive_once_and_in_order() -> None:
    handle = perdure.start(listener, 1, run_id="r")
    for number in range(SIGNALS):
        perdure.signal("r", "tick", number)
    assert handle.result(PATIENCE) == SIGNALS
    assert world.lines == [str(number) for number in range(SIGNALS)]


def test_a_signal_that_finds_the_run_just_before_it_restarts_reaches_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sender asks the system who it is between finding the run and writing to it: that moment is stretched here."""
    restarted = threading.Event()

    def slow_user() -> str:
        if not restarted.is_set():
            perdure.signal("r", "tick", "first", by="somebody quicker")
            assert restarted.wait(PATIENCE)
        return "ada"

    @perdure.agent
    def twice(round_number: int) -> str:
        heard = str(perdure.wait_for("tick"))
        return heard if round_number == 2 else perdure.restart_with(2)

    handle = perdure.start(twice, 1, run_id="r")
    end = perdure.subscribe(
        lambda event: restarted.set() if event.run_id == "r" and event.state == "completed" else None,  # type: ignore[union-attr]
        events.RunEnded,
    )
    monkeypatch.setattr(getpass, "getuser", slow_user)
    perdure.signal("r", "tick", "second")
    assert handle.result(PATIENCE) == "second"
    end()


def test_a_signal_that_is_written_when_the_next_run_has_long_been_loaded_reaches_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The same moment, stretched until nobody hands anything on any more: only who writes can tell that none reads."""
    waits = threading.Event()

    def slow_user() -> str:
        if not waits.is_set():
            perdure.signal("r", "tick", "first", by="somebody quicker")
            assert waits.wait(PATIENCE)
        return "ada"

    @perdure.agent
    def twice(round_number: int) -> str:
        heard = str(perdure.wait_for("tick"))
        return heard if round_number == 2 else perdure.restart_with(2)

    handle = perdure.start(twice, 1, run_id="r")
    end = perdure.subscribe(
        lambda event: waits.set() if event.run_id == "r~2" else None,  # type: ignore[union-attr]
        events.WaitOpened,
    )
    monkeypatch.setattr(getpass, "getuser", slow_user)
    perdure.signal("r", "tick", "second")
    end()
    assert [mail.body for mail in session().store.read_mail("r") if "second" in mail.body] == []
    assert handle.result(PATIENCE) == "second"


@pytest.mark.parametrize("attempt", range(5))
def test_a_cancel_while_the_run_restarts_is_heeded(attempt: int) -> None:
    seen = threading.Event()
    end = perdure.subscribe(lambda event: seen.set() if len(world.lines) > 3 + attempt else None)
    handle = perdure.start(runner, 1, run_id="r")
    assert seen.wait(PATIENCE)
    end()
    perdure.cancel("r")
    with pytest.raises(RunCancelled):
        handle.result(PATIENCE)
    assert len(world.lines) < LAST_ROUND


def test_mail_left_behind_by_a_kill_is_found_when_the_next_run_is_loaded() -> None:
    @perdure.agent
    def first(number: int) -> Any:
        if number == 1:
            perdure.restart_with(2)
        return perdure.wait_for("tick")

    with pytest.raises(RunWaits):
        perdure.run(first, 1, run_id="r")
    store = session().store
    store.post(Mail(0, "r", "signal", "tick", '{"payload":7}', "ada", 1.0))  # as if posted before the end of the first
    assert perdure.run(first, 1, run_id="r") == 7
    hand_on(store, "r", "r~2")
    assert [mail.kind for mail in store.read_mail("r~2")] == ["signal"]


def test_nobody_writes_to_a_run_that_has_finished() -> None:
    @perdure.agent
    def done() -> str:
        return work("done")

    perdure.run(done, run_id="r")
    with pytest.raises(RunDeaf):
        session().store.post(Mail(0, "r", "signal", "x", "{}", "ada", 1.0), heard=True)
    with pytest.raises(UsageError, match="completed"):
        perdure.signal("r", "x")
    with pytest.raises(UsageError, match="completed"):
        perdure.cancel("r")
    with pytest.raises(UsageError, match="completed"):
        perdure.pause("r")


@pytest.mark.parametrize(("run_id", "before"), [("r", ""), ("r~2", "r"), ("r~3", "r~2"), ("r~1", ""), ("r~x", "")])
def test_the_id_before(run_id: str, before: str) -> None:
    assert previous_id(run_id) == before


def test_a_new_run_cannot_take_the_id_of_one_that_goes_on_for_another() -> None:
    with pytest.raises(UsageError, match="goes on for another"):
        perdure.run(runner, LAST_ROUND, run_id="r~2")


@pytest.mark.parametrize("run", [None, "", 5])
def test_no_run_is_not_the_newest_run(run: Any) -> None:
    with pytest.raises(RunWaits):
        perdure.run(listener, 1, run_id="r")
    for act in (perdure.cancel, perdure.pause, perdure.unpause, lambda run: perdure.signal(run, "tick")):
        with pytest.raises(UsageError, match="is no run"):
            act(run)
    assert state_of("r") == "waiting (signal)"


@perdure.effect(approve=True)
async def pay(order: dict[str, int]) -> str:
    world.note(f"paid {order['cents']}")
    return "paid"


def test_an_approval_holds_for_the_arguments_that_were_asked_about_whatever_changes_them() -> None:
    order = {"cents": 100}

    @perdure.agent
    async def agent() -> list[Any]:
        order["cents"] = 100

        async def meddle() -> None:
            await asyncio.sleep(0)
            work("meddle")
            order["cents"] = 99999

        return list(await asyncio.gather(pay(order), meddle()))

    with pytest.raises(RunWaits, match="100"):
        perdure.run(agent, run_id="r")
    perdure.answer("r", "approve")
    perdure.run(agent, run_id="r")
    assert world.lines[-1] == "paid 100"


def test_each_attempt_of_an_effect_gets_the_arguments_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perdure.clock.sleep", lambda _: None)

    @perdure.effect(keyed=True)
    def send(order: dict[str, int]) -> str:
        world.note(f"sent {order['n']}")
        order["n"] += 1
        if world.count("sent 1") < 3:
            raise TimeoutError("no answer")
        return "sent"

    @perdure.agent
    def agent() -> str:
        return send({"n": 1})

    assert perdure.run(agent) == "sent"
    assert world.lines == ["sent 1"] * 3


def test_an_effect_that_needs_an_approval_is_not_performed_outside_a_run() -> None:
    with pytest.raises(NotInRun, match="needs an approval"):
        asyncio.run(pay({"cents": 5}))
    assert world.lines == []


def test_an_approval_for_other_arguments_parks_with_both_calls_in_words() -> None:
    amount = [100]

    @perdure.agent
    async def agent() -> str:
        return await pay({"cents": amount[0]})

    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    perdure.answer("r", "approve")
    amount[0] = 999
    with pytest.raises(JournalDiverged) as parked:
        perdure.run(agent, run_id="r")
    assert "approve pay(order={'cents': 100})" in parked.value.message
    assert "approve pay(order={'cents': 999})" in parked.value.message
    assert world.lines == []


def test_a_parent_whose_children_move_is_not_parked_for_its_deaths() -> None:
    """Its own journal stands still while it waits for them; it is not the one that ends its workers."""

    @perdure.agent
    def child(number: int) -> int:
        for index in range(6):
            work(f"{number}.{index}")
            world.moment(f"{number}.{index}")
            threading.Event().wait(1.2 if index else 0)  # the parent looks once a second
        return number

    @perdure.agent
    def parent() -> int:
        return perdure.start(child, 1).result()

    for index in (1, 2, 3, 4):
        world.killed_at(f"1.{index}", lambda: perdure.run(parent, run_id="p"))
    assert perdure.run(parent, run_id="p") == 1
    assert world.lines == [f"1.{index}" for index in range(6)]
    assert run_of("p").deliveries == 0
    assert newest_run().state == "completed"
