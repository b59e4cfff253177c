"""Proof that the kit can fail: every planted bug is reported by the mode that can see it, and only with the bug."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.kit.campaigns import campaign, described, expect_fine, kinds
from tests.kit.desk import Desk
from tests.kit.test_modes_tools import needs_power


class Case(NamedTuple):
    """A bug, the mode that sees it and where, and the kind of fault it is reported as.

    Each bug and each mode is played whenever the tests are run; what shows the same once more, in the campaign alone.
    """

    bug: str
    mode: str
    agent: str
    options: dict[str, Any]
    kind: str
    is_long: bool = False


CASES = [
    Case("receipt_first", "every", "errand", {"at": ("post:inside_effect",)}, "lost"),
    Case("receipt_first", "every", "errand", {"at": ("charge:inside_effect",)}, "lost", is_long=True),
    Case("swallowed_doubt", "every", "errand", {"at": ("post:after_effect",)}, "repeated"),
    Case("swallowed_doubt", "racers", "errand", {"at": ("mail:after_effect",)}, "repeated", is_long=True),
    Case("key_from_position", "every", "errand", {"at": ("charge:after_effect",)}, "repeated"),
    Case("no_fence", "zombie", "errand", {"at": ("plan:inside_step",)}, "stale"),
    Case("unpredicated_claim", "racers", "errand", {"at": ("plan:recorded",)}, "robbed"),
    Case("unpredicated_claim", "clock-jump", "errand", {"at": ("plan:inside_step",)}, "robbed"),
    Case("lease_never_renewed", "zombie", "errand", {"at": ("plan:inside_step",)}, "robbed"),
    Case("unchecked_checksum", "flip", "errand", {"trials": 3, "seed": 1}, "result"),
]
POWER = Case("skipped_fsync", "power", "thinker", {"sample": 12}, "unsaved")


def played(case: Case) -> Any:
    return pytest.param(case, marks=[pytest.mark.torture] * case.is_long, id=f"{case.bug} by {case.mode}")


@pytest.mark.slice
@pytest.mark.parametrize("case", [*map(played, CASES)])
def test_planted_bug_is_found_by_the_mode_that_can_see_it(tmp_path: Path, case: Case) -> None:
    report = campaign(case.mode, case.agent, tmp_path, bug=case.bug, **case.options)
    assert not report.is_fine, described(report)
    assert case.kind in kinds(report), described(report)
    assert all(fault.replay for fault in report.tally.faults)


@pytest.mark.slice
@needs_power
def test_skipped_sync_is_found_by_cutting_the_power(tmp_path: Path) -> None:
    report = campaign(POWER.mode, POWER.agent, tmp_path, bug=POWER.bug, **POWER.options)
    assert POWER.kind in kinds(report), described(report)


GREEN = sorted({(case.mode, case.agent, tuple(case.options.items())) for case in CASES})
"""Whenever the tests are run, one of them is played; the tests of the modes play all modes without a bug."""


@pytest.mark.parametrize(
    ("mode", "agent", "options"), [GREEN[0], *(pytest.param(*green, marks=pytest.mark.torture) for green in GREEN[1:])]
)
def test_same_campaign_without_a_bug_finds_nothing(tmp_path: Path, mode: str, agent: str, options: Any) -> None:
    expect_fine(campaign(mode, agent, tmp_path, **dict(options)))


def test_fault_is_seen_again_by_the_command_that_it_names(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    options = ("--setup", "tests.planted.swallowed_doubt", "--racers", "2", "--at", "post:after_effect")
    first = desk.crash("tests.kit.courier:errand", *options, "--", "parcel=p")
    assert first.code == 1, first
    (replay,) = [line.partition("replay: ")[2] for line in first.out.splitlines() if "replay: " in line]
    assert replay.startswith("perdure crash ")
    again = desk.crash(*shlex.split(replay)[2:])
    assert again.code == 1, again
    assert "an effect was repeated: post 'p' happened 2 times" in again.out


def test_skipped_sync_is_invisible_to_kills_and_therefore_needs_the_power(tmp_path: Path) -> None:
    """A kill of the process leaves what the kernel has: this is why the mode exists."""
    expect_fine(campaign("every", POWER.agent, tmp_path, bug=POWER.bug, sample=12))
