"""Two uncrashed runs: what they agree on is what a crashed run is compared with, and nothing else."""

from __future__ import annotations

from typing import Any

import msgspec

from perdure.testing.crash.oracle import Account, Body, Request
from perdure.testing.crash.points import Point
from perdure.testing.crash.reference import Observation, compared
from perdure.testing.crash.trial import Reference

LOOK = Point("look", "recorded", "main.0")
LATER = Point("look", "recorded", "main.1")
FILE = Point("open", "after", "outbox.txt")


def observation(**changes: Any) -> Observation:
    plain = Observation((LOOK,), "done", {"main.0": "1"}, frozenset({""}), Account(), 0.1, ("app.run", "00"), True)
    return msgspec.structs.replace(plain, **changes)


def agreed(one: Observation, other: Observation) -> Reference:
    return compared(one, other, explore=lambda rows: [])


def body(name: str, *, requests: int = 0) -> Body:
    return Body("life-1", "crash", name, "main.2", "main.2", "key", 1, "effect", state="returned", requests=requests)


def test_points_that_only_one_run_passes_are_unstable_whichever_it_is() -> None:
    for one, other in (((LOOK, LATER), (LOOK,)), ((LOOK,), (LOOK, LATER))):
        reference = agreed(observation(points=one), observation(points=other))
        assert reference.points == (LOOK,)
        assert reference.unstable == (LATER.text,)


def test_values_and_results_in_which_the_runs_differ_are_not_compared() -> None:
    one = observation(result="a", values={"main.0": "1", "main.1": "x"})
    reference = agreed(one, observation(result="b", values={"main.0": "1", "main.1": "y"}))
    assert not reference.has_result
    assert reference.values == {"main.0": "1"}
    assert agreed(observation(result=None), observation(result=None)).has_result


def test_files_are_points_only_where_a_script_keeps_its_state_by_hand() -> None:
    kept = observation(points=(LOOK, FILE))
    assert agreed(kept, kept).points == (LOOK,)
    by_hand = msgspec.structs.replace(kept, main=("", ""))
    assert agreed(by_hand, by_hand).points == (LOOK, FILE)
    assert agreed(kept, observation()).unstable == ()


def test_payloads_that_differ_are_counted_by_name_alone() -> None:
    one, other = (Account(requests=[Request("life-1", "mail", text, state="done")]) for text in ("a", "b"))
    assert agreed(observation(account=one), observation(account=one)).requests == {("mail", "a"): 1}
    assert agreed(observation(account=one), observation(account=other)).requests == {("mail",): 1}


def test_effect_that_did_something_to_the_outside_is_judged_by_that() -> None:
    account = Account(bodies=[body("send", requests=1), body("note")])
    reference = agreed(observation(account=account), observation(account=account))
    assert reference.asking == {("send", "main.2")}
    assert reference.effects == {("send", "main.2"): 1, ("note", "main.2"): 1}
