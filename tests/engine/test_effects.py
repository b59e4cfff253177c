"""What an effect's own outcome means: done, certainly not done, or in doubt."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

import perdure
from perdure.errors import AttemptsExhausted, DeadlineExceeded, EffectInDoubt, UsageError
from perdure.records import Kind
from tests.engine.journals import bodies_of, calls_of, state_of
from tests.engine.letters import open_effects
from tests.engine.world import world


class Answer(Exception):
    """What HTTP clients raise for an answer that is not a success."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.response = SimpleNamespace(status_code=status)


class Flat(Exception):
    """Some clients keep the status on the exception itself."""

    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")
        self.status = status


class Refused(Exception):
    pass


def _agent_that_raises(error: BaseException, **options: Any) -> Callable[[], str]:
    @perdure.effect(**options)
    def send() -> str:
        world.note("sent")
        raise error

    @perdure.agent
    def agent() -> str:
        try:
            return send()
        except Exception as failure:  # noqa: BLE001 - what it is, is the point
            return type(failure).__name__

    return agent


def test_an_effect_leaves_an_intent_before_and_a_receipt_after() -> None:
    @perdure.effect
    def send(to: str) -> str:
        world.note(f"sent to {to} after {[kind for kind, _, _ in calls_of('r')]}")
        return "id-1"

    @perdure.agent
    def agent() -> str:
        return send("ada")

    assert perdure.run(agent, run_id="r") == "id-1"
    assert world.lines == ["sent to ada after ['intent']"]
    assert calls_of("r") == [("intent", "main.0", "send"), ("receipt", "main.0", "send")]
    assert bodies_of("r", Kind.INTENT)[0].effect_key


@pytest.mark.parametrize(
    "error",
    [ConnectionRefusedError("nobody listens"), Answer(400), Answer(404), Answer(422), Answer(429), Flat(403)],
    ids=repr,
)
def test_an_exception_that_proves_that_nothing_happened_is_an_ordinary_failure(error: Exception) -> None:
    agent = _agent_that_raises(error)
    assert perdure.run(agent, run_id="r") in (type(error).__name__, "StepFailed")
    assert [kind for kind, _, _ in calls_of("r")] == ["intent", "receipt"]
    assert open_effects("r") == []


@pytest.mark.parametrize(
    "error",
    [
        TimeoutError("no answer"),
        ConnectionResetError("after sending"),
        BrokenPipeError(),
        ValueError("after sending"),
        Answer(408),
        Answer(409),
        Answer(500),
        Answer(503),
        Flat(504),
    ],
    ids=repr,
)
def test_any_other_exception_leaves_the_effect_in_doubt(error: Exception) -> None:
    agent = _agent_that_raises(error)
    for _ in range(3):
        with pytest.raises(EffectInDoubt, match="never confirmed") as caught:
            perdure.run(agent, run_id="r")
    assert world.lines == ["sent"]
    assert state_of("r") == "waiting (in_doubt)"
    assert type(error).__name__ in caught.value.message
    assert "perdure settle" in caught.value.hint


def test_the_lists_can_be_adjusted_and_ambiguous_is_the_stronger_word() -> None:
    assert perdure.run(_agent_that_raises(Refused("no"), certain=(Refused,)), run_id="certain") == "Refused"
    refused = _agent_that_raises(ConnectionRefusedError(), ambiguous=(ConnectionError,), certain=(OSError,))
    with pytest.raises(EffectInDoubt):
        perdure.run(refused, run_id="ambiguous")


def test_a_certain_failure_is_attempted_again_with_an_intent_of_its_own() -> None:
    @perdure.effect(retry=perdure.Retry(attempts=3, delay_seconds=0))
    def send() -> str:
        world.note(perdure.current().key)
        if world.lines.__len__() < 3:
            raise ConnectionRefusedError("nobody listens")
        return "id"

    @perdure.agent
    def agent() -> str:
        return send()

    assert perdure.run(agent, run_id="r") == "id"
    assert [kind for kind, _, _ in calls_of("r")] == ["intent", "attempt", "intent", "attempt", "intent", "receipt"]
    assert len(set(world.lines)) == 1


def test_certain_failures_without_end_raise_attempts_exhausted() -> None:
    @perdure.effect(retry=perdure.Retry(attempts=2, delay_seconds=0))
    def send() -> str:
        world.note("tried")
        raise ConnectionRefusedError("nobody listens")

    @perdure.agent
    def agent() -> str:
        return send()

    with pytest.raises(AttemptsExhausted):
        perdure.run(agent, run_id="r")
    assert world.lines == ["tried", "tried"]


def test_an_ambiguous_failure_is_never_attempted_again_by_the_retry_policy() -> None:
    @perdure.effect(retry=perdure.Retry(attempts=5, delay_seconds=0))
    def send() -> str:
        world.note("sent")
        raise TimeoutError("no answer")

    @perdure.agent
    def agent() -> str:
        return send()

    with pytest.raises(EffectInDoubt):
        perdure.run(agent, run_id="r")
    assert world.lines == ["sent"]


@pytest.mark.usefixtures("manual_clock")
def test_an_ambiguous_answer_to_a_keyed_effect_is_sent_again_under_the_same_key() -> None:
    @perdure.effect(keyed=True)
    def charge(cents: int) -> str:
        world.note(f"{perdure.current().key} {cents}")
        if len(world.lines) == 1:
            raise TimeoutError("no answer")
        return "charged"

    @perdure.agent
    def agent() -> str:
        return charge(100)

    assert perdure.run(agent, run_id="r") == "charged"
    assert len(world.lines) == 2
    assert len(set(world.lines)) == 1
    assert [kind for kind, _, _ in calls_of("r")] == ["intent", "doubt", "intent", "receipt"]


@pytest.mark.usefixtures("manual_clock")
def test_a_keyed_effect_that_never_gets_an_answer_is_left_to_a_person() -> None:
    @perdure.effect(keyed=True)
    def charge() -> str:
        world.note(perdure.current().key)
        raise TimeoutError("no answer")

    @perdure.agent
    def agent() -> str:
        return charge()

    with pytest.raises(EffectInDoubt, match="sent 4 times under the same key"):
        perdure.run(agent, run_id="r")
    assert len(world.lines) == 4
    assert len(set(world.lines)) == 1


def test_a_business_key_replaces_the_made_one() -> None:
    @perdure.effect(key_from=lambda order, cents: f"order-{order}")
    def charge(order: int, cents: int) -> str:
        return perdure.current().key

    @perdure.agent
    def agent() -> str:
        return charge(7, cents=100)

    assert perdure.run(agent, run_id="r") == "order-7"
    assert bodies_of("r", Kind.INTENT)[0].effect_key == "order-7"


@pytest.mark.parametrize("key", [None, "", 7])
def test_a_business_key_that_is_no_text_is_refused_before_anything_is_performed(key: Any) -> None:
    @perdure.effect(key_from=lambda: key)
    def charge() -> str:
        world.note("charged")
        return "charged"

    @perdure.agent
    def agent() -> str:
        return charge()

    with pytest.raises(UsageError, match="key_from returned"):
        perdure.run(agent, run_id="r")
    assert world.lines == []


def test_an_async_effect_past_its_timeout_is_in_doubt() -> None:
    @perdure.effect(timeout=0.05)
    async def send() -> str:
        world.note("sent")
        await asyncio.Event().wait()
        return "never"

    @perdure.agent
    async def agent() -> str:
        return await send()

    with pytest.raises(EffectInDoubt, match="DeadlineExceeded"):
        perdure.run(agent, run_id="r")
    assert open_effects("r") == ["send"]


def test_a_sync_effect_whose_body_still_runs_past_its_timeout_is_in_flight_whatever_its_check_says() -> None:
    release = threading.Event()

    @perdure.effect(timeout=0.05, in_flight_seconds=0)
    def send() -> str:
        world.note("sent")
        release.wait(30)
        return "late"

    @send.check
    def was_sent(_: perdure.Intent) -> perdure.Verdict:
        return perdure.did_not_happen()

    @perdure.agent
    def agent() -> str:
        return send()

    try:
        with pytest.raises(EffectInDoubt, match="its body still runs past its timeout"):
            perdure.run(agent, run_id="r")
    finally:
        release.set()
    assert world.lines == ["sent"]


def test_a_deadline_listed_as_certain_is_an_ordinary_failure() -> None:
    @perdure.effect(timeout=0.05, certain=(DeadlineExceeded,))
    async def send() -> str:
        await asyncio.Event().wait()
        return "never"

    @perdure.agent
    async def agent() -> str:
        return await send()

    with pytest.raises(TimeoutError):
        perdure.run(agent, run_id="r")
    assert state_of("r") == "failed"


@pytest.mark.parametrize("options", [{"certain": OSError}, {"ambiguous": [OSError]}, {"certain": (str,)}], ids=repr)
def test_lists_that_are_no_tuples_of_exceptions_are_refused_when_it_is_decorated(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        perdure.effect(**options)(lambda: None)


def test_options_given_to_a_check_are_refused_with_the_place_where_they_belong() -> None:
    def send() -> None: ...

    with pytest.raises(UsageError, match="check of send takes no options, but was given in_flight_seconds") as refused:
        perdure.effect(send).check(in_flight_seconds=0)  # type: ignore[call-arg]
    assert "@perdure.effect(" in refused.value.hint


def test_an_async_check_or_undo_of_a_sync_effect_is_refused_when_it_is_decorated() -> None:
    async def late(*_: Any) -> Any:
        return perdure.cannot_tell()

    def send() -> None: ...

    with pytest.raises(UsageError, match="check of send is async"):
        perdure.effect(send).check(late)
    with pytest.raises(UsageError, match="undo of send is async"):
        perdure.effect(undo=late)(send)
