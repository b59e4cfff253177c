"""Effects in a map: each item is an effect of its own, performed once, whatever dies in between."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import math
import threading
from typing import Any

import pytest

import perdure
from perdure.engine import drive
from perdure.errors import EffectInDoubt, JournalDiverged, UsageError
from perdure.records import Kind
from tests.engine import letters as mail
from tests.engine.journals import bodies_of, keys_of, records_of, run_of, state_of
from tests.engine.world import world

PATIENCE = 60.0

plan: dict[str, Any] = {}
"""What the agents walk over and how, set by each test for each delivery."""


@perdure.effect(in_flight_seconds=0)
def send(to: str) -> str:
    world.moment(f"before {to}")
    world.note(f"send {to}")
    world.moment(f"sent {to}")
    return f"receipt of {to}"


@send.check
def was_sent(intent: perdure.Intent) -> perdure.Verdict:
    to = intent.arguments["to"]
    return perdure.happened(f"receipt of {to}") if world.count(f"send {to}") else perdure.did_not_happen()


@perdure.effect(in_flight_seconds=0)
async def send_later(to: str) -> str:
    await asyncio.sleep(0)
    world.moment(f"before {to}")
    world.note(f"send {to}")
    world.moment(f"sent {to}")
    return f"receipt of {to}"


@send_later.check
async def was_sent_later(intent: perdure.Intent) -> perdure.Verdict:
    return was_sent(intent)


@perdure.effect
def post(to: str) -> str:
    """Nothing can tell whether it happened."""
    world.note(f"post {to}")
    world.moment(f"posted {to}")
    return f"receipt of {to}"


@perdure.agent
def letters(concurrency: int = 1) -> list[str]:
    lanes = plan.get("lanes", concurrency)
    return list(perdure.map(send, plan["items"], batch=10, concurrency=lanes, seconds=60))


@perdure.agent
async def letters_later(concurrency: int = 1) -> list[str]:
    return list(await perdure.map(send_later, plan["items"], batch=10, concurrency=concurrency, seconds=60))


@perdure.agent
def posts(concurrency: int = 1) -> list[str]:
    return list(perdure.map(post, plan["items"], batch=10, concurrency=concurrency, seconds=60))


NAMES = [f"n{number}" for number in range(35)]
RECEIPTS = [f"receipt of {name}" for name in NAMES]


@pytest.fixture(autouse=True)
def planned() -> None:
    plan.clear()
    plan["items"] = NAMES


@pytest.mark.parametrize("agent", [letters, letters_later])
@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize(
    "moment", ["before n0", "sent n0", "before n9", "sent n9", "before n10", "sent n23", "sent n34"]
)
def test_no_effect_happens_twice_or_never(agent: Any, concurrency: int, moment: str) -> None:
    world.killed_at(moment, lambda: perdure.run(agent, concurrency, run_id="r"))
    assert perdure.run(agent, concurrency, run_id="r") == RECEIPTS
    assert {world.count(f"send {name}") for name in NAMES} == {1}


def test_each_item_is_an_effect_under_its_own_key() -> None:
    perdure.run(letters, run_id="r")
    intents = bodies_of("r", Kind.INTENT)
    assert len(intents) == len({intent.effect_key for intent in intents}) == 35
    assert keys_of("r") == [*(f"main.0[{number}]" for number in range(35)), "main.0"]
    assert run_of("r").steps == 36


def test_an_effect_in_doubt_is_alone_in_that_and_goes_on_once_settled() -> None:
    world.killed_at("posted n12", lambda: perdure.run(posts, run_id="r"))
    with pytest.raises(EffectInDoubt, match=r"post\(to='n12'\)"):
        perdure.run(posts, run_id="r")
    assert state_of("r") == "waiting (in_doubt)"
    mail.post("r", "happened", "found it", name="post")
    assert perdure.run(posts, run_id="r") == [*RECEIPTS[:12], "found it", *RECEIPTS[13:]]
    assert {world.count(f"post {name}") for name in NAMES} == {1}


def test_beside_effects_in_doubt_nothing_beyond_the_batch_is_performed() -> None:
    world.killed_at("posted n0", lambda: perdure.run(posts, 3, run_id="r"))
    with pytest.raises(EffectInDoubt):
        perdure.run(posts, 3, run_id="r")
    assert not world.count("post n10")
    while doubts := len(mail.open_effects("r")):
        mail.post("r", "happened", "found it", name="post")
        with contextlib.suppress(EffectInDoubt):
            assert perdure.run(posts, 3, run_id="r")[0] == "found it"
        assert len(mail.open_effects("r")) < doubts
    assert state_of("r") == "completed"
    assert max(world.count(f"post {name}") for name in NAMES) == 1


def test_lanes_that_are_all_in_doubt_stop_the_run_without_waiting_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together = threading.Barrier(3)

    @perdure.effect
    def push(number: int) -> int:
        together.wait(PATIENCE)
        world.moment("three at once")
        return number

    @perdure.agent
    def three() -> list[int]:
        return list(perdure.map(push, range(9), batch=3, concurrency=3, seconds=60))

    world.killed_at("three at once", lambda: perdure.run(three, run_id="r"))
    assert len(mail.open_effects("r")) == 3
    monkeypatch.setattr(drive, "WORKING_SECONDS", math.inf)  # whoever takes the map for working waits for ever
    with pytest.raises(EffectInDoubt, match="and 2 more"):
        perdure.start(three, run_id="r").result(PATIENCE)


def test_a_failed_effect_is_attempted_anew_when_the_run_is_resumed() -> None:
    @perdure.effect
    def picky(to: str) -> str:
        world.note(f"picky {to}")
        if to == "n12" and world.count("picky n12") == 1:
            raise ConnectionRefusedError("closed")
        return to

    @perdure.agent
    def agent() -> list[str]:
        return list(perdure.map(picky, NAMES, batch=10))

    with pytest.raises(ConnectionRefusedError, match="closed"):
        perdure.run(agent, run_id="r")
    assert run_of("r").steps == 12
    assert perdure.run(agent, run_id="r") == NAMES
    assert world.count("picky n12") == 2
    assert {world.count(f"picky {name}") for name in NAMES if name != "n12"} == {1}


def test_effects_that_failed_at_once_are_all_attempted_anew() -> None:
    gate = threading.Barrier(3, timeout=30)

    @perdure.effect
    def picky(to: str) -> str:
        if not world.count("open again"):
            gate.wait()
            raise ConnectionRefusedError(to)
        return to

    @perdure.agent
    def agent() -> list[str]:
        return list(perdure.map(picky, NAMES, batch=10, concurrency=3))

    with pytest.raises(ConnectionRefusedError, match="n0"):
        perdure.run(agent, run_id="r")
    world.note("open again")
    assert perdure.run(agent, run_id="r") == NAMES


def test_a_failed_effect_that_the_agent_cleans_up_after_can_be_resumed() -> None:
    @perdure.effect
    def picky(to: str) -> str:
        if to == "n12" and not world.count("open again"):
            raise ConnectionRefusedError("closed")
        return to

    @perdure.agent
    def agent() -> list[str]:
        try:
            return list(perdure.map(picky, NAMES, batch=10))
        finally:
            send("cleanup")
            perdure.map(send, ["c1", "c2"])

    with pytest.raises(ConnectionRefusedError):
        perdure.run(agent, run_id="r")
    world.note("open again")
    assert perdure.run(agent, run_id="r") == NAMES
    assert state_of("r") == "completed"


def test_collected_failures_of_effects_stay_on_record_and_are_not_attempted_again() -> None:
    @perdure.effect
    def picky(to: str) -> str:
        world.note(f"picky {to}")
        if to in ("n3", "n20"):
            raise ConnectionRefusedError(to)
        return to

    @perdure.agent
    def agent() -> list[int]:
        mapped = perdure.map(picky, NAMES, batch=10, on_error="collect")
        send("after")
        return [index for index, _ in mapped.failures()]

    world.killed_at("before after", lambda: perdure.run(agent, run_id="r"))
    assert perdure.run(agent, run_id="r") == [3, 20]
    assert {world.count(f"picky {name}") for name in NAMES} == {1}


def test_effects_that_are_keyed_by_the_item_survive_another_order_of_what_is_open() -> None:
    @perdure.agent
    def agent() -> list[str]:
        return list(perdure.map(send, plan["items"], batch=10, seconds=60, key=lambda to: f"order/{to}.1"))

    world.killed_at("before n17", lambda: perdure.run(agent, run_id="r"))
    plan["items"] = [*NAMES[:10], *reversed(NAMES[10:])]
    assert perdure.run(agent, run_id="r") == [*RECEIPTS[:10], *reversed(RECEIPTS[10:])]
    assert {world.count(f"send {name}") for name in NAMES} == {1}
    assert len({intent.effect_key for intent in bodies_of("r", Kind.INTENT)}) == 35


@pytest.mark.parametrize("resumed", [False, True])
def test_two_items_with_one_key_are_refused(resumed: bool) -> None:
    @perdure.agent
    def agent() -> int:
        return len(perdure.map(send, plan["items"], batch=10, seconds=60, key=lambda to: to.removesuffix("!")))

    if resumed:
        world.killed_at("before n25", lambda: perdure.run(agent, run_id="r"))
    plan["items"] = [*NAMES, "n3!"]
    with pytest.raises(UsageError, match="two items have the key 'n3'; the second is 'n3!'"):
        perdure.run(agent, run_id="r")
    assert not world.count("send n3!")


def test_the_key_of_the_effect_itself_is_honoured() -> None:
    @perdure.effect(key=lambda to: f"mail-{to}")
    def dispatch(to: str) -> str:
        return perdure.current().key

    @perdure.agent
    def agent() -> list[str]:
        return list(perdure.map(dispatch, ["a", "b"]))

    assert len(set(perdure.run(agent, run_id="r"))) == 2
    assert keys_of("r")[:2] == ["main.0[=mail-a]", "main.0[=mail-b]"]


def test_a_recorded_effect_that_the_source_no_longer_asks_for_parks_the_run() -> None:
    world.killed_at("before n17", lambda: perdure.run(letters, run_id="r"))
    plan["items"] = NAMES[:13]
    with pytest.raises(JournalDiverged, match=r"send\(to='n13'\) is on record\n.*the source ended after 13 items"):
        perdure.run(letters, run_id="r")


def test_another_item_at_the_place_of_a_recorded_effect_parks_the_run() -> None:
    world.killed_at("before n17", lambda: perdure.run(letters, run_id="r"))
    plan["items"] = [*NAMES[:14], "somebody else", *NAMES[15:]]
    with pytest.raises(JournalDiverged, match=r"send\(to='n14'\)\n.*send\(to='somebody else'\)"):
        perdure.run(letters, run_id="r")
    assert not world.count("send somebody else")


def test_equal_items_are_different_effects() -> None:
    plan.update(items=["same"] * 25, lanes=3)
    world.killed_at("before same", lambda: perdure.run(letters, run_id="r"), passes=17)
    plan["lanes"] = 1
    assert perdure.run(letters, run_id="r") == ["receipt of same"] * 25
    assert len(records_of("r", Kind.RECEIPT, Kind.VERDICT)) >= 25


def test_an_item_is_not_taken_for_an_equal_one_that_is_on_record() -> None:
    of_the_first = hashlib.sha256(b"r\nmain.0[0]").hexdigest()[:32]
    gate = threading.Barrier(2, timeout=30)

    @perdure.effect
    def picky(to: str) -> str:
        if not world.count("open again"):
            gate.wait()
            if perdure.current().key == of_the_first:
                raise ConnectionRefusedError("closed")
        world.note("performed")
        return to

    @perdure.agent
    def agent() -> list[str]:
        return list(perdure.map(picky, ["same", "same"], concurrency=plan["lanes"]))

    plan["lanes"] = 2
    with pytest.raises(ConnectionRefusedError):
        perdure.run(agent, run_id="r")
    world.note("open again")
    plan["lanes"] = 1
    assert perdure.run(agent, run_id="r") == ["same", "same"]
    assert world.count("performed") == 2


def test_a_map_that_moved_elsewhere_in_the_code_parks_before_anything_happens_twice() -> None:
    @perdure.agent
    def inner() -> int:
        return len(perdure.map(send, NAMES, batch=10))

    @perdure.agent
    def agent() -> int:
        return inner() if plan["moved"] else len(perdure.map(send, NAMES, batch=10))

    plan["moved"] = False
    world.killed_at("before n17", lambda: perdure.run(agent, run_id="r"))
    plan["moved"] = True
    with pytest.raises(JournalDiverged):
        perdure.run(agent, run_id="r")
    assert {world.count(f"send {name}") for name in NAMES[:17]} == {1}


def test_effects_of_a_map_can_be_taken_back() -> None:
    @perdure.effect(undo=lambda result, to: world.note(f"undo {to}"))
    def book(to: str) -> str:
        world.note(f"book {to}")
        return to

    @perdure.agent(undo_on_failure=True)
    def agent() -> None:
        perdure.map(book, ["a", "b"])
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        perdure.run(agent)
    assert world.lines == ["book a", "book b", "undo b", "undo a"]
