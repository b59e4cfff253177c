"""Scripted people answer what they were told to, in order; a question that nobody answers is refused by name."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import pytest

import perdure
from perdure.errors import ApprovalDenied, RunWaits
from perdure.testing.clock import ManualClock
from perdure.testing.people import People, UnscriptedQuestion

STORES = pytest.mark.parametrize("perdure_store", ["memory", "sqlite", "postgresql"], indirect=True)
performed: list[str] = []


@pytest.fixture(autouse=True)
def nothing_performed() -> None:
    performed.clear()


@dataclass
class Form:
    reason: str
    cents: int


@perdure.effect
def pay(to: str) -> str:
    performed.append(to)
    return f"paid {to}"


@perdure.effect(approve=True)
def wire(to: str) -> str:
    performed.append(to)
    return f"wired {to}"


@perdure.effect
def lost(to: str) -> str:
    raise OSError(to)


@perdure.effect(name="courier")
def named_otherwise(to: str) -> str:
    raise OSError(to)


@perdure.step
def looked_up(to: str) -> str:
    return to


@perdure.agent
def desk(order: str) -> str:
    answer = perdure.ask(f"Refund {order}?", options=["yes", "no"], assignee="lead")
    return pay(order) if answer.choice == "yes" else f"kept: {answer.note} ({answer.by})"


@perdure.agent
async def survey(topics: list[str]) -> list[str]:
    answers = await asyncio.gather(*(_asked(topic) for topic in topics))
    return [str(answer.value) for answer in answers]


async def _asked(topic: str) -> perdure.Answer:
    return await perdure.ask(f"What of {topic}?")


@perdure.agent
def form() -> int:
    answer = perdure.ask("How much?", form=Form)
    value: Form = answer.value
    return value.cents


@perdure.agent
def wires(to: str) -> str:
    try:
        return wire(to)
    except ApprovalDenied as denied:
        return f"denied: {denied}"


@perdure.agent
def parcel() -> list[object]:
    return [perdure.wait_for("parcel"), perdure.wait_for("parcel")]


@perdure.agent
def in_doubt() -> str:
    return lost("x")


@perdure.agent
def in_doubt_of_another_name() -> str:
    return named_otherwise("x")


@STORES
def test_question_is_answered_by_a_part_of_its_text(people: People) -> None:
    people.answer("Refund…", value=True)
    assert perdure.run(desk, "A") == "paid A"
    assert people.asked == ["Refund A?"]


@STORES
def test_answers_to_like_questions_are_given_in_order(people: People) -> None:
    people.answer("Refund", "no", by="ada", note="twice").answer("Refund", "yes")
    assert perdure.run(desk, "A") == "kept: twice (ada)"
    assert perdure.start(desk, "B").result(30) == "paid B"


def test_questions_at_once_are_told_apart(people: People) -> None:
    people.answer("What of otters?", "wet").answer("* owls?", "wise")
    assert perdure.run(survey, ["owls", "otters"]) == ["wise", "wet"]


def test_form_and_assignee_and_any_number_of_times(people: People) -> None:
    people.answer("How much", Form("late", 7)).answer(value=False, assignee="lead", times=-1)
    assert perdure.run(form) == 7
    assert perdure.run(desk, "A").startswith("kept")
    assert perdure.run(desk, "B").startswith("kept")


def test_effects_are_approved_and_rejected_by_name(people: People) -> None:
    people.approve("wire").reject("wire", note="too much")
    assert perdure.run(wires, "A") == "wired A"
    assert "too much" in perdure.run(wires, "B")
    assert performed == ["A"]


@STORES
def test_signals_come_when_they_are_waited_for(people: People) -> None:
    people.signal("parcel", {"state": "sent"}).signal("parcel", 2)
    assert perdure.run(parcel) == [{"state": "sent"}, 2]


@pytest.mark.parametrize(("outcome", "value", "expected"), [("happened", "found", "found")])
def test_doubt_is_settled_by_a_person(people: People, outcome: str, value: str, expected: str) -> None:
    people.settle("lost", outcome, value, by="ada")
    assert perdure.run(in_doubt) == expected


def test_effects_may_be_named_by_their_functions(people: People) -> None:
    people.settle(lost, "happened", "found").settle(named_otherwise, "happened", "there")
    assert perdure.run(in_doubt) == "found"
    assert perdure.run(in_doubt_of_another_name) == "there"
    people.approve(wire).reject(wire, note="too much")
    assert perdure.run(wires, "A") == "wired A"
    assert "too much" in perdure.run(wires, "B")


@pytest.mark.parametrize("wrong", [print, looked_up, None, 7])
@pytest.mark.parametrize("say", [People.settle, People.approve, People.reject])
def test_what_is_no_effect_is_refused_with_what_to_write(people: People, say: Any, wrong: Any) -> None:
    with pytest.raises(perdure.PerdureError, match="no effect") as refused:
        say(people, wrong)
    assert "send_email or 'send_email'" in refused.value.hint
    assert people.unused() == []


def test_verdict_that_it_fails_reaches_the_agent(people: People) -> None:
    people.settle("lost", "fail")
    with pytest.raises(perdure.errors.StepFailed, match="settled as failed"):
        perdure.run(in_doubt)


@STORES
def test_question_that_nobody_answers_stops_its_run_with_what_to_write(people: People) -> None:
    people.answer("Something else", value=True)
    with pytest.raises(UnscriptedQuestion) as refused:
        perdure.run(desk, "A")
    assert "asks of lead 'Refund A?' (choices: yes, no)" in refused.value.message
    assert "left in the script: answer 'Something else' with True" in refused.value.message
    assert "people.answer('Refund A?', …)" in refused.value.hint
    with pytest.raises(UnscriptedQuestion):
        perdure.start(desk, "B").result(30)
    assert performed == []
    people.forget()


def test_yes_to_a_question_without_one_is_refused(people: People) -> None:
    @perdure.agent
    def which() -> str:
        return perdure.ask("Which?", options=["send", "discard"]).choice

    people.answer("Which?", value=True)
    with pytest.raises(UnscriptedQuestion, match="no yes and no: send, discard"):
        perdure.run(which)


def test_question_may_be_left_open_on_purpose(people: People, clock: ManualClock) -> None:
    people.leave_open("Refund")
    with pytest.raises(RunWaits):
        perdure.run(desk, "A")
    people.answer("Refund", value=True)
    assert people.unused() == ["answer 'Refund' with True"]
    perdure.answer(perdure.run(_name_of_newest), "yes")
    assert perdure.run(desk, "A") == "paid A"
    people.forget()


@perdure.agent
def _name_of_newest() -> str:
    from perdure.engine.session import session

    return next(run.run_id for run in session().store.list_runs() if run.agent.endswith("desk"))


def test_impossible_verdict_is_refused(people: People) -> None:
    with pytest.raises(perdure.PerdureError, match="no verdict"):
        people.settle("lost", "maybe")
