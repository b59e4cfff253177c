"""What others ask of a run, and what a run says of itself: cancel, pause, tags and progress."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest

import perdure
from perdure import clock
from perdure.engine import upkeep
from perdure.engine.child import child_id
from perdure.engine.scope import current_frame
from perdure.engine.session import session
from perdure.errors import (
    LeaseLost,
    NotInRun,
    RunCancelled,
    RunHeld,
    RunPaused,
    RunWaits,
    StoreUnavailable,
    UnknownRun,
    UsageError,
)
from perdure.events import Observable, Progressed, RunEnded
from perdure.records import Kind, Mail
from perdure.store.lease import read_park
from tests.engine.journals import bodies_of, records_of, run_of, runs, state_of
from tests.engine.letters import open_effects
from tests.engine.world import world
from tests.waits.watching import watching

PATIENCE = 60.0


@perdure.step
def work(label: str) -> str:
    world.note(label)
    world.moment(label)
    return label


@perdure.effect
def send(to: str) -> str:
    world.note(f"sent to {to}")
    return to


@perdure.agent
def asks() -> str:
    work("asking")
    perdure.ask("Go on?", options=["yes"])
    return send("ada")


class Gate:
    """A step of an agent under test that tells when it has begun, and ends when it is let go."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.go_on = threading.Event()

    def hold(self) -> str:
        self.begun.set()
        assert self.go_on.wait(PATIENCE)
        return "held"


def _gated() -> tuple[Gate, Callable[[], str], Any]:
    """An agent, sync and async, whose first step waits at a gate."""
    gate = Gate()

    @perdure.step
    def first() -> str:
        return gate.hold()

    @perdure.step
    async def first_async() -> str:
        return await asyncio.to_thread(gate.hold)

    @perdure.agent
    def slow() -> str:
        found = first()
        return found + work("second") + send("ada")

    @perdure.agent
    async def slow_async() -> str:
        found = await first_async()
        return found + work("second") + send("ada")

    return gate, slow, slow_async


BOTH = pytest.mark.parametrize("is_async", [False, True], ids=["sync", "async"])


# ------------------------------------------------------------------------------------------------------------ cancel


@BOTH
def test_a_running_run_ends_at_its_next_step_and_no_effect_follows(is_async: bool) -> None:
    gate, slow, slow_async = _gated()
    handle = perdure.start(slow_async if is_async else slow, run_id="r")
    assert gate.begun.wait(PATIENCE)
    perdure.cancel("r", by="ada")
    gate.go_on.set()
    with pytest.raises(RunCancelled):
        handle.result(PATIENCE)
    assert (state_of("r"), handle.status()) == ("cancelled", "cancelled")
    assert world.lines == []
    assert [mail.by for mail in session().store.read_mail("r") if mail.taken] == ["ada"]
    with pytest.raises(UsageError, match="was cancelled"):
        perdure.run(slow_async if is_async else slow, run_id="r")


def test_an_interrupt_that_comes_when_the_agent_has_returned_does_not_hit_the_writing_of_its_end() -> None:
    @perdure.agent
    async def ends_at_once() -> str:
        frame = current_frame()
        assert frame is not None
        assert frame.active is not None
        assert frame.active.interrupt is not None
        frame.active.interrupt()
        return "ended"

    assert perdure.run(ends_at_once, run_id="r") == "ended"
    assert state_of("r") == "completed"


@pytest.mark.parametrize("refusal", [LeaseLost("taken"), StoreUnavailable("away")], ids=["lease lost", "store away"])
def test_who_cancels_is_not_hit_by_what_keeps_the_end_from_being_written(
    monkeypatch: pytest.MonkeyPatch, refusal: BaseException
) -> None:
    with pytest.raises(RunWaits):
        perdure.run(asks, run_id="r")
    with monkeypatch.context() as patch:
        patch.setattr(type(session().store), "append_all", lambda self, batch, power: [refusal] * len(batch))
        perdure.cancel("r", by="ada")
    while state_of("r") == "running":
        session().give_back()
        with contextlib.suppress(RunHeld, RunCancelled):
            perdure.run(asks, run_id="r")
    assert state_of("r") == "cancelled"
    assert world.lines == ["asking"]


@pytest.mark.parametrize(("verb", "state"), [("cancel", "cancelled"), ("pause", "waiting (parked)")])
def test_no_effect_begins_after_the_run_was_asked_to_stop(
    monkeypatch: pytest.MonkeyPatch, verb: Any, state: str
) -> None:
    """The thread that looks for mail now and then never comes by: the effect itself looks."""
    monkeypatch.setattr(upkeep, "TICK_SECONDS", PATIENCE)
    perdure.configure(renew_seconds=PATIENCE, stall_seconds=10 * PATIENCE, lease_seconds=10 * PATIENCE)

    @perdure.agent
    def payer() -> str:
        send("ada")
        session().store.post(Mail(0, "r", verb, "", "{}", "ops", clock.wall_seconds()))
        return send("grace")

    with pytest.raises((RunCancelled, RunPaused)):
        perdure.run(payer, run_id="r")
    assert world.lines == ["sent to ada"]
    assert state_of("r") == state
    assert open_effects("r") == []


@BOTH
def test_a_cancelled_run_does_nothing_more_in_what_it_does_finally(is_async: bool) -> None:
    gate, _, _ = _gated()

    @perdure.step
    def first() -> str:
        return gate.hold()

    @perdure.agent
    def tidies() -> str:
        try:
            return first() + work("second")
        finally:
            send("ada")

    @perdure.agent
    async def tidies_async() -> str:
        try:
            await asyncio.to_thread(gate.hold)
            return work("second")
        except BaseException:
            send("bob")
            raise
        finally:
            send("ada")

    chosen: Any = tidies_async if is_async else tidies
    handle = perdure.start(chosen, run_id="r")
    assert gate.begun.wait(PATIENCE)
    handle.cancel()
    gate.go_on.set()
    with pytest.raises(RunCancelled):
        handle.result(PATIENCE)
    assert world.lines == []
    assert records_of("r", Kind.INTENT) == []


def test_an_async_body_that_does_not_end_within_its_grace_is_cut_off() -> None:
    perdure.configure(cancel_grace_seconds=0.1)
    begun, cut_off = threading.Event(), threading.Event()

    @perdure.step
    async def hangs() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut_off.set()
            raise
        return "never"

    @perdure.agent
    async def stuck() -> str:
        return await hangs() + send("ada")

    handle = perdure.start(stuck, run_id="r")
    assert begun.wait(PATIENCE)
    handle.cancel()
    with pytest.raises(RunCancelled):
        handle.result(PATIENCE)
    assert cut_off.is_set()
    assert state_of("r") == "cancelled"
    assert world.lines == []


def test_an_agent_that_hangs_between_its_steps_is_cut_off_too() -> None:
    perdure.configure(cancel_grace_seconds=0.0)
    begun = threading.Event()

    @perdure.agent
    async def stuck() -> str:
        work("first")
        begun.set()
        await asyncio.Event().wait()
        return send("ada")

    handle = perdure.start(stuck, run_id="r")
    assert begun.wait(PATIENCE)
    handle.cancel()
    with pytest.raises(RunCancelled):
        handle.result(PATIENCE)
    assert (state_of("r"), world.lines) == ("cancelled", ["first"])


def test_a_pause_cuts_nothing_off_so_that_no_effect_is_left_in_doubt() -> None:
    perdure.configure(cancel_grace_seconds=0.0)
    begun, go_on = threading.Event(), threading.Event()

    @perdure.effect
    async def slow_send(to: str) -> str:
        begun.set()
        assert await asyncio.to_thread(go_on.wait, PATIENCE)
        world.note(f"slowly sent to {to}")
        return to

    @perdure.agent
    async def agent() -> str:
        return await slow_send("ada") + work("second")

    with watching() as watch:
        handle = perdure.start(agent, run_id="r")
        assert begun.wait(PATIENCE)
        perdure.pause("r")
        for _ in range(3):
            session().deliver_mail()
        go_on.set()
        watch.until_ended("r", "waiting (parked)")
        assert open_effects("r") == []
        assert world.lines == ["slowly sent to ada"]
        perdure.unpause("r")
        assert handle.result(PATIENCE) == "adasecond"
    assert world.lines == ["slowly sent to ada", "second"]


def test_a_run_that_waits_for_a_person_is_ended_at_once() -> None:
    with pytest.raises(RunWaits):
        perdure.run(asks, run_id="r")
    perdure.cancel(run_of("r").name)
    assert state_of("r") == "cancelled"
    with pytest.raises(UsageError, match="it no longer asks"):
        perdure.answer("r", "yes")
    with pytest.raises(UsageError, match="was cancelled"):
        perdure.run(asks, run_id="r")
    assert world.lines == ["asking"]


def test_a_run_whose_process_died_is_ended_at_once() -> None:
    world.killed_at("asking", lambda: perdure.run(asks, run_id="r"))
    perdure.cancel("r")
    assert (state_of("r"), run_of("r").holder) == ("cancelled", "")
    assert world.lines == ["asking"]


def test_a_waiting_handle_is_cancelled_at_once() -> None:
    with watching() as watch:
        handle = perdure.start(asks, run_id="r")
        watch.until_ended("r", "waiting (human)")
        handle.cancel()
        assert handle.status() == "cancelled"
        with pytest.raises((RunCancelled, UsageError), match="was cancelled"):
            handle.result(PATIENCE)
    assert world.lines == ["asking"]


def test_a_run_held_by_another_process_hears_of_it_there(tmp_path: Any) -> None:
    begun = tmp_path / "begun"

    @perdure.agent
    def endless() -> str:
        number = 0
        while True:
            work(f"step {number}")
            begun.touch()
            number += 1
            if number > 100_000:
                return send("ada")

    def script() -> None:
        with pytest.raises(RunCancelled):
            perdure.run(endless, run_id="r")

    outcome: list[int] = []
    other = threading.Thread(target=lambda: outcome.append(world.elsewhere(script)))
    other.start()
    while not begun.exists():
        assert other.is_alive()
    perdure.cancel("r")
    other.join(PATIENCE)
    assert outcome == [0]
    assert state_of("r") == "cancelled"


@pytest.mark.parametrize("state", ["completed", "cancelled"])
@pytest.mark.parametrize("ask", [perdure.cancel, perdure.pause, perdure.unpause])
def test_a_run_that_has_ended_cannot_be_asked_for_anything(ask: Callable[[str], None], state: str) -> None:
    @perdure.agent
    def quick() -> str:
        return work("done")

    if state == "completed":
        perdure.run(quick, run_id="r")
    else:
        with pytest.raises(RunWaits):
            perdure.run(asks, run_id="r")
        perdure.cancel("r")
    with pytest.raises(UsageError, match=f"{run_of('r').name} is {state}") as refused:
        ask("r")
    assert refused.value.safe
    assert run_of("r").name in refused.value.hint
    assert state_of("r") == state


@pytest.mark.parametrize("ask", [perdure.cancel, perdure.pause, perdure.unpause])
def test_a_run_that_nobody_knows_cannot_be_asked_for_anything(ask: Callable[[str], None]) -> None:
    with pytest.raises(UnknownRun, match="There is no run 'nobody'"):
        ask("nobody")


def test_a_failed_run_can_be_cancelled_so_that_nobody_starts_it_again() -> None:
    @perdure.agent
    def breaks() -> str:
        work("first")
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        perdure.run(breaks, run_id="r")
    perdure.cancel("r")
    assert state_of("r") == "cancelled"
    with pytest.raises(UsageError, match="was cancelled"):
        perdure.run(breaks, run_id="r")


def test_a_run_cancelled_twice_hears_it_once() -> None:
    gate, slow, _ = _gated()
    handle = perdure.start(slow, run_id="r")
    assert gate.begun.wait(PATIENCE)
    handle.cancel()
    handle.cancel()
    gate.go_on.set()
    with pytest.raises(RunCancelled):
        handle.result(PATIENCE)
    assert len(records_of("r", Kind.ENDED)) == 1


def test_a_run_killed_after_it_was_told_ends_when_it_is_started_again() -> None:
    @perdure.agent
    def told() -> str:
        work("first")
        perdure.cancel("r")
        world.moment("told")
        return send("ada")

    world.killed_at("told", lambda: perdure.run(told, run_id="r"))
    with pytest.raises(RunCancelled):
        perdure.run(told, run_id="r")
    assert (state_of("r"), world.lines) == ("cancelled", ["first"])


# ------------------------------------------------------------------------------------------------------------- pause


@BOTH
def test_a_paused_run_stops_at_its_next_step_and_its_handle_goes_on_after_unpause(is_async: bool) -> None:
    gate, slow, slow_async = _gated()
    with watching() as watch:
        handle = perdure.start(slow_async if is_async else slow, run_id="r")
        assert gate.begun.wait(PATIENCE)
        perdure.pause("r", by="ada")
        gate.go_on.set()
        watch.until_ended("r", "waiting (parked)")
        run = run_of("r")
        assert (run.state, run.reason, run.holder) == ("waiting", "parked", "")
        assert "was paused by ada" in read_park(run).message
        assert f"perdure unpause {run.name}" in read_park(run).hint
        assert world.lines == []
        perdure.unpause("r")
        assert handle.result(PATIENCE) == "heldsecondada"
    assert world.lines == ["second", "sent to ada"]


@BOTH
def test_an_unpause_that_comes_before_the_paused_run_has_stopped_lets_it_go_on(is_async: bool) -> None:
    gate, slow, slow_async = _gated()
    handle = perdure.start(slow_async if is_async else slow, run_id="r")
    assert gate.begun.wait(PATIENCE)
    perdure.pause("r", by="ada")
    session().deliver_mail()
    perdure.unpause("r", by="ada")
    gate.go_on.set()
    assert handle.result(PATIENCE) == "heldsecondada"
    assert world.lines == ["second", "sent to ada"]


@perdure.agent
def pauses_itself() -> str:
    """A run that somebody pauses between its first step and its second."""
    work("first")
    if world.count("paused") == 0:
        world.note("paused")
        perdure.pause("r", by="ada")
        world.moment("told to pause")
    return work("second") + send("ada")


@perdure.agent
async def pauses_itself_async() -> str:
    work("first")
    if world.count("paused") == 0:
        world.note("paused")
        perdure.pause("r", by="ada")
        world.moment("told to pause")
    return work("second") + send("ada")


PAUSING = pytest.mark.parametrize("chosen", [pauses_itself, pauses_itself_async])


@PAUSING
def test_perdure_run_raises_run_paused_until_somebody_lets_it_go_on(chosen: Any) -> None:
    for _ in range(3):
        with pytest.raises(RunPaused, match="was paused by ada") as paused:
            perdure.run(chosen, run_id="r")
        assert paused.value.exit_code == 5
        assert f"perdure unpause {run_of('r').name}" in paused.value.hint
        assert state_of("r") == "waiting (parked)"
    assert world.lines == ["first", "paused"]
    assert len(records_of("r", Kind.DELIVERY)) == 1
    assert world.elsewhere(lambda: perdure.unpause("r")) == 0
    assert perdure.run(chosen, run_id="r") == "secondada"
    assert world.lines == ["first", "paused", "second", "sent to ada"]


@PAUSING
def test_across_processes_a_pause_holds_and_an_unpause_lets_go(chosen: Any) -> None:
    def paused() -> None:
        with pytest.raises(RunPaused):
            perdure.run(chosen, run_id="r")

    assert world.elsewhere(paused) == 0
    assert world.elsewhere(paused) == 0
    perdure.unpause("r")
    assert world.elsewhere(lambda: perdure.run(chosen, run_id="r")) == 0
    assert world.lines == ["first", "paused", "second", "sent to ada"]


@PAUSING
def test_a_run_killed_between_a_pause_and_its_being_heeded_is_paused_when_started_again(chosen: Any) -> None:
    world.killed_at("told to pause", lambda: perdure.run(chosen, run_id="r"))
    for _ in range(2):
        with pytest.raises(RunPaused):
            perdure.run(chosen, run_id="r")
    assert state_of("r") == "waiting (parked)"
    perdure.unpause("r")
    assert perdure.run(chosen, run_id="r") == "secondada"
    assert world.lines == ["first", "paused", "second", "sent to ada"]


def test_a_pause_that_was_taken_back_before_it_was_heeded_stops_nothing() -> None:
    world.killed_at("told to pause", lambda: perdure.run(pauses_itself, run_id="r"))
    perdure.unpause("r")
    assert perdure.run(pauses_itself, run_id="r") == "secondada"


def test_paused_twice_it_needs_one_unpause() -> None:
    with pytest.raises(RunPaused):
        perdure.run(pauses_itself, run_id="r")
    perdure.pause("r")
    perdure.pause("r")
    with pytest.raises(RunPaused):
        perdure.run(pauses_itself, run_id="r")
    perdure.unpause("r")
    assert perdure.run(pauses_itself, run_id="r") == "secondada"


def test_unpaused_without_a_pause_it_goes_on_and_a_later_pause_holds() -> None:
    gate, slow, _ = _gated()
    with watching() as watch:
        handle = perdure.start(slow, run_id="r")
        assert gate.begun.wait(PATIENCE)
        perdure.unpause("r")
        perdure.pause("r")
        gate.go_on.set()
        watch.until_ended("r", "waiting (parked)")
        assert world.lines == []
        perdure.unpause("r")
        assert handle.result(PATIENCE) == "heldsecondada"


def test_a_run_paused_again_after_an_unpause_stops_again() -> None:
    with pytest.raises(RunPaused):
        perdure.run(pauses_itself, run_id="r")
    perdure.unpause("r")
    perdure.pause("r", by="bob")
    with pytest.raises(RunPaused):
        perdure.run(pauses_itself, run_id="r")
    assert world.lines == ["first", "paused"]
    perdure.unpause("r")
    assert perdure.run(pauses_itself, run_id="r") == "secondada"


def test_a_paused_run_can_be_cancelled() -> None:
    with pytest.raises(RunPaused):
        perdure.run(pauses_itself, run_id="r")
    perdure.cancel("r")
    assert state_of("r") == "cancelled"
    assert world.lines == ["first", "paused"]


def test_a_run_that_waits_for_a_person_can_be_paused_and_the_answer_given_meanwhile_counts() -> None:
    with pytest.raises(RunWaits):
        perdure.run(asks, run_id="r")
    perdure.pause("r")
    perdure.answer("r", "yes")
    with pytest.raises(RunPaused):
        perdure.run(asks, run_id="r")
    assert world.lines == ["asking"]
    perdure.unpause("r")
    assert perdure.run(asks, run_id="r") == "ada"
    assert world.lines == ["asking", "sent to ada"]


def test_a_paused_child_keeps_its_parent_waiting_and_goes_on_with_it() -> None:
    child = child_id("p", "main.0")

    @perdure.agent
    def paused_once() -> str:
        work("first")
        if world.count("paused") == 0:
            world.note("paused")
            perdure.pause(child)
        return work("second")

    @perdure.agent
    def parent() -> str:
        return perdure.start(paused_once).result() + work("third")

    with watching() as watch:
        handle = perdure.start(parent, run_id="p")
        watch.until_ended(child, "waiting (parked)")
        watch.until_ended("p", "waiting (child)")
        perdure.unpause(child)
        assert handle.result(PATIENCE) == "secondthird"
    assert world.lines == ["first", "paused", "second", "third"]


# -------------------------------------------------------------------------------------------------------------- tags


@perdure.agent(tags={"team": "billing", "kind": "x"})
def tagged() -> str:
    return perdure.start(plain).result()


@perdure.agent
def plain() -> str:
    return work("plain")


@perdure.agent
def starts_plain() -> str:
    return perdure.start(plain).result()


def test_the_tags_of_an_agent_are_kept_with_its_runs_and_their_children() -> None:
    perdure.run(tagged, run_id="r")
    assert [json.loads(run.tags) for run in runs()] == [{"kind": "x", "team": "billing"}] * 2


def test_the_tags_of_a_run_are_kept_with_it_and_its_children() -> None:
    perdure.run(starts_plain, run_id="r", tags={"customer": "ada"})
    handle = perdure.start(starts_plain, run_id="s", tags={"customer": "bob"})
    handle.result(PATIENCE)
    tags = {run.run_id: json.loads(run.tags) for run in runs()}
    assert tags["r"] == tags[child_id("r", "main.0")] == {"customer": "ada"}
    assert tags["s"] == tags[child_id("s", "main.0")] == {"customer": "bob"}


def test_the_tags_of_a_run_replace_those_of_its_agent() -> None:
    perdure.run(tagged, run_id="r", tags={"team": "support"})
    assert json.loads(run_of("r").tags) == {"team": "support"}


def test_a_run_without_tags_has_none() -> None:
    perdure.run(plain, run_id="r")
    assert run_of("r").tags == ""


def test_the_tags_and_the_deadline_given_to_a_child_are_its_own() -> None:
    @perdure.agent
    def starts() -> str:
        return perdure.start(plain, tags={"part": "one"}, deadline="1h").result()

    perdure.run(starts, run_id="r", tags={"customer": "ada"})
    child = run_of(child_id("r", "main.0"))
    assert json.loads(child.tags)["part"] == "one"
    assert bodies_of(child.run_id, Kind.STARTED)[0].deadline_at == pytest.approx(child.created_at + 3600)


@pytest.mark.parametrize(
    "tags",
    [
        {"": "x"},
        {"team": ""},
        {"team": 7},
        {7: "team"},
        {"team": "x" * 201},
        {"team": "two\nlines"},
        {str(number): "x" for number in range(51)},
        ["team"],
        "team",
    ],
)
@pytest.mark.parametrize("start", [perdure.run, perdure.start])
def test_tags_that_nobody_could_use_are_refused(start: Any, tags: Any) -> None:
    with pytest.raises(UsageError, match="are not usable"):
        start(plain, tags=tags)
    with pytest.raises(UsageError, match="are not usable"):
        perdure.agent(tags=tags)(lambda: None)
    assert runs() == []


# ---------------------------------------------------------------------------------------------------------- progress


@perdure.agent
def advances(count: int) -> str:
    for number in range(count):
        work(f"item {number}")
        perdure.progress(number + 1, count, "items")
    world.moment("advanced")
    return work("done")


def test_progress_is_noted_durably_and_told(seen: list[Observable]) -> None:
    perdure.run(advances, 3, run_id="r")
    notes = bodies_of("r", Kind.NOTE)
    assert [(note.about, note.done, note.total, note.text) for note in notes] == [
        ("progress", number, 3, "items") for number in (1, 2, 3)
    ]
    told = [event for event in seen if isinstance(event, Progressed)]
    assert [(event.run_id, event.done, event.total, event.text) for event in told] == [
        ("r", number, 3, "items") for number in (1, 2, 3)
    ]


@pytest.mark.parametrize("moment", ["item 0", "item 2", "advanced"])
def test_a_replay_does_not_repeat_progress(moment: str, seen: list[Observable]) -> None:
    world.killed_at(moment, lambda: perdure.run(advances, 3, run_id="r"))
    before = [note.done for note in bodies_of("r", Kind.NOTE)]
    assert before == [1.0, 2.0, 3.0][: {"item 0": 0, "item 2": 2, "advanced": 3}[moment]]
    perdure.run(advances, 3, run_id="r")
    assert [note.done for note in bodies_of("r", Kind.NOTE)] == [1.0, 2.0, 3.0]
    told = [event.done for event in seen if isinstance(event, Progressed)]
    assert before + told == [1.0, 2.0, 3.0]


@pytest.mark.parametrize("number", [-1, float("nan"), float("inf"), "3", None, True])
def test_progress_that_is_no_amount_is_refused(number: Any) -> None:
    @perdure.agent
    def agent(as_total: bool) -> str:
        perdure.progress(1 if as_total else number, number if as_total else 1)
        return "never"

    for as_total in (False, True):
        with pytest.raises(UsageError, match="is no amount"):
            perdure.run(agent, as_total, run_id=f"r {as_total}")
        assert bodies_of(f"r {as_total}", Kind.NOTE) == []


def test_progress_outside_a_run_and_in_the_body_of_a_step_is_refused() -> None:
    @perdure.step
    def body() -> None:
        perdure.progress(1)

    @perdure.agent
    def agent() -> None:
        body()

    with pytest.raises(NotInRun):
        perdure.progress(1)
    with pytest.raises(UsageError, match="inside the body of body"):
        perdure.run(agent)


def test_a_cancelled_run_notes_no_progress() -> None:
    @perdure.agent
    def agent() -> str:
        work("first")
        perdure.cancel("r")
        perdure.progress(1)
        return "never"

    with pytest.raises(RunCancelled):
        perdure.run(agent, run_id="r")
    assert bodies_of("r", Kind.NOTE) == []


def test_a_sync_body_that_hangs_does_not_keep_a_cancelled_run_from_ending() -> None:
    perdure.configure(cancel_grace_seconds=0.05)
    began, release = threading.Event(), threading.Event()

    @perdure.step
    def hang() -> str:
        began.set()
        release.wait(60)
        return "too late"

    @perdure.agent
    def agent() -> str:
        hang()
        world.note("after")
        return "never"

    ended = threading.Event()
    unsubscribe = perdure.subscribe(lambda _: ended.set(), RunEnded)
    handle = perdure.start(agent, run_id="r")
    assert began.wait(60)
    perdure.cancel("r")
    assert ended.wait(60)
    unsubscribe()
    assert handle.status() == "cancelled"
    release.set()
    with pytest.raises(RunCancelled):
        handle.result(60)
    assert world.lines == []
    assert records_of("r", Kind.STEP) == []
