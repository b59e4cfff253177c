"""Points are called the same in every run, found by their whole text or by name and window, and never guessed."""

from __future__ import annotations

import pytest

from perdure.errors import UsageError
from perdure.testing.crash.dice import Dice
from perdure.testing.crash.points import Point, find_point, record_point
from perdure.testing.crash.subject import Subject
from perdure.testing.crash.tally import Fault, Tally, summed

POINTS = [
    Point("look", "before_step", "main.0"),
    Point("send", "after_intent", "main.1"),
    Point("send", "after_effect", "main.1"),
    Point("send", "after_effect", "main.2"),
    Point("mail", "after_request", occurrence=2),
]


@pytest.mark.parametrize(
    ("point", "text"),
    [
        (POINTS[0], "look@main.0:before_step"),
        (POINTS[4], "mail#2:after_request"),
        (Point("claim_run", "inside"), "claim_run:inside"),
        (Point("search", "inside_step", "study.3fa2c1/main.0", 3), "search@study.3fa2c1/main.0#3:inside_step"),
    ],
)
def test_point_is_called_by_name_call_and_window(point: Point, text: str) -> None:
    assert point.text == text


def test_point_is_found_by_its_text_or_as_the_first_of_its_name_and_window() -> None:
    assert find_point(POINTS, "send@main.2:after_effect") is POINTS[3]
    assert find_point(POINTS, "send:after_effect") is POINTS[2]
    assert find_point(POINTS, "mail:after_request") is POINTS[4]


@pytest.mark.parametrize(
    ("wanted", "meant"),
    [
        ("send:after_efect", "did you mean send:after_effect?"),
        ("snd:after_effect", "did you mean send:after_effect?"),
        ("send", "send@main.1:after_intent"),
        ("", "--dry-run lists them"),
    ],
)
def test_unknown_point_is_refused_with_what_comes_near(wanted: str, meant: str) -> None:
    with pytest.raises(UsageError) as refused:
        find_point(POINTS, wanted)
    assert meant in refused.value.hint
    assert refused.value.safe == "nothing was killed."


def test_moment_between_body_and_record_is_one_point_not_two() -> None:
    assert record_point("step", "look", "main.0", "before") is None
    assert record_point("receipt", "send", "main.1", "before") is None
    assert record_point("step", "look", "main.0", "after") == ("look", "recorded", "main.0")
    assert record_point("intent", "send", "main.1", "before") == ("send", "before_intent", "main.1")
    assert record_point("intent", "send", "main.1", "inside") == ("record_intent", "inside", "main.1")


def test_kill_between_intent_and_receipt_counts_as_inside_the_effect() -> None:
    inside = [point.is_in_effect for point in POINTS]
    assert inside == [False, True, True, True, True]
    assert Point("record_receipt", "inside", "main.1").is_in_effect
    assert not Point("record_intent", "inside", "main.1").is_in_effect


def test_campaign_in_which_no_kill_landed_is_not_fine() -> None:
    assert not Tally(planned=3).is_fine
    assert Tally(planned=3, landed=3).is_fine
    assert not Tally(planned=3, landed=3, faults=[Fault("lost", "mail")]).is_fine


def test_tallies_are_summed_and_the_slowest_is_kept() -> None:
    one, other = Tally(planned=1, landed=1, slowest_seconds=0.5), Tally(planned=2, slowest_seconds=0.2)
    one.count("bits flipped", 3)
    other.count("bits flipped")
    whole = summed([one, other])
    assert (whole.planned, whole.landed, whole.slowest_seconds, whole.counts) == (3, 1, 0.5, {"bits flipped": 4})


def test_command_of_a_subject_can_be_pasted() -> None:
    subject = Subject(
        kind="agent",
        app="/a/b.py",
        shown="b.py:run",
        words=("to=it's",),
        setup=("fakes.py",),
        stubs={"ask": '{"a": 1}'},
    )
    assert subject.command("--at", "mail#2:after_request") == (
        "perdure crash b.py:run --setup fakes.py --stub 'ask={\"a\": 1}' --at 'mail#2:after_request' -- 'to=it'\"'\"'s'"
    )


def test_dice_throw_the_same_for_the_same_seed() -> None:
    assert [Dice(7).number(100) for _ in range(3)] == [Dice(7).number(100)] * 3
    one, other = Dice(7), Dice(8)
    assert [one.number(1000) for _ in range(5)] != [other.number(1000) for _ in range(5)]
    thrown = Dice(1)
    assert {thrown.choice("abc") for _ in range(50)} == {"a", "b", "c"}
