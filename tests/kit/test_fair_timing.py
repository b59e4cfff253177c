"""What only time decides is nobody's fault: whose turn it was, who had got further, and whether a limit had passed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.testing.crash.campaign import Laboratory, Report
from perdure.testing.crash.judge import RAN_OUT
from perdure.testing.crash.modes import Plan, clock_jump, every
from perdure.testing.crash.options import Options
from perdure.testing.crash.points import Point, are_at_once, find_point, is_by_chance
from perdure.testing.crash.subject import agent_subject
from perdure.testing.crash.tally import Tally
from perdure.testing.crash.trial import Trial
from tests.kit import doubter
from tests.kit.campaigns import described

Campaign = Callable[..., Report]


def test_run_that_was_left_to_wait_for_a_person_is_not_called_taken(campaign: Campaign) -> None:
    report = campaign(doubter.sending, 1, mode="clock-jump", at=("look:inside_step",))
    assert "@lingering." in find_point(report.reference.points, "look:inside_step").text
    assert report.is_fine, described(report)
    assert report.tally.landed == report.tally.trials == 2


DAY = 24 * clock_jump.HOUR_SECONDS
KILLED, UNDER = "after a kill", "under a process"


def jumped(folder: Path, agent: Callable[..., Any], at: str, seconds: float, when: str) -> Tally:
    """One jump of the clock, this long, at this point."""
    options = Options(jobs=1, folder=str(folder), signals={"parcel": "1"})
    with Laboratory(agent_subject(agent, 7), options) as laboratory:
        point = find_point(laboratory.reference.points, at)
        plan = Plan("clock-jump", (point,), details={"seconds": seconds, "when": when})
        return laboratory.play([plan], clock_jump.play)


@pytest.mark.parametrize("agent", [doubter.limited, doubter.expecting])
@pytest.mark.parametrize(
    ("at", "seconds", "when"),
    [
        ("look:recorded", DAY, KILLED),
        ("look:recorded", -DAY, KILLED),
        ("record_ended:after", DAY, KILLED),
        ("look:recorded", DAY, UNDER),
        ("look:recorded", -DAY, UNDER),
    ],
)
def test_answer_that_is_given_in_time_counts_wherever_the_clock_jumps(
    tmp_path: Path, agent: Callable[..., Any], at: str, seconds: float, when: str
) -> None:
    tally = jumped(tmp_path, agent, at, seconds, when)
    assert tally.is_fine, tally.faults
    assert (tally.equal, tally.again, tally.counts.get(RAN_OUT, 0)) == (1, 1, 0)


@pytest.mark.parametrize("agent", [doubter.limited, doubter.expecting])
def test_limit_that_a_jump_passes_is_counted_and_no_fault(tmp_path: Path, agent: Callable[..., Any]) -> None:
    tally = jumped(tmp_path, agent, "record_wait:after", DAY, KILLED)
    assert tally.is_fine, tally.faults
    assert (tally.equal, tally.lost, tally.counts[RAN_OUT]) == (0, 0, 1)


def test_deadline_that_a_jump_passes_is_counted_and_no_fault(tmp_path: Path) -> None:
    tally = jumped(tmp_path, doubter.pressed, "look:recorded", DAY, KILLED)
    assert tally.is_fine, tally.faults
    assert tally.counts[RAN_OUT] == 1


def test_limit_that_only_the_jump_could_pass_excuses_nothing_else(tmp_path: Path) -> None:
    tally = jumped(tmp_path, doubter.limited, "record_wait:after", DAY / 24, KILLED)
    assert (tally.equal, tally.counts.get(RAN_OUT, 0)) == (1, 0)


def late(trial: Trial, plan: Plan, *, verb: str) -> None:
    """Look for a point in a process that resumes when what happens there is done."""
    first, second = plan.points
    trial.kill(first)
    getattr(trial, verb)(second)
    trial.judge(trial.resume_to_the_end())


@pytest.mark.parametrize("verb", ["kill", "freeze"])
def test_point_that_another_strand_has_behind_it_is_counted_as_not_come_by(tmp_path: Path, verb: str) -> None:
    with Laboratory(agent_subject(doubter.middle, 1), Options(jobs=1, folder=str(tmp_path))) as laboratory:
        points = laboratory.reference.points
        end = find_point(points, "record_ended:before")
        over = [find_point(points, f"look:{window}") for window in ("before_step", "inside_step", "recorded")]
        plans = [Plan("every", (end, point)) for point in over]
        tally = laboratory.play(plans, lambda trial, plan: late(trial, plan, verb=verb))
        child = over[0].key
        strange = [
            Point("pay", "inside_effect", child),
            Point("look", "inside_step", f"{child}9"),
            Point("nod", "after"),
        ]
        missed = laboratory.play([Plan("every", (end, point)) for point in strange], every.play)
    assert (tally.faults, tally.unreached) == ([], len(over))
    assert (tally.planned, tally.landed, tally.judged) == (len(over), len(over), 1)
    assert [fault.kind for fault in missed.faults] == ["missed"] * len(strange)


def test_point_of_the_only_strand_that_is_not_come_by_is_a_fault(tmp_path: Path) -> None:
    with Laboratory(agent_subject(doubter.game), Options(jobs=1, folder=str(tmp_path))) as laboratory:
        end, over = (
            find_point(laboratory.reference.points, text) for text in ("pay:after_receipt", "flip:before_step")
        )
        tally = laboratory.play([Plan("every", (end, over))], every.play)
    assert [fault.kind for fault in tally.faults] == ["missed"]


def test_kill_that_a_strand_survives_is_a_fault_and_not_a_matter_of_time(tmp_path: Path) -> None:
    subject = msgspec.structs.replace(agent_subject(doubter.middle, 1), setup=("tests.planted.toothless",))
    with Laboratory(subject, Options(jobs=1, folder=str(tmp_path), at=("look:inside_step",))) as laboratory:
        report = laboratory.campaign()
    assert [fault.kind for fault in report.tally.faults] == ["missed"]
    assert (report.tally.landed, report.tally.judged, report.is_fine) == (0, 0, False)


def test_word_of_a_commit_that_the_end_of_a_process_cuts_off_is_a_matter_of_time() -> None:
    runs = ("", "child.00/")
    for window in ("recorded", "after_receipt"):
        assert is_by_chance(Point("look", window, "child.00/main.1"), runs)
        assert not is_by_chance(Point("look", window, "main.1"), runs)
    assert not is_by_chance(Point("look", "inside_step", "child.00/main.1"), runs)


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ([("main.1", "before_step"), ("main.1", "recorded"), ("main.2", "before_step")], False),
        ([("main.1", "before_step"), ("main.1", "before_step"), ("main.1.0", "before_step")], False),
        ([("main.1", "before_step"), ("main.10", "before_step"), ("main.1", "recorded")], True),
        ([("main.1", "before_intent"), ("main.2", "before_step")], True),
        ([("main/work#0.0", "before_step")], True),
    ],
)
def test_calls_are_at_once_where_one_begins_before_another_is_done(
    order: list[tuple[str, str]], expected: bool
) -> None:
    assert are_at_once([Point("look", window, key) for key, window in order]) == expected
