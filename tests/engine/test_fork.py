"""A fork has another run's journal up to a step, and goes on by itself; the other run is only read."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec import Raw

import perdure
from perdure import codec
from perdure.engine import control
from perdure.engine import fork as forks
from perdure.engine.prefix import working_state
from perdure.engine.session import close_sessions, session
from perdure.errors import ApprovalDenied, CheckpointCorrupt, EffectInDoubt, JournalDiverged, RunWaits, UsageError
from perdure.events import RunResumed
from perdure.records import Kind, Run
from perdure.store.lease import read_park
from tests.engine.journals import bodies_of, records_of, run_of, state_of
from tests.engine.letters import open_effects, post
from tests.engine.manual_clock import ManualClock
from tests.engine.world import world

STALL_SECONDS = 60.0


def fork(run_id: str, at: int | None = None, **given: Any) -> Run:
    """A fork that is accepted."""
    return forks.accept(session().store, plan(run_id, at, **given))


def plan(run_id: str, at: int | None = None, **given: Any) -> forks.Fork:
    sealed = {name: Raw(json.dumps(value).encode()) for name, value in given.items()}
    return forks.planned(session().store, run_of(run_id), at=at, given=sealed, stall_seconds=STALL_SECONDS)


@perdure.step
def fetch(page: int) -> str:
    world.note(f"fetch {page}")
    world.moment(f"fetch {page}")
    return f"page {page}"


@perdure.effect
def send(to: str) -> str:
    world.note(f"send {to} {perdure.current().key}")
    world.moment(f"send {to}")
    return f"sent {to}"


@perdure.agent
def report(pages: int) -> list[Any]:
    state = perdure.current().state
    done: list[Any] = []
    for page in range(pages):
        done.append(fetch(page))
        state["pages"] = page + 1
    done.append(send("ada"))
    return [*done, state.get("plan", "none")]


def lines_after(count: int) -> list[str]:
    return [line.split(" ")[0] + " " + line.split(" ")[1] for line in world.lines[count:]]


@pytest.mark.parametrize("at", [0, 1, 2, 3, 4])
def test_a_fork_repeats_what_came_after_its_step_and_nothing_before(at: int) -> None:
    result = perdure.run(report, 3, run_id="r")
    whole = lines_after(0)
    made = fork("r", at)
    assert (made.state, made.steps, made.agent) == ("queued", at, run_of("r").agent)
    assert perdure.run(report, 3, run_id=made.run_id) == result
    assert lines_after(4) == whole[at:]


def test_a_fork_leaves_the_other_run_as_it_was() -> None:
    perdure.run(report, 1, run_id="r")
    row, records = run_of("r"), records_of("r")
    made = fork("r", 1)
    perdure.run(report, 1, run_id=made.run_id)
    assert (run_of("r"), records_of("r")) == (row, records)
    origin = bodies_of(made.run_id, Kind.STARTED)[0].forked_from
    assert (origin.run_id, origin.name, origin.at) == ("r", row.name, 1)
    assert made.name != row.name


def test_the_journal_of_a_fork_is_whole_for_the_store() -> None:
    perdure.run(report, 2, run_id="r")
    made = fork("r", 2)
    found = list(session().store.check())
    assert sorted(getattr(item, "run_id", "damage") for item in found) == sorted(["r", made.run_id])


def test_without_a_step_a_fork_has_all_that_is_completed() -> None:
    perdure.run(report, 2, run_id="r")
    made = fork("r")
    assert made.steps == 3
    perdure.run(report, 2, run_id=made.run_id)
    assert len(world.lines) == 3


@pytest.mark.parametrize("at", [4, 99])
def test_a_step_that_was_not_completed_is_refused_with_what_there_is(at: int) -> None:
    perdure.run(report, 2, run_id="r")
    with pytest.raises(UsageError, match="has completed 3") as caught:
        fork("r", at)
    assert caught.value.hint == "--at 0 to --at 3"


def test_an_effect_after_the_cut_is_performed_again_under_a_new_key_and_named_before() -> None:
    perdure.run(report, 1, run_id="r")
    planned = plan("r", 1)
    assert [(again.number, again.shown) for again in planned.repeated] == [(2, "send(to='ada')")]
    made = forks.accept(session().store, planned)
    perdure.run(report, 1, run_id=made.run_id)
    first, second = [line.split()[2] for line in world.lines if line.startswith("send")]
    assert first != second
    assert plan("r", 2).repeated == ()


def two_strands(*, check: Any = None, **options: Any) -> Any:
    """An agent whose effect has an intent when its only step completes, and goes on after that."""
    gates: dict[str, asyncio.Event] = {}

    @perdure.effect(**options)
    async def slow(to: str) -> str:
        await gates["open"].wait()
        world.note(f"slow {to} {perdure.current().key}")
        world.moment("slow")
        return f"sent {to}"

    if check is not None:
        slow.check(check)

    async def fetching() -> None:
        fetch(0)
        gates["open"].set()

    @perdure.agent
    async def agent() -> str:
        gates["open"] = asyncio.Event()
        sent, _ = await asyncio.gather(slow("ada"), fetching())
        return sent

    return agent


def keys_used() -> list[str]:
    return [line.split()[2] for line in world.lines if line.startswith("slow")]


def test_a_doubt_before_the_cut_is_the_forks_too_under_the_same_key() -> None:
    agent = two_strands()
    world.killed_at("slow", lambda: perdure.run(agent, run_id="r"))
    planned = plan("r", 1)
    assert planned.in_doubt == ("slow(to='ada')",)
    assert planned.repeated == ()
    made = forks.accept(session().store, planned)
    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id=made.run_id)
    assert open_effects(made.run_id) == ["slow"]
    post(made.run_id, "did_not_happen", name="slow")
    assert perdure.run(agent, run_id=made.run_id) == "sent ada"
    assert len(keys_used()) == 2
    assert len(set(keys_used())) == 1
    assert open_effects("r") == ["slow"]


def test_a_doubt_that_the_other_run_has_settled_after_the_cut_is_in_doubt_in_the_fork() -> None:
    agent = two_strands()
    perdure.run(agent, run_id="r")
    made = fork("r", 1)
    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id=made.run_id)
    assert len(keys_used()) == 1


def test_a_keyed_effect_in_doubt_is_sent_again_by_the_fork_under_the_same_key() -> None:
    agent = two_strands(keyed=True)
    world.killed_at("slow", lambda: perdure.run(agent, run_id="r"))
    made = fork("r", 1)
    second = fork(made.run_id, 1)
    for run_id in ("r", made.run_id, second.run_id):
        assert perdure.run(agent, run_id=run_id) == "sent ada"
    assert len(keys_used()) == 4
    assert len(set(keys_used())) == 1


def test_the_check_of_an_inherited_doubt_is_asked_for_the_key_of_the_other_run() -> None:
    async def was_sent(intent: perdure.Intent) -> perdure.Verdict:
        is_there = f"slow ada {intent.key}" in world.lines
        return perdure.happened("found") if is_there else perdure.did_not_happen()

    agent = two_strands(check=was_sent, in_flight_seconds=0)
    world.killed_at("slow", lambda: perdure.run(agent, run_id="r"))
    made = fork("r", 1)
    assert perdure.run(agent, run_id=made.run_id) == "found"
    assert len(keys_used()) == 1


def test_the_verdict_of_the_other_run_is_not_the_forks() -> None:
    @perdure.effect(in_flight_seconds=0)
    def lost(what: str) -> str:
        raise TimeoutError

    @perdure.agent
    def agent() -> str:
        fetch(0)
        return lost("flight")

    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    made = fork("r")
    post("r", "happened", "found", name="lost")
    assert perdure.run(agent, run_id="r") == "found"
    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id=made.run_id)
    assert state_of(made.run_id) == "waiting (in_doubt)"


def test_state_that_is_set_is_there_right_after_the_step_in_every_execution() -> None:
    seen: list[Any] = []

    @perdure.agent
    def agent() -> None:
        state = perdure.current().state
        state["plan"] = "walk"
        fetch(0)
        seen.append(dict(state))
        fetch(1)
        seen.append(dict(state))
        perdure.ask("Go?", options=["yes", "no"])
        seen.append(dict(state))

    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    made = fork("r", 1, plan={"by": "train"})
    for _ in range(2):
        seen.clear()
        with pytest.raises(RunWaits):
            perdure.run(agent, run_id=made.run_id)
        assert seen == [{"plan": {"by": "train"}}] * 2
    assert codec.unseal(bytes(working_state(records_of(made.run_id))["plan"])) == {"by": "train"}


def test_state_that_is_set_at_the_beginning_is_there_before_the_first_call() -> None:
    seen: list[Any] = []

    @perdure.agent
    def agent() -> str:
        seen.append(perdure.current().state.get("plan"))
        fetch(0)
        return str(perdure.current().state.get("plan"))

    perdure.run(agent, run_id="r")
    made = fork("r", 0, plan="fly")
    assert perdure.run(agent, run_id=made.run_id) == "fly"
    assert seen == [None, "fly"]


def test_what_a_fork_was_given_is_part_of_its_checkpoints_at_once() -> None:
    perdure.run(report, 2, run_id="r")
    made = fork("r", 1, plan="train", pages=2)
    records = records_of(made.run_id)
    assert json.loads(bytes(working_state(records)["plan"])) == "train"
    assert "plan" not in working_state(records_of("r"))


def test_a_fork_of_a_fork_keeps_what_was_given_before() -> None:
    first = (perdure.run(report, 3, run_id="r"), fork("r", 1, plan="train", seats=2))[1]
    perdure.run(report, 3, run_id=first.run_id)
    second = fork(first.run_id, 2, plan="boat")
    assert perdure.run(report, 3, run_id=second.run_id)[-1] == "boat"
    state = working_state(records_of(second.run_id))
    assert {name: json.loads(bytes(value)) for name, value in state.items()} == {"pages": 3, "plan": "boat", "seats": 2}
    earlier = fork(first.run_id, 0)
    assert bodies_of(earlier.run_id, Kind.STARTED)[0].forked_from.changes == ()
    assert perdure.run(report, 3, run_id=earlier.run_id)[-1] == "none"


def test_an_argument_that_is_given_replaces_the_recorded_one() -> None:
    perdure.run(report, 3, run_id="r")
    made = fork("r", 0, pages=1)
    assert bodies_of(made.run_id, Kind.STARTED)[0].forked_from.arguments == ("pages",)
    assert perdure.run(report, 1, run_id=made.run_id) == ["page 0", "sent ada", "none"]


def test_a_script_that_makes_the_call_with_the_new_argument_goes_on_with_the_fork() -> None:
    perdure.run(report, 3, run_id="r")
    made = fork("r", 0, pages=1)
    perdure.run(report, 1)
    assert state_of(made.run_id) == "completed"


def test_steps_recorded_with_other_arguments_park_the_fork() -> None:
    @perdure.agent
    def agent(page: int) -> str:
        return fetch(page)

    perdure.run(agent, 1, run_id="r")
    made = fork("r", 1, page=2)
    with pytest.raises(JournalDiverged, match="page=2"):
        perdure.run(agent, 2, run_id=made.run_id)
    assert state_of(made.run_id) == "waiting (parked)"


def test_an_open_question_is_asked_by_the_fork_itself_with_its_time_begun_anew(manual_clock: ManualClock) -> None:
    @perdure.agent
    def agent() -> str:
        fetch(0)
        return perdure.ask("Send?", options=["yes", "no"], timeout="1h").choice

    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    manual_clock.pass_seconds(7200)
    planned = plan("r")
    made = forks.accept(session().store, planned)
    with pytest.raises(RunWaits):
        perdure.run(agent, run_id=made.run_id)
    control.answer(made.run_id, "no")
    assert perdure.run(agent, run_id=made.run_id) == "no"
    assert state_of("r") == "waiting (human)"


def test_a_question_that_was_open_before_the_cut_is_begun_anew_too(manual_clock: ManualClock) -> None:
    @perdure.agent
    async def agent() -> str:
        async def asking() -> str:
            return (await perdure.ask("Send?", options=["yes", "no"], timeout="1h")).choice

        async def fetching() -> None:
            await asyncio.sleep(0)
            fetch(0)

        return (await asyncio.gather(asking(), fetching()))[0]

    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    kinds = [record.kind for record in records_of("r")]
    assert kinds.index(Kind.WAIT) < kinds.index(Kind.STEP)
    manual_clock.pass_seconds(7200)
    planned = plan("r", 1)
    assert planned.asked_anew == ("Send?",)
    made = forks.accept(session().store, planned)
    with pytest.raises(RunWaits):
        perdure.run(agent, run_id=made.run_id)
    control.answer(made.run_id, "yes")
    assert perdure.run(agent, run_id=made.run_id) == "yes"


def test_an_answer_before_the_cut_is_the_forks_too() -> None:
    @perdure.agent
    def agent() -> str:
        choice = perdure.ask("Send?", options=["yes", "no"]).choice
        fetch(0)
        return choice

    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    control.answer("r", "yes")
    perdure.run(agent, run_id="r")
    made = fork("r", 1)
    assert perdure.run(agent, run_id=made.run_id) == "yes"


def test_a_child_that_was_not_awaited_to_its_end_is_started_anew_by_the_fork() -> None:
    @perdure.agent
    def child() -> str:
        world.note("child")
        return str(perdure.ask("Name?").value)

    @perdure.agent
    def parent() -> str:
        fetch(0)
        return perdure.start(child).result()

    with pytest.raises(RunWaits):
        perdure.run(parent, run_id="r")
    planned = plan("r", 1)
    assert [again.kind for again in planned.repeated] == ["run"]
    made = forks.accept(session().store, planned)
    with pytest.raises(RunWaits):
        perdure.run(parent, run_id=made.run_id)
    assert world.count("child") == 2
    control.cancel(made.run_id)
    children = [run for run in session().store.list_runs() if run.agent.endswith(".child")]
    assert sorted(run.state for run in children) == ["cancelled", "waiting"]


def test_a_failed_run_forked_at_its_last_step_attempts_the_failed_call_anew() -> None:
    @perdure.step
    def flaky() -> str:
        world.note("flaky")
        if world.count("flaky") == 1:
            raise ValueError("no")
        return "ok"

    @perdure.agent
    def agent() -> str:
        fetch(0)
        return flaky()

    with pytest.raises(ValueError, match="no"):
        perdure.run(agent, run_id="r")
    made = fork("r")
    assert perdure.run(agent, run_id=made.run_id) == "ok"
    assert state_of("r") == "failed"


def test_a_cancelled_run_can_be_forked() -> None:
    @perdure.agent
    def agent() -> str:
        fetch(0)
        return perdure.ask("Go?", options=["yes", "no"]).choice

    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    control.cancel("r")
    made = fork("r")
    with pytest.raises(RunWaits):
        perdure.run(agent, run_id=made.run_id)
    control.answer(made.run_id, "yes")
    assert perdure.run(agent, run_id=made.run_id) == "yes"


def test_a_fork_of_a_child_stands_alone() -> None:
    @perdure.agent
    def child() -> str:
        return fetch(0)

    @perdure.agent
    def parent() -> str:
        return perdure.start(child).result()

    perdure.run(parent, run_id="r")
    below = next(run for run in session().store.list_runs() if run.run_id != "r")
    made = fork(below.run_id, 1)
    assert bodies_of(made.run_id, Kind.STARTED)[0].lineage == ()


def test_cost_tags_and_attempts_before_the_cut_are_carried() -> None:
    @perdure.step(retry=perdure.Retry(attempts=3, delay_seconds=0))
    def think(what: str) -> str:
        perdure.current().spent(dollars=0.5, tokens=10)
        world.note("think")
        if world.count("think") == 1:
            raise OSError("again")
        return what

    @perdure.agent(tags={"team": "a"})
    def agent() -> str:
        think("one")
        think("two")
        return fetch(0)

    perdure.run(agent, run_id="r")
    made = fork("r", 1)
    assert (made.tokens, made.dollars, made.tags) == (20, 1.0, run_of("r").tags)
    perdure.run(agent, run_id=made.run_id)
    after = run_of(made.run_id)
    assert (after.tokens, after.dollars) == (30, 1.5)


def test_a_map_cut_in_its_middle_goes_on_with_the_items_after() -> None:
    @perdure.effect
    def pay(number: int) -> int:
        world.note(f"pay {number}")
        return number * 3

    @perdure.agent
    def agent() -> list[int]:
        return list(perdure.map(pay, range(4)))

    perdure.run(agent, run_id="r")
    planned = plan("r", 2)
    assert [again.shown for again in planned.repeated] == ["pay(number=2)", "pay(number=3)"]
    made = forks.accept(session().store, planned)
    assert perdure.run(agent, run_id=made.run_id) == [0, 3, 6, 9]
    assert world.lines[4:] == ["pay 2", "pay 3"]


def test_a_patch_before_the_cut_holds_in_the_fork() -> None:
    @perdure.agent
    def agent() -> bool:
        is_new = perdure.patched("new")
        fetch(0)
        return is_new

    perdure.run(agent, run_id="r")
    made = fork("r", 1)
    assert perdure.run(agent, run_id=made.run_id) is True
    assert [record.kind for record in records_of(made.run_id)].count("patched") == 1


def test_a_fork_has_its_own_copy_of_the_working_directory_as_it_was_at_the_cut() -> None:
    @perdure.step
    def write(text: str) -> str:
        (perdure.workdir() / "note.txt").write_text(text)
        return text

    @perdure.agent
    def agent() -> str:
        folder = perdure.workdir()
        write("first")
        before = (folder / "note.txt").read_text()
        write("second")
        return f"{before} {folder.path}"

    result = perdure.run(agent, run_id="r")
    made = fork("r", 2)
    forked = perdure.run(agent, run_id=made.run_id)
    before, _, folder = forked.partition(" ")
    assert before == "first"
    assert folder != result.partition(" ")[2]
    assert Path(folder).name == made.name


def test_the_fork_says_where_it_comes_from_when_it_goes_on(seen: list[Any]) -> None:
    perdure.run(report, 2, run_id="r")
    made = fork("r", 2)
    perdure.run(report, 2, run_id=made.run_id)
    resumed = [event for event in seen if isinstance(event, RunResumed)]
    assert [event.before for event in resumed] == [f"it is a fork of {run_of('r').name} at step 2"]
    assert resumed[0].steps == 2


def test_a_failing_fork_takes_back_its_own_effects_and_not_the_inherited_ones() -> None:
    def take_back(result: str, what: str) -> None:
        world.note(f"undid {what}")

    @perdure.effect(undo=take_back)
    def book(what: str) -> str:
        world.note(f"book {what}")
        return what

    @perdure.agent(undo_on_failure=True)
    def agent() -> str:
        book("flight")
        book("hotel")
        if perdure.current().state.get("fails"):
            raise ValueError("no room")
        return "booked"

    perdure.run(agent, run_id="r")
    made = fork("r", 1, fails=True)
    with pytest.raises(ValueError, match="no room"):
        perdure.run(agent, run_id=made.run_id)
    assert world.lines == ["book flight", "book hotel", "book hotel", "undid hotel"]


def test_an_effect_that_is_performed_right_now_cannot_be_inherited() -> None:
    gate = asyncio.Event()

    @perdure.effect
    async def slow() -> str:
        await gate.wait()
        with pytest.raises(UsageError, match="right now") as caught:
            plan("r", 1)
        return caught.value.hint + str(plan("r", 0).origin.at)

    async def fetching() -> None:
        fetch(0)
        gate.set()

    @perdure.agent
    async def agent() -> str:
        return (await asyncio.gather(slow(), fetching()))[0]

    assert perdure.run(agent, run_id="r") == "wait until it is confirmed, or fork before it: a smaller --at0"
    assert plan("r", 1).in_doubt == ("slow()",)


def test_a_damaged_run_is_refused_with_the_way_to_repair_it(store: Path) -> None:
    perdure.run(report, 2, run_id="r")
    close_sessions()
    database = apsw.Connection(str(store))
    database.execute("UPDATE records SET body = replace(body, 'page 1', 'page 9') WHERE seq = 3")
    database.close()
    with pytest.raises(CheckpointCorrupt) as caught:
        fork("r", 1)
    assert "perdure repair" in caught.value.hint
    assert len(session().store.list_runs()) == 1


def test_a_run_with_a_deadline_gives_its_fork_as_long_again(manual_clock: ManualClock) -> None:
    @perdure.agent(deadline="1h")
    def agent() -> str:
        return fetch(0)

    perdure.run(agent, run_id="r")
    manual_clock.pass_seconds(7200)
    made = fork("r", 0)
    assert perdure.run(agent, run_id=made.run_id) == "page 0"
    assert read_park(run_of(made.run_id)).code == ""


def test_a_run_forked_as_it_stands_gives_its_fork_what_is_in_doubt_now() -> None:
    world.killed_at("send ada", lambda: perdure.run(report, 1, run_id="r"))
    assert [again.name for again in plan("r", 0).repeated] == ["send"]
    planned = plan("r")
    assert (planned.origin.at, planned.repeated, planned.in_doubt) == (1, (), ("send(to='ada')",))
    made = forks.accept(session().store, planned)
    with pytest.raises(EffectInDoubt):
        perdure.run(report, 1, run_id=made.run_id)
    post(made.run_id, "did_not_happen")
    perdure.run(report, 1, run_id=made.run_id)
    sent = [line for line in world.lines if line.startswith("send")]
    assert len(sent) == 2
    assert len(set(sent)) == 1


class Refused(Exception):
    """The bank says that it did nothing."""


@perdure.effect(approve=True, certain=(Refused,))
def wire(to: str) -> str:
    if os.environ.get("REFUSE"):
        raise Refused("closed")
    world.note(f"wire {to}")
    world.moment(f"wire {to}")
    return f"wired {to}"


@perdure.agent
def payer() -> str:
    fetch(0)
    return wire("ada")


def approved_run() -> None:
    with pytest.raises(RunWaits):
        perdure.run(payer, run_id="r")
    control.answer("r", "approve")


def asks_before_it_wires(made: Run) -> None:
    """The fork performs nothing before somebody approves it, and then once."""
    before = world.count("wire ada")
    with pytest.raises(RunWaits, match="Perform wire"):
        perdure.run(payer, run_id=made.run_id)
    assert world.count("wire ada") == before
    control.answer(made.run_id, "approve")
    assert perdure.run(payer, run_id=made.run_id) == "wired ada"
    assert world.count("wire ada") == before + 1


def test_an_approval_lets_an_effect_happen_once_so_a_fork_before_the_effect_asks_anew() -> None:
    approved_run()
    perdure.run(payer, run_id="r")
    planned = plan("r", 2, plan="train")
    assert planned.asked_anew == ("Perform wire(to='ada')?",)
    made = forks.accept(session().store, planned)
    assert made.steps == 1
    assert working_state(records_of(made.run_id)) == {"plan": Raw(b'"train"')}
    asks_before_it_wires(made)


def test_an_approval_of_an_effect_that_certainly_failed_is_not_the_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    approved_run()
    monkeypatch.setenv("REFUSE", "1")
    with pytest.raises(Refused):
        perdure.run(payer, run_id="r")
    made = [fork("r"), fork("r", 3)]
    with pytest.raises(Refused):
        perdure.run(payer, run_id=made[1].run_id)  # it has the recorded failure, which a resume attempts anew
    monkeypatch.delenv("REFUSE")
    for each in made:
        asks_before_it_wires(each)
    assert perdure.run(payer, run_id="r") == "wired ada"
    assert world.count("wire ada") == 3


def test_an_approved_effect_in_doubt_is_performed_by_the_fork_only_when_it_is_approved_there() -> None:
    approved_run()
    world.killed_at("wire ada", lambda: perdure.run(payer, run_id="r"))
    made = fork("r")
    with pytest.raises(EffectInDoubt):
        perdure.run(payer, run_id=made.run_id)
    post(made.run_id, "did_not_happen", name="wire")
    asks_before_it_wires(made)


def test_an_effect_that_was_denied_stays_denied_in_the_fork() -> None:
    @perdure.agent
    def agent() -> str:
        try:
            wire("ada")
        except ApprovalDenied:
            fetch(0)
        return fetch(1)

    with pytest.raises(RunWaits):
        perdure.run(agent, run_id="r")
    control.answer("r", "deny")
    perdure.run(agent, run_id="r")
    for at in (1, 2, 3):
        made = fork("r", at)
        assert made.steps == at
        assert perdure.run(agent, run_id=made.run_id) == "page 1"
    assert world.count("wire ada") == 0
