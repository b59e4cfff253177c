"""`restart_with`: a run that ends by going on as a new one; its caller gets what the last one returns."""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import threading
from typing import Any

import msgspec
import pytest

import perdure
from perdure import clock
from perdure.engine import whereabouts
from perdure.engine.child import child_id
from perdure.engine.session import session
from perdure.errors import NotInRun, RunCancelled, RunPaused, RunWaits, UsageError
from perdure.records import Kind, Mail
from perdure.store.sqlite.store import SqliteStore
from tests.engine.journals import bodies_of, records_of, run_of, runs, state_of
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
def counts(number: int, last: int = 3) -> str:
    work(f"work {number}")
    if number < last:
        perdure.restart_with(number + 1, last=last)
    return f"ended at {number}"


@perdure.agent
async def counts_async(number: int, last: int = 3) -> str:
    await asyncio.sleep(0)
    work(f"work {number}")
    if number < last:
        perdure.restart_with(number + 1, last=last)
    return f"ended at {number}"


@perdure.agent
def again() -> str:
    """Goes on with the same arguments."""
    work("again")
    if world.count("again") < 3:
        perdure.restart_with()
    return "enough"


BOTH = pytest.mark.parametrize("chosen", [counts, counts_async])
CHAIN = ["r", "r~2", "r~3"]


@BOTH
def test_the_result_of_the_last_run_is_returned_whichever_way_it_is_asked_for(chosen: Any) -> None:
    assert perdure.run(chosen, 1, run_id="r") == "ended at 3"
    assert [run.run_id for run in reversed(runs())] == CHAIN
    assert {run.state for run in runs()} == {"completed"}
    assert perdure.run(chosen, 1, run_id="r") == "ended at 3"
    assert perdure.run(chosen, 3, run_id="r~3") == "ended at 3"
    handle = perdure.start(chosen, 1, run_id="s")
    assert handle.result(PATIENCE) == "ended at 3"
    assert perdure.start(chosen, 1, run_id="s").result(PATIENCE) == "ended at 3"
    assert world.lines == ["work 1", "work 2", "work 3"] * 2


@BOTH
def test_the_old_journals_are_kept_and_say_which_run_goes_on(chosen: Any) -> None:
    perdure.run(chosen, 1, run_id="r")
    assert [bodies_of(run_id, Kind.ENDED)[-1].continued for run_id in CHAIN] == ["r~2", "r~3", ""]
    assert [len(records_of(run_id, Kind.STEP)) for run_id in CHAIN] == [1, 1, 1]
    assert [json.loads(bytes(bodies_of(run_id, Kind.STARTED)[0].arguments))["number"] for run_id in CHAIN] == [1, 2, 3]


@BOTH
@pytest.mark.parametrize("number", [1, 2, 3])
def test_killed_in_any_run_of_the_chain_the_same_script_continues_the_newest(chosen: Any, number: int) -> None:
    world.killed_at(f"work {number}", lambda: perdure.run(chosen, 1))
    before = world.lines
    assert perdure.run(chosen, 1) == "ended at 3"
    assert world.lines == before + [f"work {later}" for later in range(number, 4)]
    assert len(runs()) == 3


def _die_beside_the_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put moments around the creation of the run that goes on and around the end of the one before."""
    create, append_all = SqliteStore.create_run, SqliteStore.append_all

    def create_run(self: Any, run: Any, *args: Any, **kwargs: Any) -> Any:
        is_next = "~" in run.run_id
        if is_next:
            world.moment("before the new run")
        created = create(self, run, *args, **kwargs)
        if is_next:
            world.moment("after the new run")
        return created

    def append(self: Any, batch: Any, *, power: bool) -> Any:
        is_end = any(whereabouts.continuation(append.run) for append in batch)
        if is_end:
            world.moment("before the end")
        outcomes = append_all(self, batch, power=power)
        if is_end:
            world.moment("after the end")
        return outcomes

    monkeypatch.setattr(SqliteStore, "create_run", create_run)
    monkeypatch.setattr(SqliteStore, "append_all", append)


MOMENTS = ["before the new run", "after the new run", "before the end", "after the end"]


@BOTH
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("passes", [0, 1])
@pytest.mark.parametrize("run_id", ["r", None])
def test_killed_beside_a_restart_it_ends_in_the_same_chain(
    chosen: Any, moment: str, passes: int, run_id: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _die_beside_the_restart(monkeypatch)
    world.killed_at(moment, lambda: perdure.run(chosen, 1, run_id=run_id), passes=passes)
    assert perdure.run(chosen, 1, run_id=run_id) == "ended at 3"
    assert world.lines == ["work 1", "work 2", "work 3"]
    assert [run.state for run in runs()] == ["completed"] * 3


@pytest.mark.parametrize("moment", ["after the new run", "before the end"])
def test_cancel_of_a_run_that_was_killed_before_it_had_ended_for_the_next_ends_both(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    @perdure.agent
    def twice(number: int) -> str:
        return work("next") if number == 2 else perdure.restart_with(2)

    with monkeypatch.context() as patch:
        _die_beside_the_restart(patch)
        world.killed_at(moment, lambda: perdure.run(twice, 1, run_id="r"))
    perdure.cancel("r")
    assert (state_of("r"), state_of("r~2"), world.lines) == ("cancelled", "cancelled", [])


@pytest.mark.parametrize("seconds", [1.0, -3600.0], ids=["later", "by a clock that was set back"])
def test_pause_that_is_handed_on_again_after_the_unpause_that_followed_it_does_not_hold_the_run(
    monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    @perdure.agent
    def twice(number: int) -> str:
        return work("next") if number == 2 else perdure.restart_with(2)

    with monkeypatch.context() as patch:
        _die_beside_the_restart(patch)
        world.killed_at("after the end", lambda: perdure.run(twice, 1, run_id="r"))
    now = clock.wall_seconds()
    pause = Mail(0, "r~2", "pause", "", "{}", "ada", now)
    for mail in (pause, Mail(0, "r~2", "unpause", "", "{}", "ada", now + seconds), pause):
        session().store.post(mail)
    assert perdure.run(twice, 1, run_id="r") == "next"


@pytest.mark.parametrize("moment", MOMENTS)
def test_killed_beside_a_restart_with_the_same_arguments_no_run_is_left_behind(
    moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _die_beside_the_restart(monkeypatch)
    world.killed_at(moment, lambda: perdure.run(again))
    assert perdure.run(again) == "enough"
    assert [run.state for run in runs()] == ["completed"] * 3
    assert world.count("again") == 3
    perdure.run(again)
    assert len(runs()) == 4


def test_killed_again_and_again_the_chain_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    _die_beside_the_restart(monkeypatch)
    for moment in MOMENTS:
        world.killed_at(moment, lambda: perdure.run(counts, 1, 5, run_id="r"))
    assert perdure.run(counts, 1, 5, run_id="r") == "ended at 5"
    assert world.lines == [f"work {number}" for number in range(1, 6)]
    assert len(runs()) == 5


def test_a_chain_longer_than_the_stack_is_found_from_its_first() -> None:
    perdure.configure(durability="process")
    limit = sys.getrecursionlimit()
    assert perdure.run(counts, 1, 250, run_id="r") == "ended at 250"
    sys.setrecursionlimit(len(inspect.stack()) + 200)
    try:
        assert perdure.run(counts, 1, 250, run_id="r") == "ended at 250"
        assert perdure.start(counts, 1, 250, run_id="r").status() == "completed"
    finally:
        sys.setrecursionlimit(limit)
    assert len(world.lines) == 250


def test_a_run_that_ended_goes_on_with_an_effect_of_its_own() -> None:
    @perdure.agent
    def sends(number: int) -> str:
        send(f"{number}")
        if number < 2:
            perdure.restart_with(number + 1)
        return "done"

    assert perdure.run(sends, 1, run_id="r") == "done"
    perdure.run(sends, 1, run_id="r")
    assert world.lines == ["sent to 1", "sent to 2"]


# ---------------------------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize("is_async", [False, True])
def test_arguments_that_do_not_fit_fail_the_run_and_it_can_be_mended(is_async: bool) -> None:
    def arguments() -> tuple[Any, ...]:
        return (1, 2, 3) if world.count("mended") == 0 else (2,)

    @perdure.agent
    def misfits(number: int) -> str:
        work(f"work {number}")
        if number == 1:
            perdure.restart_with(*arguments())
        return "done"

    @perdure.agent
    async def misfits_async(number: int) -> str:
        work(f"work {number}")
        if number == 1:
            perdure.restart_with(*arguments())
        return "done"

    chosen: Any = misfits_async if is_async else misfits
    with pytest.raises(TypeError):
        perdure.run(chosen, 1, run_id="r")
    assert (state_of("r"), len(runs())) == ("failed", 1)
    world.note("mended")
    assert perdure.run(chosen, 1, run_id="r") == "done"
    assert world.lines == ["work 1", "mended", "work 2"]


def test_arguments_that_cannot_be_stored_fail_the_run() -> None:
    @perdure.agent
    def unstorable(thing: Any) -> str:
        work("first")
        perdure.restart_with(threading.Lock())
        return "never"

    with pytest.raises(UsageError):
        perdure.run(unstorable, 1, run_id="r")
    assert (state_of("r"), len(runs())) == ("failed", 1)


@perdure.agent
def inner() -> str:
    perdure.restart_with()
    return "never"


@perdure.agent
async def inner_async() -> str:
    await asyncio.sleep(0)
    perdure.restart_with()
    return "never"


def _nested() -> list[Any]:
    @perdure.agent
    def calls_an_agent() -> str:
        return inner()

    @perdure.agent
    async def awaits_an_agent() -> str:
        return await inner_async()

    @perdure.agent
    async def gathers_agents() -> str:
        return (await asyncio.gather(inner_async()))[0]

    @perdure.agent
    async def in_a_task() -> str:
        async def strand() -> str:
            perdure.restart_with()
            return "never"

        return await asyncio.create_task(strand())

    @perdure.agent
    async def in_a_thread() -> str:
        await asyncio.to_thread(perdure.restart_with)
        return "never"

    @perdure.agent
    def in_a_step() -> str:
        @perdure.step
        def body() -> str:
            perdure.restart_with()
            return "never"

        return body()

    return [calls_an_agent, awaits_an_agent, gathers_agents, in_a_task, in_a_thread, in_a_step]


@pytest.mark.parametrize("chosen", _nested(), ids=lambda chosen: chosen.__name__)
def test_only_the_outermost_agent_may_restart(chosen: Any) -> None:
    with pytest.raises(UsageError, match=r"beside or below the agent|inside the body"):
        perdure.run(chosen, run_id="r")
    assert (state_of("r"), len(runs())) == ("failed", 1)


def test_outside_a_run_there_is_nothing_to_restart() -> None:
    with pytest.raises(NotInRun):
        perdure.restart_with(1)


def test_an_agent_that_catches_exceptions_does_not_catch_its_restart() -> None:
    @perdure.agent
    def greedy(number: int) -> str:
        try:
            if number < 2:
                perdure.restart_with(number + 1)
        except Exception:  # noqa: BLE001 - as agent frameworks do
            return "caught"
        return work("last")

    assert perdure.run(greedy, 1) == "last"


# ------------------------------------------------------------------------------------------- children, waits, control


@pytest.mark.parametrize("is_async", [False, True])
def test_a_child_that_restarts_gives_its_parent_the_result_of_the_last(is_async: bool) -> None:
    @perdure.agent
    def parent() -> str:
        return perdure.start(counts, 1).result() + work("!")

    @perdure.agent
    async def parent_async() -> str:
        return await perdure.start(counts_async, 1) + work("!")

    chosen: Any = parent_async if is_async else parent
    world.killed_at("work 2", lambda: perdure.run(chosen, run_id="r"))
    assert perdure.run(chosen, run_id="r") == "ended at 3!"
    assert world.lines == ["work 1", "work 2", "work 2", "work 3", "!"]
    child = child_id("r", "main.0")
    assert {run.run_id for run in runs()} == {"r", child, f"{child}~2", f"{child}~3"}
    assert len(records_of("r", Kind.ANSWER)) == 1


@perdure.agent
def asks_at_last(number: int) -> str:
    work(f"work {number}")
    if number < 2:
        perdure.restart_with(number + 1)
    return perdure.ask("Enough?", options=["yes"]).choice


@perdure.agent
def starts_asks_at_last() -> str:
    return perdure.start(asks_at_last, 1).result()


def test_the_first_id_reaches_the_run_that_goes_on() -> None:
    with pytest.raises(RunWaits):
        perdure.run(asks_at_last, 1, run_id="r")
    assert (state_of("r"), state_of("r~2")) == ("completed", "waiting (human)")
    perdure.answer("r", "yes")
    assert perdure.run(asks_at_last, 1, run_id="r") == "yes"
    assert world.lines == ["work 1", "work 2"]


def test_the_status_of_a_handle_is_that_of_the_run_that_goes_on() -> None:
    with watching() as watch:
        handle = perdure.start(asks_at_last, 1, run_id="r")
        watch.until_ended("r~2", "waiting (human)")
        assert handle.status() == "waiting (human)"
        handle.cancel()
        assert (state_of("r"), handle.status()) == ("completed", "cancelled")


def test_cancelling_a_parent_reaches_the_run_that_goes_on_in_place_of_its_child() -> None:
    with pytest.raises(RunWaits):
        perdure.run(starts_asks_at_last, run_id="p")
    perdure.cancel("p")
    child = child_id("p", "main.0")
    assert [state_of(run_id) for run_id in ("p", child, f"{child}~2")] == ["cancelled", "completed", "cancelled"]


def test_an_answer_to_the_run_that_goes_on_in_place_of_a_child_wakes_the_parent() -> None:
    with watching() as watch:
        handle = perdure.start(starts_asks_at_last, run_id="p")
        watch.until_ended("p", "waiting (child)")
        perdure.answer(child_id("p", "main.0"), "yes")
        assert handle.result(PATIENCE) == "yes"


@perdure.agent
def hears_late(number: int, ask: str) -> str:
    """Somebody writes to the run just before it goes on as another."""
    work(f"work {number}")
    if number == 1:
        _write_from_outside(ask)
        perdure.restart_with(number + 1, ask)
    return f"{ask} {send('ada')}"


def _write_from_outside(ask: str) -> None:
    """As another process would: the holder is not told, it has to look."""
    body = '{"payload":7}' if ask == "signal" else "{}"
    kind: Any = ask
    session().store.post(Mail(0, "r", kind, "go" if ask == "signal" else "", body, "ada", clock.wall_seconds()))


@pytest.mark.parametrize(("ask", "error"), [("cancel", RunCancelled), ("pause", RunPaused)])
def test_what_others_wrote_just_before_a_restart_still_counts(ask: str, error: type[BaseException]) -> None:
    with pytest.raises(error):
        perdure.run(hears_late, 1, ask, run_id="r")
    assert world.lines == ["work 1"]


def test_a_signal_that_the_run_before_did_not_take_reaches_the_run_that_goes_on() -> None:
    @perdure.agent
    def listens(number: int) -> int:
        work(f"work {number}")
        if number == 1:
            _write_from_outside("signal")
            perdure.restart_with(2)
        return perdure.wait_for("go")  # type: ignore[no-any-return]

    assert perdure.run(listens, 1, run_id="r") == 7


def test_a_signal_that_is_handed_on_again_long_after_it_was_taken_is_not_taken_twice() -> None:
    @perdure.agent
    def listens(number: int) -> list[int]:
        work(f"work {number}")
        if number == 1:
            _write_from_outside("signal")
            perdure.restart_with(2)
        first = perdure.wait_for("go")
        (handed,) = [mail for mail in session().store.read_mail("r~2") if mail.kind == "signal"]
        session().store.post(msgspec.structs.replace(handed, mail_id=0, taken=0))  # by one that was frozen meanwhile
        session().store.post(
            msgspec.structs.replace(handed, mail_id=0, taken=0, body='{"payload":8}', at=handed.at + 1)
        )
        return [first, perdure.wait_for("go")]

    assert perdure.run(listens, 1, run_id="r") == [7, 8]


def test_tags_stay_with_the_run_that_goes_on() -> None:
    perdure.run(counts, 1, run_id="r", tags={"customer": "ada"})
    assert [json.loads(run_of(run_id).tags) for run_id in CHAIN] == [{"customer": "ada"}] * 3
