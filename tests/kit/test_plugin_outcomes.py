"""Scripted outcomes take the place of bodies alone: intent, receipt, retries, doubts and verdicts are the engine's."""

from __future__ import annotations

from typing import Any

import pytest

import perdure
from perdure.errors import DeadlineExceeded, EffectInDoubt
from perdure.testing.clock import ManualClock
from perdure.testing.outcomes import Outcomes, Unscripted
from perdure.testing.people import People
from perdure.testing.stores import StoreInUse


class Bounced(Exception):
    """An exception of the module of the effect."""


@perdure.step(retry=perdure.Retry(attempts=3, delay_seconds=60), timeout=30)
def search(query: str) -> list[str]:
    raise AssertionError(query)


@perdure.step(timeout=30)
def look_up(query: str) -> str:
    raise AssertionError(query)


@perdure.step
async def think(topic: str) -> str:
    raise AssertionError(topic)


@perdure.effect(certain=(Bounced,))
def mail(to: str, text: str = "hello") -> str:
    raise AssertionError(to)


@perdure.effect
def pay(cents: int) -> str:
    raise AssertionError(cents)


@pay.check
def was_paid(intent: perdure.Intent) -> perdure.Verdict:
    raise AssertionError(intent)


@perdure.effect(keyed=True)
def charge(cents: int) -> str:
    raise AssertionError(cents)


@perdure.agent
def searches(query: str) -> list[str]:
    return search(query)


@perdure.agent
def looks_up(query: str) -> str:
    return look_up(query)


@perdure.agent
async def thinks(topic: str) -> str:
    return await think(topic)


@perdure.agent
def mails(to: str) -> str:
    try:
        return mail(to)
    except Bounced as error:
        return f"bounced: {error}"


@perdure.agent
def pays(cents: int) -> str:
    return pay(cents)


@perdure.agent
def charges(cents: int) -> str:
    return charge(cents)


def kinds(store: StoreInUse) -> list[str]:
    from perdure.engine.session import session

    return [str(record.kind) for record in session().store.load_journal(store.runs()[0].run_id)][2:-1]


def test_effect_has_intent_and_receipt_and_its_calls_are_kept(outcomes: Outcomes, perdure_store: StoreInUse) -> None:
    script = outcomes(mail).returns("mail-1")
    assert perdure.run(mails, "ada") == "mail-1"
    assert kinds(perdure_store) == ["intent", "receipt"]
    (called,) = script.calls
    assert called.arguments == {"to": "ada", "text": "hello"}
    assert (called.attempt, called.run_id) == (1, perdure_store.runs()[0].run_id)
    assert called.key
    assert script.performed == script.calls


def test_values_come_in_order_and_the_last_one_stays(outcomes: Outcomes) -> None:
    outcomes(mail).returns("one", "two")
    assert [perdure.run(mails, name) for name in "abc"] == ["one", "two", "two"]


def test_failed_attempts_are_retried_as_the_step_says(outcomes: Outcomes, clock: ManualClock) -> None:
    script = outcomes(search).raises(OSError("busy")).then.hangs().then.returns(["owl"])
    assert perdure.run(searches, "q") == ["owl"]
    assert [call.attempt for call in script.calls] == [1, 2, 3]
    assert len(script.performed) == 1


def test_step_that_hangs_names_the_timeout_that_it_has(outcomes: Outcomes) -> None:
    outcomes(look_up).hangs()
    with pytest.raises(DeadlineExceeded, match=r"look_up took longer than its timeout of 30 s\."):
        perdure.run(looks_up, "q")
    outcomes(think).hangs()
    with pytest.raises(DeadlineExceeded, match="think hangs, and has no timeout"):
        perdure.run(thinks, "owls")


def test_exceptions_of_the_users_own_module_reach_the_agent(outcomes: Outcomes) -> None:
    outcomes(mail).raises(Bounced("no such box"))
    assert perdure.run(mails, "ada") == "bounced: no such box"


def test_async_bodies_are_scripted_too(outcomes: Outcomes) -> None:
    outcomes(think).returns("deep")
    assert perdure.run(thinks, "owls") == "deep"


def test_lost_answer_is_found_by_the_check_and_nothing_is_done_twice(
    outcomes: Outcomes, perdure_store: StoreInUse
) -> None:
    script = outcomes(pay).lost("p-1")
    assert perdure.run(pays, 5) == "p-1"
    assert kinds(perdure_store) == ["intent", "doubt", "verdict"]
    assert len(script.performed) == len(script.calls) == 1


def test_effect_that_never_arrived_is_done_after_the_check(outcomes: Outcomes, clock: ManualClock) -> None:
    script = outcomes(pay).never().then.returns("p-2")
    assert perdure.run(pays, 5) == "p-2"
    assert [call.attempt for call in script.calls] == [1, 2]
    assert len(script.performed) == 1


def test_keyed_effect_is_sent_again_under_its_key_and_done_once(outcomes: Outcomes, clock: ManualClock) -> None:
    script = outcomes(charge).lost("c-1").then.returns("c-2")
    assert perdure.run(charges, 5) == "c-1"
    assert len({call.key for call in script.calls}) == 1
    assert (len(script.calls), len(script.performed)) == (2, 1)


def test_lost_answer_without_a_check_waits_for_a_person(outcomes: Outcomes) -> None:
    outcomes(mail).lost("mail-1")
    with pytest.raises(EffectInDoubt):
        perdure.run(mails, "ada")


def test_lost_answer_without_a_check_is_settled_by_a_person(outcomes: Outcomes, people: People) -> None:
    script = outcomes(mail).lost("mail-1")
    people.settle(mail, "happened", "mail-2")
    assert perdure.run(mails, "ada") == "mail-2"
    assert len(script.performed) == len(script.calls) == 1


def test_a_function_of_the_test_may_stand_in(outcomes: Outcomes) -> None:
    outcomes(mail).calls_through(lambda to, text: f"{to}: {text}")
    assert perdure.run(mails, "ada") == "ada: hello"


@pytest.mark.parametrize("how", ["forbidden", "nothing"])
def test_body_that_must_not_be_executed_fails_the_test_not_the_agent(outcomes: Outcomes, how: str) -> None:
    script = outcomes(mail)
    if how == "forbidden":
        script.forbidden()
    with pytest.raises(Unscripted, match=r"mail\(to='ada', text='hello'\) was performed"):
        perdure.run(mails, "ada")
    with pytest.raises(Unscripted):
        perdure.start(mails, "bob").result(30)


def test_everything_is_itself_again_afterwards(perdure_store: StoreInUse) -> None:
    scripts = Outcomes()
    scripts(pay).returns("p")
    scripts(mail).returns("m")
    assert perdure.run(mails, "ada") == "m"
    scripts.restore()
    with pytest.raises(AssertionError):
        mail("ada")
    with pytest.raises(AssertionError):
        was_paid(_nothing())


def _nothing() -> Any:
    return None


def test_plain_functions_cannot_be_scripted(outcomes: Outcomes) -> None:
    with pytest.raises(perdure.PerdureError, match="neither a step nor an effect"):
        outcomes(kinds)


def test_scripted_step_outside_a_run_is_a_plain_call(outcomes: Outcomes) -> None:
    script = outcomes(search).returns(["owl"])
    assert search("q") == ["owl"]
    assert script.calls[0].run_id == ""
