"""A person's verdict, or the evidence of a worker that was taken for dead, settles an effect in doubt; once."""

from __future__ import annotations

import json

import pytest

import perdure
from perdure import clock
from perdure.engine.session import session
from perdure.errors import EffectInDoubt, RunHeld, StepFailed
from perdure.events import IntentRecorded, Observable, RunResumed
from perdure.records import Mail
from perdure.store.protocol import Terms
from tests.engine.journals import calls_of, run_of, state_of
from tests.engine.letters import Outcome, open_effects, post, verdicts
from tests.engine.world import world


@perdure.effect
def send(to: str) -> str:
    world.note(f"sent to {to}")
    world.moment("after sending")
    return f"id of {to}"


@perdure.agent
def agent() -> str:
    found = send("ada")
    world.moment("after the effect")
    return found


@pytest.fixture
def in_doubt() -> None:
    """A run whose effect was interrupted after sending."""
    world.killed_at("after sending", lambda: perdure.run(agent, run_id="r"))


def untaken() -> int:
    return sum(not mail.taken for mail in session().store.read_mail("r"))


@pytest.mark.usefixtures("in_doubt")
def test_happened_gives_the_effect_the_result_the_person_named() -> None:
    post("r", "happened", "id from the outbox")
    assert perdure.run(agent, run_id="r") == "id from the outbox"
    assert world.lines == ["sent to ada"]
    assert verdicts("r") == [("happened", "ada")]
    assert untaken() == 0


@pytest.mark.usefixtures("in_doubt")
def test_a_settled_effect_counts_among_what_was_not_repeated(seen: list[Observable]) -> None:
    post("r", "happened", "id from the outbox")
    world.killed_at("after the effect", lambda: perdure.run(agent, run_id="r"))
    perdure.run(agent, run_id="r")
    (resumed,) = [event for event in seen if isinstance(event, RunResumed)]
    assert resumed.steps == 1
    assert world.lines == ["sent to ada"]


@pytest.mark.usefixtures("in_doubt")
def test_did_not_happen_performs_it_as_a_new_attempt() -> None:
    post("r", "did_not_happen")
    assert perdure.run(agent, run_id="r") == "id of ada"
    assert world.lines == ["sent to ada", "sent to ada"]
    assert [kind for kind, _, _ in calls_of("r")] == ["intent", "verdict", "intent", "receipt"]


@pytest.mark.usefixtures("in_doubt")
def test_fail_raises_to_the_agent_now_and_at_every_replay() -> None:
    post("r", "fail")
    for _ in range(2):
        with pytest.raises(StepFailed, match=r"send\(to='ada'\) was settled as failed by ada"):
            perdure.run(agent, run_id="r")
        assert state_of("r") == "failed"
    assert world.lines == ["sent to ada"]
    assert verdicts("r") == [("fail", "ada")]


@pytest.mark.usefixtures("in_doubt")
@pytest.mark.parametrize(("outcome", "value"), [("happened", "named"), ("did_not_happen", None)])
def test_a_verdict_is_consumed_once_whatever_dies_after_it(outcome: Outcome, value: str | None) -> None:
    post("r", outcome, value)
    world.killed_at("after the effect", lambda: perdure.run(agent, run_id="r"))
    sent = world.lines
    assert perdure.run(agent, run_id="r") == (value or "id of ada")
    assert world.lines == sent
    assert len(verdicts("r")) == 1


@pytest.mark.usefixtures("in_doubt")
def test_a_verdict_is_bound_to_the_attempt_it_was_given_for() -> None:
    post("r", "did_not_happen")
    world.killed_at("after sending", lambda: perdure.run(agent, run_id="r"))
    # The second attempt is in doubt as well; what was said of the first says nothing about it.
    post("r", "happened", "of the first", attempt=1)
    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    post("r", "happened", "of the second", attempt=2)
    assert perdure.run(agent, run_id="r") == "of the second"
    assert world.lines == ["sent to ada", "sent to ada"]


@pytest.mark.usefixtures("in_doubt")
@pytest.mark.parametrize("value", [7, None, {"id": "x"}])
def test_a_result_the_effect_could_not_have_returned_is_not_recorded(value: object) -> None:
    post("r", "happened", value)
    with pytest.raises(EffectInDoubt, match="the result given with the verdict does not fit"):
        perdure.run(agent, run_id="r")
    assert verdicts("r") == []
    post("r", "happened", "a text")
    assert perdure.run(agent, run_id="r") == "a text"
    assert untaken() == 0


@pytest.mark.usefixtures("in_doubt")
def test_the_newest_word_of_a_person_counts() -> None:
    post("r", "happened", "first thought")
    post("r", "did_not_happen")
    post("r", "happened", "second thought")
    assert perdure.run(agent, run_id="r") == "second thought"
    assert verdicts("r") == [("happened", "ada")]


@pytest.mark.usefixtures("in_doubt")
def test_evidence_that_it_happened_settles_it() -> None:
    post("r", "happened", "late receipt", kind="evidence")
    assert perdure.run(agent, run_id="r") == "late receipt"
    assert world.lines == ["sent to ada"]


@pytest.mark.usefixtures("in_doubt")
def test_nobody_can_call_undone_what_a_worker_saw_done() -> None:
    post("r", "happened", "late receipt", kind="evidence")
    post("r", "did_not_happen")
    assert perdure.run(agent, run_id="r") == "late receipt"
    assert world.lines == ["sent to ada"]


def take_over() -> None:
    """Another worker claims the run from under the one that performs the effect."""
    store = session().store
    run = run_of("r")
    terms = Terms(deliveries=9, stall_seconds=-1.0)
    store.claim_run("r", store.join().worker_id, terms)
    assert run_of("r").epoch == run.epoch + 1


def test_a_worker_that_lost_its_run_in_the_middle_of_an_effect_leaves_its_receipt_as_evidence() -> None:
    @perdure.effect
    def frozen(to: str) -> str:
        world.note(f"sent to {to}")
        if to == "ada":
            take_over()
        return f"id of {to}"

    @perdure.agent
    def loses_its_run() -> list[str]:
        return [frozen("ada"), frozen("bob")]

    with pytest.raises(RunHeld):
        perdure.run(loses_its_run, run_id="r")
    assert world.lines == ["sent to ada"]
    (mail,) = session().store.read_mail("r")
    assert (mail.kind, json.loads(mail.body)) == ("evidence", {"attempt": 1, "value": "id of ada"})
    assert open_effects("r") == ["frozen"]
    assert perdure.run(loses_its_run, run_id="r") == ["id of ada", "id of bob"]
    assert world.lines == ["sent to ada", "sent to bob"]


def test_a_worker_that_lost_its_run_between_intent_and_effect_does_not_perform_it() -> None:
    unsubscribe = perdure.subscribe(lambda event: take_over() if isinstance(event, IntentRecorded) else None)
    try:
        with pytest.raises(RunHeld):
            perdure.run(agent, run_id="r")
    finally:
        unsubscribe()
    assert world.lines == []
    assert open_effects("r") == ["send"]


def test_a_worker_that_lost_its_run_before_an_effect_does_not_perform_it() -> None:
    @perdure.agent
    def loses_its_run() -> str:
        take_over()
        return send("ada")

    with pytest.raises(RunHeld):
        perdure.run(loses_its_run, run_id="r")
    assert world.lines == []


@pytest.mark.usefixtures("in_doubt")
def test_mail_that_is_no_letter_of_ours_is_left_alone() -> None:
    session().store.post(Mail(0, "r", "verdict", "main.7", "{}", "eve", clock.wall_seconds()))
    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    assert untaken() == 1
