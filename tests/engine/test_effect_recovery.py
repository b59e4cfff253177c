"""A process died around an effect: what the next one does with it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import perdure
from perdure.engine.session import session
from perdure.errors import EffectInDoubt, RunPaused, UsageError
from perdure.events import DoubtPending, IntentRecorded, Observable
from perdure.records import Kind
from tests.engine.journals import bodies_of, calls_of, newest_run, state_of
from tests.engine.letters import open_effects, post, verdicts
from tests.engine.manual_clock import ManualClock
from tests.engine.world import world

answers: list[Any] = []
"""What the check of `send` answers, in order; the last answer is given again."""


@perdure.effect
def send(to: str) -> str:
    world.moment("before sending")
    world.note(f"sent to {to}")
    world.moment("after sending")
    return f"id of {to}"


@perdure.effect
def checked(to: str) -> str:
    world.note(f"sent to {to}")
    world.moment("after sending")
    return f"id of {to}"


@checked.check
def was_sent(intent: perdure.Intent) -> Any:
    world.note(f"checked {intent.name} {intent.arguments} {intent.attempt}")
    world.moment("in the check")
    answer = answers.pop(0) if len(answers) > 1 else answers[0]
    if isinstance(answer, Exception):
        raise answer
    return answer


@perdure.effect(keyed=True)
def charge(card: str, cents: int) -> str:
    world.note(f"{perdure.current().key} {card} {cents}")
    world.moment("after charging")
    return f"charged {cents}"


@perdure.agent
def plain_agent(to: str) -> str:
    found = send(to)
    world.moment("after the receipt")
    return found


@perdure.agent
def checked_agent(to: str) -> str:
    return checked(to)


@perdure.agent
def keyed_agent() -> str:
    return charge("visa", 100)


@pytest.fixture(autouse=True)
def no_answers() -> None:
    answers.clear()


def test_killed_before_the_intent_the_effect_is_performed() -> None:
    @perdure.agent
    def agent() -> str:
        world.moment("before the intent")
        return send("ada")

    world.killed_at("before the intent", lambda: perdure.run(agent, run_id="r"))
    assert perdure.run(agent, run_id="r") == "id of ada"
    assert world.lines == ["sent to ada"]


@pytest.mark.parametrize("moment", ["before sending", "after sending"])
def test_killed_between_intent_and_receipt_a_plain_effect_waits_for_a_person(moment: str) -> None:
    world.killed_at(moment, lambda: perdure.run(plain_agent, "ada", run_id="r"))
    happened = world.lines
    for _ in range(3):
        with pytest.raises(EffectInDoubt, match=r"send\(to='ada'\) was started and never confirmed \(its process died"):
            perdure.run(plain_agent, "ada", run_id="r")
    assert world.lines == happened
    assert state_of("r") == "waiting (in_doubt)"
    assert open_effects("r") == ["send"]


def test_a_confirmed_effect_is_not_repeated_after_a_kill() -> None:
    world.killed_at("after the receipt", lambda: perdure.run(plain_agent, "ada", run_id="r"))
    assert perdure.run(plain_agent, "ada", run_id="r") == "id of ada"
    assert world.lines == ["sent to ada"]


def test_a_keyed_effect_is_sent_again_under_the_same_key_with_the_same_arguments() -> None:
    world.killed_at("after charging", lambda: perdure.run(keyed_agent, run_id="r"))
    world.killed_at("after charging", lambda: perdure.run(keyed_agent, run_id="r"))
    assert perdure.run(keyed_agent, run_id="r") == "charged 100"
    assert len(world.lines) == 3
    assert len(set(world.lines)) == 1
    intents = bodies_of("r", Kind.INTENT)
    assert [intent.attempt for intent in intents] == [1, 2, 3]
    assert len({bytes(intent.arguments) for intent in intents}) == 1
    assert len({intent.effect_key for intent in intents}) == 1


def test_a_key_older_than_its_time_to_live_is_not_used_again(manual_clock: ManualClock) -> None:
    world.killed_at("after charging", lambda: perdure.run(keyed_agent, run_id="r"))
    manual_clock.pass_seconds(23 * 3600)
    world.killed_at("after charging", lambda: perdure.run(keyed_agent, run_id="r"))
    # The outside counts from the first time it saw the key.
    manual_clock.pass_seconds(2 * 3600)
    with pytest.raises(EffectInDoubt, match="its key is older than the outside remembers"):
        perdure.run(keyed_agent, run_id="r")
    assert len(world.lines) == 2


def test_a_key_too_old_leads_to_the_check_where_there_is_one(manual_clock: ManualClock) -> None:
    @perdure.effect(keyed=True, key_ttl=60)
    def keyed() -> str:
        world.note("sent")
        world.moment("after sending")
        return "sent"

    @keyed.check
    def look(_: perdure.Intent) -> perdure.Verdict:
        return perdure.happened("found")

    @perdure.agent
    def agent() -> str:
        return keyed()

    world.killed_at("after sending", lambda: perdure.run(agent, run_id="r"))
    manual_clock.pass_seconds(61)
    assert perdure.run(agent, run_id="r") == "found"
    assert world.lines == ["sent"]


def test_a_check_that_says_it_happened_counts_at_once_and_its_result_is_recorded(manual_clock: ManualClock) -> None:
    world.killed_at("after sending", lambda: perdure.run(checked_agent, "ada", run_id="r"))
    answers.append(perdure.happened("found id"))
    assert perdure.run(checked_agent, "ada", run_id="r") == "found id"
    assert world.lines == ["sent to ada", "checked checked {'to': 'ada'} 1"]
    assert verdicts("r") == [("happened", "check")]
    assert manual_clock.slept == []


def test_did_not_happen_counts_only_once_the_dead_request_can_no_longer_land(manual_clock: ManualClock) -> None:
    world.killed_at("after sending", lambda: perdure.run(checked_agent, "ada", run_id="r"))
    manual_clock.pass_seconds(4)
    answers.append(perdure.did_not_happen())
    assert perdure.run(checked_agent, "ada", run_id="r") == "id of ada"
    asked = "checked checked {'to': 'ada'} 1"
    assert world.lines == ["sent to ada", asked, asked, "sent to ada"]
    assert manual_clock.slept == [pytest.approx(10)]
    assert [kind for kind, _, _ in calls_of("r")] == ["intent", "verdict", "intent", "receipt"]


def test_waiting_for_a_request_that_may_still_land_is_announced(
    manual_clock: ManualClock, seen: list[Observable]
) -> None:
    world.killed_at("after sending", lambda: perdure.run(checked_agent, "ada", run_id="r"))
    manual_clock.pass_seconds(4)
    answers.append(perdure.did_not_happen())
    perdure.run(checked_agent, "ada", run_id="r")
    (pending,) = [event for event in seen if isinstance(event, DoubtPending)]
    assert pending.step == "checked"
    assert pending.seconds == pytest.approx(10)


def test_the_wait_begins_when_the_sender_is_known_to_have_ended_not_when_it_began(manual_clock: ManualClock) -> None:
    """A body that renders for a minute sends its request in the end, and may die right after."""
    world.killed_at("after sending", lambda: perdure.run(checked_agent, "ada", run_id="r"))
    manual_clock.pass_seconds(60)
    answers.append(perdure.did_not_happen())
    perdure.run(checked_agent, "ada", run_id="r")
    assert manual_clock.slept == [pytest.approx(10)]
    assert world.count("sent to ada") == 2


def test_a_request_that_ran_into_a_timeout_may_land_for_as_long_as_one_whose_sender_died(
    manual_clock: ManualClock,
) -> None:
    @perdure.effect
    def slow() -> str:
        world.note("sent")
        manual_clock.pass_seconds(60)
        raise TimeoutError

    @slow.check
    def look(intent: perdure.Intent) -> perdure.Verdict:
        world.note("looked")
        return perdure.happened("landed") if world.count("looked") > 1 else perdure.did_not_happen()

    @perdure.agent
    def agent() -> str:
        return slow()

    assert perdure.run(agent, run_id="r") == "landed"
    assert manual_clock.slept == [pytest.approx(10)]
    assert world.lines == ["sent", "looked", "looked"]


def test_a_request_that_lands_while_it_is_in_flight_is_found_by_the_second_look(manual_clock: ManualClock) -> None:
    world.killed_at("after sending", lambda: perdure.run(checked_agent, "ada", run_id="r"))
    answers.extend([perdure.did_not_happen(), perdure.happened("landed late")])
    assert perdure.run(checked_agent, "ada", run_id="r") == "landed late"
    assert world.count("sent to ada") == 1
    assert len(manual_clock.slept) == 1


def test_a_jump_of_the_wall_clock_does_not_shorten_the_wait(manual_clock: ManualClock) -> None:
    world.killed_at("after sending", lambda: perdure.run(checked_agent, "ada", run_id="r"))
    manual_clock.wall += 3600
    answers.append(perdure.did_not_happen())
    perdure.run(checked_agent, "ada", run_id="r")
    assert manual_clock.slept == [pytest.approx(10)]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (perdure.cannot_tell("the outbox is down"), "its check cannot tell: the outbox is down"),
        (perdure.cannot_tell(), "its check cannot tell"),
        (OSError("unreachable"), "its check failed: OSError: unreachable"),
        (True, "its check returned True instead of perdure.happened"),
        (None, "its check returned None"),
        (perdure.happened(7), "its check says that it happened, but its result"),
        (perdure.happened(object()), "its check says that it happened, but its result"),
    ],
)
def test_a_check_without_a_usable_answer_leaves_it_to_a_person(answer: Any, why: str) -> None:
    world.killed_at("after sending", lambda: perdure.run(checked_agent, "ada", run_id="r"))
    answers.append(answer)
    with pytest.raises(EffectInDoubt, match=why):
        perdure.run(checked_agent, "ada", run_id="r")
    assert world.count("sent to ada") == 1
    assert verdicts("r") == []
    answers[:] = [perdure.happened("found")]
    assert perdure.run(checked_agent, "ada", run_id="r") == "found"


def test_an_agent_that_swallows_exceptions_cannot_complete_past_a_check_that_failed() -> None:
    @perdure.agent
    def agent() -> str:
        try:
            return checked("ada")
        except Exception:  # noqa: BLE001 - what agents do
            return "went on"

    world.killed_at("after sending", lambda: perdure.run(agent, run_id="r"))
    answers.append("nonsense")
    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    assert state_of("r") == "waiting (in_doubt)"


def test_an_agent_that_swallows_exceptions_cannot_complete_past_an_effect_in_doubt() -> None:
    keys = ["order-1"]

    @perdure.effect(key_from=lambda: keys[0])
    def pay() -> str:
        world.note("paid")
        world.moment("paid")
        return "paid"

    @perdure.agent
    def agent() -> str:
        try:
            return pay()
        except Exception:  # noqa: BLE001 - what agents do
            return "went on"

    world.killed_at("paid", lambda: perdure.run(agent, run_id="r"))
    keys[0] = ""
    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    keys[0] = "order-1"
    assert perdure.run(agent, run_id="r") == "paid"


def test_killed_in_the_check_it_checks_again(manual_clock: ManualClock) -> None:
    world.killed_at("after sending", lambda: perdure.run(checked_agent, "ada", run_id="r"))
    answers.append(perdure.happened("found"))
    world.killed_at("in the check", lambda: perdure.run(checked_agent, "ada", run_id="r"))
    assert perdure.run(checked_agent, "ada", run_id="r") == "found"
    assert world.count("sent to ada") == 1
    assert world.count("checked checked {'to': 'ada'} 1") == 2


def test_killed_after_the_verdict_it_is_acted_on_without_asking_again(manual_clock: ManualClock) -> None:
    world.killed_at("after sending", lambda: perdure.run(checked_agent, "ada", run_id="r"))
    answers.append(perdure.did_not_happen())
    asked = "checked checked {'to': 'ada'} 1"

    def killed_at_the_second_intent() -> None:
        perdure.subscribe(lambda event: world.moment(type(event).__name__))
        perdure.run(checked_agent, "ada", run_id="r")

    world.killed_at("DoubtSettled", killed_at_the_second_intent)
    assert verdicts("r") == [("did_not_happen", "check")]
    assert world.lines == ["sent to ada", asked, asked]
    assert perdure.run(checked_agent, "ada", run_id="r") == "id of ada"
    assert world.lines == ["sent to ada", asked, asked, "sent to ada"]


def test_an_async_effect_is_settled_by_its_async_check() -> None:
    @perdure.effect(in_flight_seconds=0.05)
    async def send_async() -> str:
        world.note("sent")
        world.moment("after sending")
        return "again"

    @send_async.check
    async def look(intent: perdure.Intent) -> perdure.Verdict:
        await asyncio.sleep(0)
        assert intent.key == perdure.current().key
        return perdure.did_not_happen()

    @perdure.agent
    async def agent() -> str:
        return await send_async()

    world.killed_at("after sending", lambda: perdure.run(agent, run_id="r"))
    assert perdure.run(agent, run_id="r") == "again"
    assert world.lines == ["sent", "sent"]


def test_other_arguments_than_the_intent_names_park_the_run() -> None:
    amount = [100]

    @perdure.agent
    def agent() -> str:
        return charge("visa", amount[0])

    world.killed_at("after charging", lambda: perdure.run(agent, run_id="r"))
    amount[0] = 200
    with pytest.raises(perdure.errors.JournalDiverged, match="cents=100"):
        perdure.run(agent, run_id="r")
    assert len(world.lines) == 1


@pytest.mark.parametrize("has_check", [False, True])
def test_an_effect_whose_result_cannot_be_stored_is_in_doubt_and_never_repeated(
    has_check: bool, manual_clock: ManualClock
) -> None:
    @perdure.effect
    def send_and_keep() -> Any:
        world.note("sent")
        return object()

    if has_check:

        @send_and_keep.check
        def look(_: perdure.Intent) -> perdure.Verdict:
            return perdure.did_not_happen()

    @perdure.agent
    def agent() -> Any:
        return send_and_keep()

    for _ in range(3):
        with pytest.raises(EffectInDoubt, match="it happened, but its result cannot be stored"):
            perdure.run(agent, run_id="r")
        manual_clock.pass_seconds(3600)
    assert world.lines == ["sent"]


def test_two_effects_in_doubt_are_settled_each_alone() -> None:
    both = threading.Barrier(2)

    @perdure.effect
    def met(to: str) -> str:
        world.note(f"sent to {to}")
        both.wait(30)
        world.moment("both sent")
        return f"id of {to}"

    @met.check
    def look(intent: perdure.Intent) -> perdure.Verdict:
        to = intent.arguments["to"]
        return perdure.happened(f"found {to}") if to == "ada" else perdure.cannot_tell("bob is away")

    @perdure.agent
    async def agent() -> list[str]:
        return list(await asyncio.gather(asyncio.to_thread(met, "ada"), asyncio.to_thread(met, "bob")))

    world.killed_at("both sent", lambda: perdure.run(agent, run_id="r"))
    assert open_effects("r") == ["met", "met"]
    with pytest.raises(EffectInDoubt, match=r"met\(to='bob'\).*bob is away"):
        perdure.run(agent, run_id="r")
    assert verdicts("r") == [("happened", "check")]
    post("r", "happened", "told", name="met")
    assert perdure.run(agent, run_id="r") == ["found ada", "told"]
    assert sorted(world.lines) == ["sent to ada", "sent to bob"]


@pytest.mark.usefixtures("manual_clock")
def test_a_refused_connection_proves_nothing_of_the_attempt_before_it_under_the_same_key() -> None:
    """The first request may have been carried out: that the second was not even sent does not make it undone."""
    raised = iter([TimeoutError("no answer"), *[ConnectionRefusedError("down")] * 10])

    @perdure.effect(keyed=True)
    def charge(cents: int) -> str:
        world.note(f"charge {cents}")
        raise next(raised)

    @perdure.agent
    def shop() -> str:
        return charge(5)

    with pytest.raises(EffectInDoubt):
        perdure.run(shop)
    assert state_of(newest_run().run_id) == "waiting (in_doubt)"


@pytest.mark.usefixtures("manual_clock")
def test_an_effect_that_fails_and_never_happens_is_given_up_in_the_end() -> None:
    @perdure.effect(in_flight_seconds=0)
    def send(to: str) -> str:
        world.note(f"send {to}")
        raise TimeoutError("no answer")

    @send.check
    def was_sent(_: perdure.Intent) -> perdure.Verdict:
        return perdure.did_not_happen()

    @perdure.agent
    def mailer() -> str:
        return send("ada")

    with pytest.raises(TimeoutError, match="no answer"):
        perdure.run(mailer)
    assert world.count("send ada") == 4
    assert newest_run().state == "failed"


def test_an_error_of_ours_keeps_what_is_safe_and_what_to_do() -> None:
    @perdure.step
    def refuse() -> None:
        raise UsageError("No such table.", safe="nothing was written.", hint="create it")

    @perdure.agent
    def agent() -> None:
        refuse()

    with pytest.raises(UsageError) as caught:
        perdure.run(agent)
    assert (caught.value.safe, caught.value.hint) == ("nothing was written.", "create it")


def test_effect_that_is_stopped_before_it_is_sent_again_stays_in_doubt_under_the_key_of_its_first_attempt() -> None:
    def pause_the_second(event: Observable) -> None:
        if isinstance(event, IntentRecorded) and event.attempt == 2:
            perdure.pause("r", by="ada")
            session().deliver_mail()

    world.killed_at("after charging", lambda: perdure.run(keyed_agent, run_id="r"))
    unsubscribe = perdure.subscribe(pause_the_second)
    with pytest.raises(RunPaused):
        perdure.run(keyed_agent, run_id="r")
    unsubscribe()
    assert (open_effects("r"), verdicts("r")) == (["charge"], [])
    perdure.unpause("r")
    assert perdure.run(keyed_agent, run_id="r") == "charged 100"
    assert len(world.lines) == 2
    assert len(set(world.lines)) == 1
    assert len({body.key_at for body in bodies_of("r", Kind.INTENT)}) == 1
