"""What only time decides is nobody's fault: whose turn it was, who had got further, and whether a limit had passed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.testing.crash.campaign import Laboratory, Report
from perdure.testing.crash.options import Options
from perdure.testing.crash.points import find_point
from perdure.testing.crash.subject import agent_subject
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
