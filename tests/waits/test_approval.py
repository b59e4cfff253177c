"""An effect that needs approval is performed once it is approved, for the arguments that were approved, and once."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure.errors import (
    AnswerRefused,
    ApprovalDenied,
    EffectInDoubt,
    JournalDiverged,
    NotInRun,
    RunHeld,
    RunWaits,
    UsageError,
)
from perdure.events import RunEnded
from perdure.records import Kind
from tests import warm
from tests.crash.nursery import environment
from tests.engine.journals import bodies_of, records_of, run_of, state_of
from tests.engine.letters import post
from tests.engine.world import world
from tests.waits import clerk
from tests.waits.desk import PATIENCE_SECONDS, UNWRITTEN, WRITTEN, Bell, inbox, killed, letters, opened, questions

Agent = Callable[..., Any]
paying: dict[str, Any] = {}
QUESTION = "wait:main.1?approve"
ANSWER = "answer:main.1?approve"


@pytest.fixture(autouse=True)
def unedited() -> None:
    paying.clear()
    paying["cents"] = 500


@perdure.step
def quote(to: str) -> str:
    world.note(f"quoted {to}")
    return to


@perdure.effect(approve=True)
def pay(to: str, cents: int) -> str:
    world.note(f"paid {to} {cents}")
    world.moment("paid")
    return f"paid {to} {cents}"


@perdure.effect(approve=True)
async def pay_async(to: str, cents: int) -> str:
    world.note(f"paid {to} {cents}")
    world.moment("paid")
    return f"paid {to} {cents}"


@perdure.agent
def payer() -> str:
    return pay(quote("ada"), paying["cents"])


@perdure.agent
async def payer_async() -> str:
    return await pay_async(quote("ada"), paying["cents"])


both = pytest.mark.parametrize("agent", [payer, payer_async], ids=["sync", "async"])
QUOTED = ["quoted ada"]
PAID = ["quoted ada", "paid ada 500"]


def ask(agent: Agent = payer) -> None:
    with pytest.raises(RunWaits, match=r"Perform pay"):
        perdure.run(agent, run_id="r")


def finish(agent: Agent = payer, *, asked: int = 1) -> None:
    assert perdure.run(agent, run_id="r") == "paid ada 500"
    assert world.lines == PAID
    assert len(questions()) == asked
    assert perdure.run(agent, run_id="r") == "paid ada 500"
    assert world.lines == PAID


class TestApproving:
    @both
    def test_nothing_is_performed_before_somebody_approves(self, agent: Agent) -> None:
        ask(agent)
        ask(agent)
        assert world.lines == QUOTED
        assert bodies_of("r", Kind.INTENT) == []
        assert state_of("r") == "waiting (human)"

    @both
    def test_approved_it_is_performed_once_without_asking_again(self, agent: Agent) -> None:
        ask(agent)
        assert world.elsewhere(lambda: perdure.answer("r", "approve", by="bob")) == 0
        finish(agent)
        assert [answer.by for answer in bodies_of("r", Kind.ANSWER)] == ["bob"]

    def test_the_question_shows_what_would_be_performed(self) -> None:
        ask()
        (question,) = questions()
        assert question.text == "Perform pay(to='ada', cents=500)?"
        assert question.options == ("approve", "deny")
        assert bytes(question.show) == b'{"to":"ada","cents":500}'
        assert inbox() == [question.text]
        perdure.answer("r", "approve")
        finish()
        assert question.approves == records_of("r", Kind.INTENT)[0].arguments.hex()

    @pytest.mark.parametrize("answer", ["yes", "", None, True, "approve "])
    def test_only_approve_and_deny_are_answers(self, answer: Any) -> None:
        ask()
        with pytest.raises(AnswerRefused, match="must be one of approve, deny"):
            perdure.answer("r", answer)
        assert letters() == []

    def test_a_second_word_is_refused_whatever_it_says(self) -> None:
        ask()
        perdure.answer("r", "deny", by="ada")
        with pytest.raises(AnswerRefused, match="answered before"):
            perdure.answer("r", "approve", by="bob")
        with pytest.raises(ApprovalDenied, match="by ada"):
            perdure.run(payer, run_id="r")
        assert world.lines == QUOTED

    def test_a_function_of_the_arguments_says_whether_to_ask(self) -> None:
        @perdure.effect(approve=lambda to, cents: cents > 100)
        def transfer(to: str, cents: int) -> str:
            world.note(f"transferred {cents}")
            return f"transferred {cents}"

        @perdure.agent
        def agent() -> list[str]:
            return [transfer("ada", 100), transfer("ada", cents=101)]

        with pytest.raises(RunWaits, match="cents=101"):
            perdure.run(agent, run_id="r")
        assert world.lines == ["transferred 100"]
        perdure.answer("r", "approve")
        assert perdure.run(agent, run_id="r") == ["transferred 100", "transferred 101"]
        assert world.lines == ["transferred 100", "transferred 101"]

    def test_two_effects_at_once_are_approved_each_on_its_own(self) -> None:
        @perdure.agent
        async def agent() -> list[str]:
            paid = await asyncio.gather(pay_async("ada", 1), pay_async("bob", 2), return_exceptions=True)
            return [str(result) for result in paid]

        with pytest.raises(RunWaits, match="and 1 more"):
            perdure.run(agent, run_id="r")
        perdure.answer("r", "approve", question="bob")
        with pytest.raises(RunWaits):
            perdure.run(agent, run_id="r")
        assert world.lines == ["paid bob 2"]
        perdure.answer("r", "deny", question="ada", by="eve")
        denied, paid = perdure.run(agent, run_id="r")
        assert paid == "paid bob 2"
        assert denied == "pay_async(to='ada', cents=1) was not approved by eve."
        assert world.lines == ["paid bob 2"]

    def test_a_started_run_goes_on_by_itself_once_it_is_approved(self) -> None:
        with Bell(RunEnded) as bell:
            handle = perdure.start(payer, run_id="r")
            assert bell.wait().reason == "human"
            perdure.answer("r", "approve")
            assert handle.result(PATIENCE_SECONDS) == "paid ada 500"
        assert world.lines == PAID

    def test_outside_a_run_nobody_could_approve_it_so_it_is_not_performed(self) -> None:
        with pytest.raises(NotInRun, match="needs an approval"):
            pay("ada", 1)
        assert world.lines == []


class TestKills:
    @both
    @pytest.mark.parametrize("side", [*UNWRITTEN, *WRITTEN])
    def test_killed_around_the_question_it_is_asked_once(self, agent: Agent, side: str) -> None:
        killed(f"{side}:{QUESTION}#1", lambda: perdure.run(agent, run_id="r"))
        ask(agent)
        perdure.answer("r", "approve")
        finish(agent)

    @both
    @pytest.mark.parametrize("side", [*UNWRITTEN, *WRITTEN])
    def test_killed_around_the_approval_nobody_is_asked_again(self, agent: Agent, side: str) -> None:
        ask(agent)
        perdure.answer("r", "approve")
        killed(f"{side}:{ANSWER}#1", lambda: perdure.run(agent, run_id="r"))
        assert world.lines == QUOTED
        finish(agent)
        assert letters() == [("answer", True)]

    @both
    @pytest.mark.parametrize("side", UNWRITTEN)
    def test_killed_after_the_approval_before_the_intent_it_is_performed_once(self, agent: Agent, side: str) -> None:
        ask(agent)
        perdure.answer("r", "approve")
        killed(f"{side}:intent:main.1#1", lambda: perdure.run(agent, run_id="r"))
        assert world.lines == QUOTED
        finish(agent)

    @both
    @pytest.mark.parametrize("side", [*WRITTEN, "paid"])
    def test_killed_after_the_intent_it_is_in_doubt_and_not_performed_again(self, agent: Agent, side: str) -> None:
        ask(agent)
        perdure.answer("r", "approve")
        if side == "paid":
            world.killed_at("paid", lambda: perdure.run(agent, run_id="r"))
        else:
            killed(f"{side}:intent:main.1#1", lambda: perdure.run(agent, run_id="r"))
        before = world.lines
        with pytest.raises(EffectInDoubt):
            perdure.run(agent, run_id="r")
        assert world.lines == before
        assert len(questions()) == 1
        post("r", "happened", "paid ada 500", name="pay" if agent is payer else "pay_async")
        assert perdure.run(agent, run_id="r") == "paid ada 500"
        assert world.lines == before
        assert len(questions()) == 1

    @both
    def test_in_doubt_and_settled_as_not_done_it_is_performed_under_the_same_approval(self, agent: Agent) -> None:
        ask(agent)
        perdure.answer("r", "approve")
        killed("after:intent:main.1#1", lambda: perdure.run(agent, run_id="r"))
        with pytest.raises(EffectInDoubt):
            perdure.run(agent, run_id="r")
        post("r", "did_not_happen", name="pay" if agent is payer else "pay_async")
        finish(agent)

    @both
    @pytest.mark.parametrize("side", WRITTEN)
    def test_killed_after_the_receipt_it_is_done(self, agent: Agent, side: str) -> None:
        ask(agent)
        perdure.answer("r", "approve")
        killed(f"{side}:receipt:main.1#1", lambda: perdure.run(agent, run_id="r"))
        finish(agent)


class TestEditedArguments:
    @both
    def test_other_arguments_than_those_asked_about_park_and_nothing_is_performed(self, agent: Agent) -> None:
        ask(agent)
        perdure.answer("r", "approve")
        paying["cents"] = 50_000
        with pytest.raises(JournalDiverged):
            perdure.run(agent, run_id="r")
        assert state_of("r") == "waiting (parked)"
        assert world.lines == QUOTED
        assert bodies_of("r", Kind.INTENT) == []
        assert letters() == [("answer", False)]
        paying["cents"] = 500
        finish(agent)

    @both
    def test_other_arguments_than_those_approved_park_and_nothing_is_performed(self, agent: Agent) -> None:
        ask(agent)
        perdure.answer("r", "approve")
        killed(f"after:{ANSWER}#1", lambda: perdure.run(agent, run_id="r"))
        paying["cents"] = 50_000
        with pytest.raises(JournalDiverged):
            perdure.run(agent, run_id="r")
        assert world.lines == QUOTED
        assert bodies_of("r", Kind.INTENT) == []
        paying["cents"] = 500
        finish(agent)

    def test_an_approval_is_not_used_for_another_effect_at_its_place(self) -> None:
        @perdure.effect(approve=True)
        def wire(to: str, cents: int) -> str:
            world.note(f"wired {cents}")
            return "wired"

        effects: list[Callable[[str, int], str]] = [pay]

        @perdure.agent
        def agent() -> str:
            return effects[0](quote("ada"), 500)

        ask(agent)
        perdure.answer("r", "approve")
        effects[0] = wire
        with pytest.raises(JournalDiverged):
            perdure.run(agent, run_id="r")
        assert world.lines == QUOTED

    def test_an_effect_that_needs_no_approval_any_more_is_performed(self) -> None:
        needed = [True]

        @perdure.effect(approve=lambda to: needed[0])
        def tell(to: str) -> str:
            world.note(f"told {to}")
            return f"told {to}"

        @perdure.agent
        def agent() -> str:
            return tell("ada")

        with pytest.raises(RunWaits):
            perdure.run(agent, run_id="r")
        needed[0] = False
        assert perdure.run(agent, run_id="r") == "told ada"
        assert world.lines == ["told ada"]
        assert perdure.run(agent, run_id="r") == "told ada"


class TestDenying:
    def test_denied_it_raises_is_recorded_and_not_performed(self) -> None:
        ask()
        perdure.answer("r", "deny", by="bob")
        with pytest.raises(ApprovalDenied, match=r"pay\(to='ada', cents=500\) was not approved by bob"):
            perdure.run(payer, run_id="r")
        assert world.lines == QUOTED
        assert state_of("r") == "failed"
        assert bodies_of("r", Kind.INTENT) == []
        (receipt,) = bodies_of("r", Kind.RECEIPT)
        assert receipt.failure.type == "perdure.errors.ApprovalDenied"

    @both
    def test_an_agent_that_catches_the_denial_sees_the_same_at_every_replay(self, agent: Agent) -> None:
        @perdure.agent
        def sync_catcher() -> str:
            try:
                return pay("ada", 500)
            except ApprovalDenied as denied:
                world.note(str(denied))
                world.moment("caught")
                return "denied"

        @perdure.agent
        async def async_catcher() -> str:
            try:
                return await pay_async("ada", 500)
            except ApprovalDenied as denied:
                world.note(str(denied))
                world.moment("caught")
                return "denied"

        catcher: Agent = sync_catcher if agent is payer else async_catcher
        ask(catcher)
        perdure.answer("r", "deny", by="bob")
        world.killed_at("caught", lambda: perdure.run(catcher, run_id="r"))
        assert perdure.run(catcher, run_id="r") == "denied"
        first, second = world.lines
        assert first == second
        assert len(questions()) == 1

    @both
    def test_a_run_that_a_denial_ended_asks_anew_when_it_is_started_again(self, agent: Agent) -> None:
        ask(agent)
        perdure.answer("r", "deny")
        with pytest.raises(ApprovalDenied):
            perdure.run(agent, run_id="r")
        with pytest.raises(AnswerRefused, match="failed"):
            perdure.answer("r", "approve")
        ask(agent)
        assert len(questions()) == 2
        perdure.answer("r", "approve")
        finish(agent, asked=2)

    @both
    @pytest.mark.parametrize("side", [*UNWRITTEN, *WRITTEN])
    @pytest.mark.parametrize("record", [ANSWER, "receipt:main.1", "ended:"])
    def test_killed_anywhere_on_the_way_a_denied_run_asks_anew_when_it_is_started_again(
        self, agent: Agent, record: str, side: str
    ) -> None:
        ask(agent)
        perdure.answer("r", "deny")
        killed(f"{side}:{record}#1", lambda: perdure.run(agent, run_id="r"))
        if run_of("r").state != "failed":
            with pytest.raises(ApprovalDenied):
                perdure.run(agent, run_id="r")
        assert len(questions()) == 1
        ask(agent)
        assert len(questions()) == 2
        assert world.lines == QUOTED
        perdure.answer("r", "approve")
        finish(agent, asked=2)

    def test_cancelled_while_it_waits_for_approval_it_is_never_performed(self) -> None:
        ask()
        perdure.cancel("r")
        with pytest.raises(AnswerRefused):
            perdure.answer("r", "approve")
        assert world.lines == QUOTED
        assert len(opened()) == 1


class TestAfterFailures:
    def test_an_approval_given_while_a_failure_was_handled_does_not_park_the_run_that_goes_on(self) -> None:
        broken = [True]

        @perdure.step
        def flaky() -> str:
            if broken[0]:
                raise ValueError("broken")
            return "mended"

        @perdure.agent
        def agent() -> str:
            quote("ada")
            try:
                return flaky()
            except ValueError:
                pay("ada", 500)
                raise

        ask(agent)
        perdure.answer("r", "approve")
        with pytest.raises(ValueError, match="broken"):
            perdure.run(agent, run_id="r")
        assert world.lines == PAID
        broken[0] = False
        assert perdure.run(agent, run_id="r") == "mended"
        assert world.lines == PAID

    def test_an_effect_that_failed_after_its_approval_is_attempted_anew_under_it(self) -> None:
        refusing = [True]

        @perdure.effect(approve=True, name="pay")
        def fragile(to: str) -> str:
            if refusing[0]:
                raise ConnectionRefusedError("nobody there")
            world.note(f"paid {to}")
            return f"paid {to}"

        @perdure.agent
        def agent() -> str:
            return fragile("ada")

        ask(agent)
        perdure.answer("r", "approve")
        with pytest.raises(ConnectionRefusedError):
            perdure.run(agent, run_id="r")
        refusing[0] = False
        assert perdure.run(agent, run_id="r") == "paid ada"
        assert world.lines == ["paid ada"]
        assert len(questions()) == 1

    def test_a_condition_that_fails_fails_the_run_and_performs_nothing(self) -> None:
        def condition(to: str) -> bool:
            raise LookupError(f"no limit for {to}")

        @perdure.effect(approve=condition)
        def transfer(to: str) -> None:
            world.note("transferred")

        @perdure.agent
        def agent() -> None:
            transfer("ada")

        with pytest.raises(LookupError):
            perdure.run(agent, run_id="r")
        assert world.lines == []

    @pytest.mark.parametrize("approve", ["yes", 1, None], ids=repr)
    def test_a_condition_that_is_none_is_refused_where_the_effect_is_defined(self, approve: Any) -> None:
        with pytest.raises(UsageError, match="approve="):
            perdure.effect(approve=approve)(lambda: None)

    def test_a_condition_that_would_have_to_be_awaited_is_refused(self) -> None:
        async def condition() -> bool:
            return False

        with pytest.raises(UsageError, match="approve="):
            perdure.effect(approve=condition)(lambda: None)  # type: ignore[arg-type]


def test_where_another_process_is_quicker_the_handle_gets_its_result(tmp_path: Path, store: Path) -> None:
    with Bell(RunEnded) as bell:
        handle = perdure.start(clerk.payer, run_id=clerk.RUN_ID)
        assert bell.wait().reason == "human"
        settings = {"PERDURE_STORE": str(store), clerk.ACT: "race"}
        quicker = warm.run(
            [sys.executable, "-m", "tests.waits.clerk"],
            cwd=tmp_path,
            env=environment(settings),
            input="\n",
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        assert quicker.returncode in (0, RunHeld.exit_code), quicker.stderr
        assert handle.result(PATIENCE_SECONDS) == "paid fare 500closed"
    assert (tmp_path / "ledger").read_text() == "paid fare 500\n"
    assert len(questions(clerk.RUN_ID)) == 1
