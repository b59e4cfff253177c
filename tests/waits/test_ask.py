"""A question to a person outlives every process, is asked once, and its answer is consumed once."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import perdure
from perdure import clock
from perdure.engine.active import Active
from perdure.engine.session import session
from perdure.errors import (
    AnswerRefused,
    DeadlineExceeded,
    EffectInDoubt,
    JournalDiverged,
    NotInRun,
    RunPaused,
    RunWaits,
    UnknownRun,
    UnstorableValue,
    UsageError,
)
from perdure.events import Observable, QuestionDue, RunEnded, WaitOpened
from perdure.records import Kind
from tests import warm
from tests.crash.nursery import environment
from tests.engine.journals import bodies_of, newest_run, records_of, run_of, runs, state_of
from tests.engine.manual_clock import ManualClock
from tests.engine.world import world
from tests.waits.desk import (
    PATIENCE_SECONDS,
    UNWRITTEN,
    WRITTEN,
    Bell,
    frozen,
    inbox,
    killed,
    letters,
    mails,
    opened,
    questions,
    shown,
    thawed,
    threads_end,
)

Agent = Callable[..., Any]
HOUR = 3600.0
WEEK = 7 * 24 * HOUR


@perdure.step
def draft(customer: str) -> str:
    world.note(f"drafted for {customer}")
    return f"Dear {customer}"


@perdure.step
async def draft_async(customer: str) -> str:
    world.note(f"drafted for {customer}")
    return f"Dear {customer}"


@perdure.effect
def send(text: str) -> str:
    world.note(f"sent {text}")
    return f"sent {text}"


asking: dict[str, Any] = {}
"""What the agents below ask; a test that edits the code between two runs changes it."""


@pytest.fixture(autouse=True)
def unedited() -> None:
    asking.clear()
    asking.update(question="Send this?", options=["send", "discard"])


@perdure.agent
def outreach(customer: str) -> str:
    text = draft(customer)
    answer = perdure.ask(**{"show": text, **asking})
    world.moment("answered")
    return send(text) if answer.choice == "send" else f"discarded by {answer.by}"


@perdure.agent
async def outreach_async(customer: str) -> str:
    text = await draft_async(customer)
    answer = await perdure.ask(**{"show": text, **asking})
    world.moment("answered")
    return send(text) if answer.choice == "send" else f"discarded by {answer.by}"


@perdure.agent
def careful() -> Any:
    draft("ada")
    answer = perdure.ask(**asking)
    world.note(f"{answer.choice or answer.value} by {answer.by}{' by default' if answer.is_default else ''}")
    return answer.choice or answer.value


both = pytest.mark.parametrize("agent", [outreach, outreach_async], ids=["sync", "async"])
ASKED = ["drafted for ada"]
SENT = ["drafted for ada", "sent Dear ada"]


def ask(agent: Agent = outreach, run_id: str | None = "r") -> RunWaits:
    """Run the agent up to its question."""
    with pytest.raises(RunWaits) as waits:
        perdure.run(agent, "ada", run_id=run_id)
    return waits.value


def finish(agent: Agent = outreach) -> None:
    """Run the agent, answered, to its end; nothing is repeated."""
    assert perdure.run(agent, "ada", run_id="r") == "sent Dear ada"
    assert world.lines == SENT
    assert len(questions()) == 1
    assert state_of("r") == "completed"


class TestAsking:
    @both
    def test_the_run_leaves_memory_and_says_what_happened_what_is_safe_and_what_to_do(self, agent: Agent) -> None:
        waits = ask(agent)
        assert (waits.exit_code, waits.reason) == (3, "human")
        name = run_of("r").name
        assert waits.lines() == [
            f"perdure: Run {name} waits for an answer: Send this?",
            "   safe: its one completed step is saved.",
            f"     do: perdure answer {name} <send|discard>, then start again",
        ]
        assert state_of("r") == "waiting (human)"
        assert run_of("r").holder == ""
        assert world.lines == ASKED

    def test_a_script_that_asks_prints_three_lines_and_exits_with_3(self, store: Path, tmp_path: Path) -> None:
        script = tmp_path / "script.py"
        script.write_text(
            "import perdure\n\n@perdure.agent\ndef agent():\n"
            "    return perdure.ask('Send this?', options=['send']).choice\n\nprint(perdure.run(agent))\n"
        )
        ended = scripted(script, store)
        assert (ended.returncode, ended.stdout) == (3, "")
        assert [line.partition(":")[0] for line in ended.stderr.splitlines()[-3:]] == ["perdure", "   safe", "     do"]
        assert "Traceback" not in ended.stderr
        perdure.answer(newest_run().run_id, "send")
        ended = scripted(script, store)
        assert (ended.returncode, ended.stdout) == (0, "send\n")

    def test_question_options_show_and_assignee_are_stored_for_whoever_looks(self) -> None:
        asking.update(assignee="ada", show={"draft": "Dear ada"})
        ask()
        (question,) = questions()
        assert (question.text, question.options, question.assignee) == ("Send this?", ("send", "discard"), "ada")
        assert bytes(question.show) == b'{"draft":"Dear ada"}'
        assert inbox() == ["Send this?"]
        assert records_of("r", Kind.WAIT)[0].name == "ask"

    def test_subscribers_hear_that_a_person_is_waited_for(self, seen: list[Observable]) -> None:
        ask()
        (waits,) = [event for event in seen if isinstance(event, WaitOpened)]
        assert (waits.reason, waits.shown) == ("human", "waits for an answer: Send this?")

    @both
    @pytest.mark.parametrize("side", UNWRITTEN)
    def test_killed_before_the_question_is_stored_it_is_asked_once(self, agent: Agent, side: str) -> None:
        killed(f"{side}:wait:main.1#1", lambda: perdure.run(agent, "ada", run_id="r"))
        assert questions() == []
        ask(agent)
        assert len(questions()) == 1
        perdure.answer("r", "send")
        finish(agent)

    @both
    @pytest.mark.parametrize("side", WRITTEN)
    def test_killed_after_the_question_is_stored_it_is_the_same_question(self, agent: Agent, side: str) -> None:
        killed(f"{side}:wait:main.1#1", lambda: perdure.run(agent, "ada", run_id="r"))
        before = questions()
        assert len(before) == 1
        ask(agent)
        ask(agent)
        assert questions() == before
        perdure.answer("r", "send")
        finish(agent)

    @pytest.mark.parametrize("side", WRITTEN)
    def test_a_question_whose_asker_was_killed_can_be_answered_before_anybody_starts_again(self, side: str) -> None:
        killed(f"{side}:wait:main.1#1", lambda: perdure.run(outreach, "ada", run_id="r"))
        perdure.answer("r", "send")
        finish()

    def test_killed_while_the_pause_is_written_down_the_question_stands(self) -> None:
        killed("inside:ended:#1", lambda: perdure.run(outreach, "ada", run_id="r"))
        perdure.answer("r", "send")
        finish()

    def test_two_questions_at_once_are_answered_each_on_its_own(self) -> None:
        @perdure.agent
        async def agent() -> list[str]:
            asked = [perdure.ask("First?", options=["a", "b"]), perdure.ask("Second?", options=["a", "b"])]
            return [answer.choice for answer in await asyncio.gather(*asked)]

        with pytest.raises(RunWaits, match="and 1 more"):
            perdure.run(agent, run_id="r")
        with pytest.raises(AnswerRefused, match="2 open questions") as refused:
            perdure.answer("r", "a")
        assert "1: First?; 2: Second?" in refused.value.hint
        perdure.answer("r", "b", question="Second")
        with pytest.raises(RunWaits):
            perdure.run(agent, run_id="r")
        perdure.answer("r", "a", question=1)
        assert perdure.run(agent, run_id="r") == ["a", "b"]


class TestAnswering:
    @both
    def test_an_answer_while_nobody_runs_is_stored_and_nothing_before_the_question_runs_again(
        self, agent: Agent
    ) -> None:
        ask(agent)
        assert world.elsewhere(lambda: perdure.answer("r", "send", by="bob")) == 0
        finish(agent)
        assert letters() == [("answer", True)]
        assert [answer.by for answer in bodies_of("r", Kind.ANSWER)] == ["bob"]

    def test_the_answer_says_who_gave_it_and_when(self, manual_clock: ManualClock) -> None:
        @perdure.agent
        def agent() -> list[Any]:
            answer = perdure.ask("Send this?", options=["send"])
            return [answer.choice, answer.value, answer.by, answer.at, answer.is_default]

        with pytest.raises(RunWaits):
            perdure.run(agent, run_id="r")
        manual_clock.pass_seconds(60)
        perdure.answer("r", "send", by="bob")
        at = clock.instant(manual_clock.wall)
        manual_clock.pass_seconds(60)
        assert perdure.run(agent, run_id="r") == ["send", None, "bob", at, False]

    def test_the_same_answer_many_times_is_consumed_once_and_the_others_are_kept_as_refused(self) -> None:
        ask()
        perdure.answer("r", "send")
        for _ in range(4):
            with pytest.raises(AnswerRefused, match="answered before") as refused:
                perdure.answer("r", "send")
            assert refused.value.safe
            assert refused.value.hint
        finish()
        assert letters() == [("answer", True), *[("refused", False)] * 4]

    def test_a_second_different_answer_is_refused_and_recorded(self) -> None:
        ask()
        perdure.answer("r", "discard", by="ada")
        with pytest.raises(AnswerRefused):
            perdure.answer("r", "send", by="bob")
        assert perdure.run(outreach, "ada", run_id="r") == "discarded by ada"
        assert [(mail.kind, mail.by) for mail in mails()] == [("answer", "ada"), ("refused", "bob")]
        assert '"send"' in mails()[1].body

    def test_an_answer_to_a_question_that_was_consumed_is_refused_and_recorded(self) -> None:
        @perdure.agent
        def agent() -> str:
            choice = perdure.ask("Send this?", options=["send"]).choice
            perdure.wait_for("done")
            return choice

        with pytest.raises(RunWaits):
            perdure.run(agent, run_id="r")
        perdure.answer("r", "send")
        with pytest.raises(RunWaits):
            perdure.run(agent, run_id="r")
        with pytest.raises(AnswerRefused):
            perdure.answer("r", "send")
        assert letters() == [("answer", True), ("refused", False)]

    def test_an_answer_to_a_completed_run_is_refused_and_recorded(self) -> None:
        ask()
        perdure.answer("r", "send")
        finish()
        with pytest.raises(AnswerRefused, match="completed"):
            perdure.answer("r", "discard")
        assert letters() == [("answer", True), ("refused", False)]

    def test_an_answer_after_expiry_is_refused_and_recorded(self, manual_clock: ManualClock) -> None:
        asking.update(timeout="8h", default="discard")
        ask()
        manual_clock.pass_seconds(8 * HOUR)
        with pytest.raises(AnswerRefused, match="has expired"):
            perdure.answer("r", "send")
        assert letters() == [("refused", False)]
        assert perdure.run(outreach, "ada", run_id="r") == "discarded by timeout"

    def test_an_answer_after_cancel_is_refused_and_recorded(self) -> None:
        ask()
        perdure.cancel("r")
        assert state_of("r") == "cancelled"
        with pytest.raises(AnswerRefused, match="cancelled"):
            perdure.answer("r", "send")
        assert ("refused", False) in letters()
        with pytest.raises(UsageError, match="was cancelled"):
            perdure.run(outreach, "ada", run_id="r")
        assert world.lines == ASKED

    def test_an_answer_on_its_way_while_the_question_expires_is_refused(
        self, manual_clock: ManualClock, capfd: pytest.CaptureFixture[str]
    ) -> None:
        asking.update(timeout="8h", default="discard")
        ask()
        answering = frozen("before:post#1", lambda: perdure.answer("r", "send"))
        manual_clock.pass_seconds(8 * HOUR)
        assert perdure.run(outreach, "ada", run_id="r") == "discarded by timeout"
        assert thawed(answering) == 1
        assert "AnswerRefused" in capfd.readouterr().err
        assert world.lines == ASKED

    def test_an_answer_on_its_way_while_the_run_is_cancelled_is_refused(
        self, capfd: pytest.CaptureFixture[str]
    ) -> None:
        ask()
        answering = frozen("before:post#1", lambda: perdure.answer("r", "send"))
        perdure.cancel("r")
        assert thawed(answering) == 1
        assert "AnswerRefused" in capfd.readouterr().err

    def test_an_answer_that_is_consumed_while_its_sender_stands_still_was_accepted(self) -> None:
        ask()
        answering = frozen("after:post#1", lambda: perdure.answer("r", "send"))
        finish()
        assert thawed(answering) == 0

    def test_an_answered_question_is_in_nobodys_inbox(self) -> None:
        ask()
        assert inbox() == ["Send this?"]
        perdure.answer("r", "send")
        assert inbox() == []

    def test_a_question_is_in_the_inbox_even_if_its_asker_was_killed(self) -> None:
        killed("after:wait:main.1#1", lambda: perdure.run(outreach, "ada", run_id="r"))
        assert inbox() == ["Send this?"]
        perdure.answer("r", "send")
        assert inbox() == []

    def test_a_question_is_in_the_inbox_while_another_branch_is_in_doubt(self) -> None:
        @perdure.effect
        async def post(to: str) -> str:
            raise TimeoutError("no answer")

        @perdure.agent
        async def agent() -> None:
            await asyncio.gather(perdure.ask("Send this?", options=["send"]), post("ada"))

        with pytest.raises(EffectInDoubt):
            perdure.run(agent, run_id="r")
        assert inbox() == ["Send this?"]

    def test_an_answer_that_is_no_option_is_refused_and_the_question_stays_open(self) -> None:
        ask()
        with pytest.raises(AnswerRefused, match="must be one of send, discard, not") as refused:
            perdure.answer("r", "maybe")
        assert "still waits" in refused.value.safe
        assert mails() == []
        perdure.answer("r", "send")
        finish()

    @pytest.mark.parametrize("answer", [{"choice": "send"}, ["send"], None, 1, True, float("nan"), object()])
    def test_an_answer_of_another_kind_is_refused(self, answer: object) -> None:
        ask()
        with pytest.raises(AnswerRefused):
            perdure.answer("r", answer)
        assert mails() == []

    def test_an_answer_to_nobody_is_refused(self) -> None:
        with pytest.raises(UnknownRun):
            perdure.answer("nobody", "send")

    def test_an_answer_to_a_run_that_asks_nothing_is_refused(self) -> None:
        @perdure.agent
        def agent() -> None:
            perdure.wait_for("go")

        with pytest.raises(RunWaits):
            perdure.run(agent, run_id="r")
        with pytest.raises(AnswerRefused, match="no open question"):
            perdure.answer("r", "send")

    @both
    @pytest.mark.parametrize("side", UNWRITTEN)
    def test_killed_between_answer_and_its_consumption_the_answer_stands(self, agent: Agent, side: str) -> None:
        ask(agent)
        perdure.answer("r", "send")
        killed(f"{side}:answer:main.1#1", lambda: perdure.run(agent, "ada", run_id="r"))
        assert letters() == [("answer", False)]
        finish(agent)
        assert letters() == [("answer", True)]

    @both
    @pytest.mark.parametrize("side", WRITTEN)
    def test_killed_right_after_the_answer_was_consumed_nobody_is_asked_again(self, agent: Agent, side: str) -> None:
        ask(agent)
        perdure.answer("r", "send")
        killed(f"{side}:answer:main.1#1", lambda: perdure.run(agent, "ada", run_id="r"))
        assert letters() == [("answer", True)]
        finish(agent)
        assert len(bodies_of("r", Kind.ANSWER)) == 1

    @both
    def test_killed_in_the_agent_after_the_answer_nobody_is_asked_again(self, agent: Agent) -> None:
        ask(agent)
        perdure.answer("r", "send")
        world.killed_at("answered", lambda: perdure.run(agent, "ada", run_id="r"))
        finish(agent)

    @pytest.mark.parametrize("side", UNWRITTEN)
    def test_an_answerer_killed_before_the_answer_is_stored_has_not_answered(self, side: str) -> None:
        ask()
        killed(f"{side}:post#1", lambda: perdure.answer("r", "send"))
        assert mails() == []
        perdure.answer("r", "send")
        finish()

    @pytest.mark.parametrize("side", WRITTEN)
    def test_an_answerer_killed_after_the_answer_is_stored_has_answered(self, side: str) -> None:
        ask()
        killed(f"{side}:post#1", lambda: perdure.answer("r", "send"))
        with pytest.raises(AnswerRefused):
            perdure.answer("r", "send")
        finish()

    @both
    def test_a_week_later_another_process_answers_and_the_run_goes_on(
        self, agent: Agent, manual_clock: ManualClock
    ) -> None:
        killed("after:wait:main.1#1", lambda: perdure.run(agent, "ada", run_id="r"))
        manual_clock.pass_seconds(WEEK)
        assert world.elsewhere(lambda: perdure.answer("r", "send", by="bob")) == 0
        finish(agent)

    def test_a_week_later_the_same_command_continues_the_run_and_does_not_ask_anew(
        self, manual_clock: ManualClock
    ) -> None:
        ask(run_id=None)
        manual_clock.pass_seconds(WEEK)
        perdure.answer(newest_run().run_id, "send")
        assert perdure.run(outreach, "ada") == "sent Dear ada"
        assert world.lines == SENT
        assert len(runs()) == 1


class TestEditedQuestions:
    @pytest.mark.parametrize(
        "edit",
        [
            {"question": "Send that?"},
            {"options": ["discard", "send"]},
            {"options": ["send", "discard", "later"]},
            {"show": "another draft"},
            {"options": None, "form": {"type": "string"}},
        ],
        ids=["text", "order of options", "options", "show", "form"],
    )
    def test_another_question_at_this_place_parks_and_the_old_answer_is_not_used(self, edit: dict[str, Any]) -> None:
        killed("after:wait:main.1#1", lambda: perdure.run(outreach, "ada", run_id="r"))
        perdure.answer("r", "send")
        asked = dict(asking)
        asking.update(edit)
        with pytest.raises(JournalDiverged):
            perdure.run(outreach, "ada", run_id="r")
        assert state_of("r") == "waiting (parked)"
        assert world.lines == ASKED
        assert letters() == [("answer", False)]
        asking.clear()
        asking.update(asked)
        finish()

    def test_another_question_after_the_answer_was_consumed_parks_too(self) -> None:
        ask()
        perdure.answer("r", "send")
        killed("after:answer:main.1#1", lambda: perdure.run(outreach, "ada", run_id="r"))
        asking["question"] = "Send that?"
        with pytest.raises(JournalDiverged, match="Send that"):
            perdure.run(outreach, "ada", run_id="r")
        assert world.lines == ASKED

    @pytest.mark.parametrize("edit", [{"assignee": "bob"}, {"reminder": "1h"}, {"timeout": "1h", "default": "discard"}])
    def test_who_is_asked_and_until_when_may_be_edited(self, edit: dict[str, Any]) -> None:
        ask()
        asking.update(edit)
        perdure.answer("r", "send")
        finish()

    def test_a_question_that_expires_after_its_timeout_was_edited_away_fails_by_its_recorded_one(
        self, manual_clock: ManualClock
    ) -> None:
        asking["timeout"] = "8h"
        ask()
        del asking["timeout"]
        manual_clock.pass_seconds(8 * HOUR)
        with pytest.raises(DeadlineExceeded, match="Nobody answered 'Send this\\?' in 28800 s"):
            perdure.run(outreach, "ada", run_id="r")


class TestTimeouts:
    def test_after_the_timeout_the_default_is_the_answer_now_and_at_every_replay(
        self, manual_clock: ManualClock
    ) -> None:
        asking.update(timeout=timedelta(hours=8), default="discard")
        with pytest.raises(RunWaits):
            perdure.run(careful, run_id="r")
        manual_clock.pass_seconds(8 * HOUR)
        killed("after:answer:main.1#1", lambda: perdure.run(careful, run_id="r"))
        assert perdure.run(careful, run_id="r") == "discard"
        assert world.lines == ["drafted for ada", "discard by timeout by default"]
        assert [answer.by for answer in bodies_of("r", Kind.ANSWER)] == ["timeout"]

    def test_the_time_counts_from_the_first_asking(self, manual_clock: ManualClock) -> None:
        asking.update(timeout="8h", default="discard")
        for _ in range(3):
            with pytest.raises(RunWaits):
                perdure.run(careful, run_id="r")
            manual_clock.pass_seconds(3 * HOUR)
        assert perdure.run(careful, run_id="r") == "discard"

    def test_without_a_default_it_raises_and_a_start_after_that_asks_anew(self, manual_clock: ManualClock) -> None:
        asking["timeout"] = "8h"
        with pytest.raises(RunWaits):
            perdure.run(careful, run_id="r")
        manual_clock.pass_seconds(8 * HOUR)
        with pytest.raises(DeadlineExceeded, match="Nobody answered 'Send this\\?' in 28800 s"):
            perdure.run(careful, run_id="r")
        assert state_of("r") == "failed"
        with pytest.raises(AnswerRefused, match="failed"):
            perdure.answer("r", "send")
        with pytest.raises(RunWaits):
            perdure.run(careful, run_id="r")
        assert len(questions()) == 2
        perdure.answer("r", "send", by="bob")
        assert perdure.run(careful, run_id="r") == "send"
        assert world.lines == ["drafted for ada", "send by bob"]

    def test_an_agent_that_catches_the_timeout_sees_it_at_every_replay(self, manual_clock: ManualClock) -> None:
        @perdure.agent
        def agent() -> str:
            try:
                return perdure.ask("Send this?", options=["send"], timeout=60).choice
            except DeadlineExceeded as late:
                world.note(f"caught {late}")
                world.moment("caught")
                return "nobody"

        with pytest.raises(RunWaits):
            perdure.run(agent, run_id="r")
        manual_clock.pass_seconds(60)
        world.killed_at("caught", lambda: perdure.run(agent, run_id="r"))
        assert perdure.run(agent, run_id="r") == "nobody"
        first, second = world.lines
        assert first == second

    def test_an_answer_in_time_counts_even_if_it_is_consumed_after_the_expiry(self, manual_clock: ManualClock) -> None:
        asking.update(timeout="8h", default="discard")
        with pytest.raises(RunWaits):
            perdure.run(careful, run_id="r")
        manual_clock.pass_seconds(8 * HOUR - 1)
        perdure.answer("r", "send", by="bob")
        manual_clock.pass_seconds(HOUR)
        assert perdure.run(careful, run_id="r") == "send"

    def test_a_timeout_of_zero_gives_the_default_at_once(self) -> None:
        asking.update(timeout=0, default="discard")
        assert perdure.run(careful, run_id="r") == "discard"
        assert len(questions()) == 1


class TestReminders:
    def remind(self, agent: Agent = careful) -> None:
        with pytest.raises(RunWaits):
            perdure.run(agent, run_id="r")

    def test_each_reminder_and_the_escalation_are_noted_and_published_once(
        self, manual_clock: ManualClock, seen: list[Observable]
    ) -> None:
        asking.update(assignee="ada", reminder=["2h", "1h"], escalate_to="lead", escalate_after="4h")
        told = []
        for hours in (0, 1, 0, 1, 0, 2, 0, 20):
            manual_clock.pass_seconds(hours * HOUR)
            seen.clear()
            self.remind()
            told.append([(event.about, event.to) for event in seen if isinstance(event, QuestionDue)])
        ada, lead = [("reminder", "ada")], [("escalation", "lead")]
        assert told == [[], ada, [], ada, [], lead, [], []]
        assert [(note.about, note.text) for note in bodies_of("r", Kind.NOTE)] == [*ada, *ada, *lead]
        assert len(questions()) == 1

    def test_the_event_names_the_question(self, manual_clock: ManualClock, seen: list[Observable]) -> None:
        asking["reminder"] = 60
        self.remind()
        manual_clock.pass_seconds(60)
        self.remind()
        (due,) = [event for event in seen if isinstance(event, QuestionDue)]
        assert (due.run_id, due.about, due.question) == ("r", "reminder", "Send this?")

    def test_the_run_wakes_for_its_next_reminder(self, manual_clock: ManualClock) -> None:
        asking.update(reminder=["1h", "3h"], escalate_to="lead", escalate_after="2h", timeout="4h")
        begun = manual_clock.wall
        for hour in (1, 2, 3, 4):
            self.remind()
            assert run_of("r").wake_at == pytest.approx(begun + hour * HOUR)
            manual_clock.pass_seconds(HOUR)

    @pytest.mark.parametrize("side", [*UNWRITTEN, *WRITTEN])
    def test_killed_around_a_reminder_it_is_noted_once(self, manual_clock: ManualClock, side: str) -> None:
        asking["reminder"] = "1h"
        self.remind()
        manual_clock.pass_seconds(HOUR)
        killed(f"{side}:note:main.1#1", lambda: perdure.run(careful, run_id="r"))
        self.remind()
        self.remind()
        assert [note.about for note in bodies_of("r", Kind.NOTE)] == ["reminder"]

    def test_killed_between_a_reminder_and_the_escalation_of_the_same_time_both_are_noted(
        self, manual_clock: ManualClock
    ) -> None:
        asking.update(reminder="1h", escalate_to="lead", escalate_after="1h")
        self.remind()
        manual_clock.pass_seconds(HOUR)
        killed("after:note:main.1#1", lambda: perdure.run(careful, run_id="r"))
        self.remind()
        assert [note.about for note in bodies_of("r", Kind.NOTE)] == ["reminder", "escalation"]

    def test_two_reminders_of_the_same_time_are_one(self, manual_clock: ManualClock) -> None:
        asking["reminder"] = ["1h", "60m"]
        self.remind()
        manual_clock.pass_seconds(HOUR)
        self.remind()
        assert [note.about for note in bodies_of("r", Kind.NOTE)] == ["reminder"]

    def test_nobody_is_reminded_of_an_answered_question(
        self, manual_clock: ManualClock, seen: list[Observable]
    ) -> None:
        asking["reminder"] = "1h"
        self.remind()
        perdure.answer("r", "send")
        manual_clock.pass_seconds(HOUR)
        assert perdure.run(careful, run_id="r") == "send"
        assert not [event for event in seen if isinstance(event, QuestionDue)]


class TestBadQuestions:
    @pytest.mark.parametrize(
        "given",
        [
            {"question": ""},
            {"question": " \n"},
            {"question": None},
            {"question": 5},
            {"question": "\ud800"},
            {"options": "send"},
            {"options": [""]},
            {"options": ["send", 1]},
            {"options": ["send", "send"]},
            {"options": [str(number) for number in range(101)]},
            {"options": 5},
            {"options": ["\ud800"]},
            {"form": {"type": "string"}},
            {"assignee": 5},
            {"assignee": "\ud800"},
            {"escalate_to": "lead"},
            {"escalate_after": "1h"},
            {"escalate_to": 5, "escalate_after": "1h"},
            {"default": "send"},
            {"timeout": "8h", "default": "maybe"},
            {"show": object()},
            {"show": float("nan")},
            {"show": "\ud800"},
        ],
        ids=shown,
    )
    def test_a_question_that_cannot_work_is_refused_and_nothing_is_recorded(self, given: dict[str, Any]) -> None:
        asking.update(given)
        with pytest.raises(UsageError) as refused:
            perdure.run(careful, run_id="r")
        assert refused.value.message
        assert refused.value.hint
        assert not isinstance(refused.value, NotInRun)
        assert opened() == []

    @pytest.mark.parametrize("name", ["timeout", "reminder", "escalate_after"])
    @pytest.mark.parametrize(
        "duration",
        [
            -1,
            -0.001,
            float("nan"),
            float("inf"),
            True,
            10**400,
            "",
            "8",
            "8 hours",
            "-8h",
            "nan",
            "1e3s",
            "9" * 400 + "s",
            timedelta(seconds=-1),
            timedelta(days=8000 * 365),
            timedelta.max,
            [[]],
            object(),
            b"8h",
        ],
        ids=lambda duration: shown(duration)[:20],
    )
    def test_a_duration_that_is_none_is_refused_and_nothing_is_recorded(self, name: str, duration: Any) -> None:
        asking[name] = duration
        if name == "escalate_after":
            asking["escalate_to"] = "lead"
        with pytest.raises(UsageError, match=name) as refused:
            perdure.run(careful, run_id="r")
        assert refused.value.safe == "nothing was recorded."
        assert refused.value.hint
        assert opened() == []

    def test_outside_a_run_there_is_nobody_to_ask_for(self) -> None:
        with pytest.raises(NotInRun, match="outside a run") as refused:
            perdure.ask("Send this?")
        assert refused.value.hint

    def test_inside_the_body_of_a_step_it_is_refused(self) -> None:
        @perdure.step
        def body() -> None:
            perdure.ask("Send this?")

        @perdure.agent
        def agent() -> None:
            body()

        with pytest.raises(UsageError, match="inside the body of body"):
            perdure.run(agent, run_id="r")
        assert opened() == []

    def test_an_unstorable_show_names_the_part(self) -> None:
        asking["show"] = {"client": object()}
        with pytest.raises(UnstorableValue, match=r"show\.client"):
            perdure.run(careful, run_id="r")


class TestHandles:
    """Runs that `perdure.start` began have no thread while they wait, and go on by themselves."""

    @both
    def test_a_waiting_run_has_no_thread_and_no_memory_and_goes_on_after_its_answer(self, agent: Agent) -> None:
        with Bell(RunEnded) as bell:
            handle = perdure.start(agent, "ada", run_id="r")
            assert bell.wait().reason == "human"
            threads_end()
            gc.collect()
            store = session().store  # a thread that another test left behind may still hold a run of its own
            loaded = [found for found in gc.get_objects() if isinstance(found, Active) and found.store is store]
            assert loaded == []
            assert handle.status() == "waiting (human)"
            perdure.answer("r", "send")
            assert handle.result(PATIENCE_SECONDS) == "sent Dear ada"
        assert world.lines == SENT

    def test_it_goes_on_after_an_answer_from_another_process(self) -> None:
        with Bell(RunEnded) as bell:
            handle = perdure.start(outreach, "ada", run_id="r")
            bell.wait()
            answering = warm.run(
                [sys.executable, "-c", "import perdure; perdure.answer('r', 'send')"],
                env=environment({"PERDURE_STORE": session().store.location}),
                timeout=PATIENCE_SECONDS,
                check=False,
            )
            assert answering.returncode == 0
            assert handle.result(PATIENCE_SECONDS) == "sent Dear ada"

    def test_it_can_be_awaited(self) -> None:
        async def awaited() -> str:
            return await perdure.start(outreach, "ada", run_id="r")

        async def answered() -> list[Any]:
            loop, waits = asyncio.get_running_loop(), asyncio.Event()

            def tell(_: Observable) -> None:
                loop.call_soon_threadsafe(waits.set)

            end = perdure.subscribe(tell, RunEnded)
            waiting = asyncio.create_task(awaited())
            await waits.wait()
            end()
            perdure.answer("r", "send")
            return [await waiting]

        assert asyncio.run(answered()) == ["sent Dear ada"]

    def test_it_goes_on_after_it_was_paused_and_unpaused(self) -> None:
        with Bell(RunEnded) as bell:
            handle = perdure.start(outreach, "ada", run_id="r")
            assert bell.wait().reason == "human"
            perdure.pause("r", by="ops")
            assert bell.wait().reason == "parked"
            perdure.answer("r", "send")
            with pytest.raises(RunPaused, match="paused by ops"):
                perdure.run(outreach, "ada", run_id="r")
            assert world.lines == ASKED
            perdure.unpause("r")
            assert handle.result(PATIENCE_SECONDS) == "sent Dear ada"
        assert world.lines == SENT

    def test_a_question_in_one_branch_does_not_stop_the_work_of_another(self) -> None:
        go_on = threading.Event()

        @perdure.step
        def work() -> str:
            assert go_on.wait(PATIENCE_SECONDS)
            world.note("worked")
            return "worked"

        @perdure.agent
        async def agent() -> list[str]:
            async def asked() -> str:
                return (await perdure.ask("Send this?", options=["send"])).choice

            return list(await asyncio.gather(asked(), asyncio.to_thread(work)))

        with Bell(WaitOpened, RunEnded) as bell:
            handle = perdure.start(agent, run_id="r")
            assert isinstance(bell.wait(), WaitOpened)
            assert handle.status() == "running"
            assert inbox() == ["Send this?"]
            go_on.set()
            assert isinstance(bell.wait(), RunEnded)
            assert world.lines == ["worked"]
            perdure.answer("r", "send")
            assert handle.result(PATIENCE_SECONDS) == ["send", "worked"]
        assert world.lines == ["worked"]

    def test_an_answer_is_heard_while_another_branch_works(self) -> None:
        answered = threading.Event()

        @perdure.step
        def work() -> str:
            assert answered.wait(PATIENCE_SECONDS)
            return "worked"

        @perdure.agent
        async def agent() -> list[str]:
            async def asked() -> str:
                choice = (await perdure.ask("Send this?", options=["send"])).choice
                answered.set()
                return choice

            return list(await asyncio.gather(asked(), asyncio.to_thread(work)))

        with Bell(WaitOpened) as bell:
            handle = perdure.start(agent, run_id="r")
            bell.wait()
            perdure.answer("r", "send")
            assert handle.result(PATIENCE_SECONDS) == ["send", "worked"]
        assert len(bodies_of("r", Kind.DELIVERY)) == 1

    def test_a_cancelled_run_ends_and_its_handle_says_so(self) -> None:
        with Bell(RunEnded) as bell:
            handle = perdure.start(outreach, "ada", run_id="r")
            bell.wait()
            handle.cancel()
            with pytest.raises((UsageError, perdure.errors.RunCancelled), match="cancelled"):
                handle.result(PATIENCE_SECONDS)
        assert state_of("r") == "cancelled"


def scripted(script: Path, store: Path) -> subprocess.CompletedProcess[str]:
    return warm.run(
        [sys.executable, str(script)],
        env=environment({"PERDURE_STORE": str(store)}),
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
