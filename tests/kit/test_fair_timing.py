"""What only time decides is nobody's fault: whose turn it was, who had got further, and whether a limit had passed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.testing.crash.campaign import Laboratory, Report
from perdure.testing.crash.judge import RAN_OUT
from perdure.testing.crash.modes import Plan, clock_jump
from perdure.testing.crash.options import Options
from perdure.testing.crash.points import find_point
from perdure.testing.crash.subject import agent_subject
from perdure.testing.crash.tally import Tally
from tests.kit import doubter
from tests.kit.campaigns import described

Campaign = Callable[..., Report]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    def play(agent: Callable[..., Any], *args: Any, mode: str = "every", **options: Any) -> Report:
        with Laboratory(agent_subject(agent, *args), Options(jobs=2, folder=str(tmp_path), **options)) as laboratory:
            return laboratory.campaign(mode)

    return play


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
