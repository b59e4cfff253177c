"""Every mode over SQLite: the faults land, and perdure keeps its promises; without its fault a mode fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perdure.errors import UsageError
from perdure.testing.crash import damage
from perdure.testing.crash.campaign import Laboratory, Report
from perdure.testing.crash.disk import Disk
from perdure.testing.crash.modes import disk_full, flip
from perdure.testing.crash.options import Options
from perdure.testing.crash.subject import Subject
from tests.kit.campaigns import campaign, described, expect_fine
from tests.kit.test_modes_tools import needs_power
from tests.sampling import every

MODES = ("racers", "zombie", "disk-full", "clock-jump", pytest.param("power", marks=needs_power))


@every(sampled=32, tortured=1)
@pytest.mark.parametrize("mode", MODES)
def test_faults_at_every_point_break_no_promise(tmp_path: Path, mode: str, stride: int) -> None:
    report = campaign(mode, "errand", tmp_path, sample=stride)
    expect_fine(report)
    assert report.tally.in_effect > 0 or stride > 1, described(report)


@every(tortured=2)
@pytest.mark.parametrize("mode", MODES)
def test_faults_break_no_promise_where_effects_are_performed_at_once(tmp_path: Path, mode: str, stride: int) -> None:
    expect_fine(campaign(mode, "rounds", tmp_path, sample=stride, racers=4))


@pytest.mark.torture
def test_kills_at_random_instants_break_no_promise(tmp_path: Path) -> None:
    expect_fine(campaign("random", "errand", tmp_path, trials=60))


@pytest.mark.parametrize("racers", [4, pytest.param(16, marks=pytest.mark.torture)])
def test_of_many_that_resume_at_once_one_goes_on_and_the_others_are_told(tmp_path: Path, racers: int) -> None:
    report = campaign("racers", "errand", tmp_path, racers=racers, at=("plan:recorded",))
    expect_fine(report)
    counts = report.tally.counts
    assert counts["racers"] == racers
    assert counts.get("refused", 0) + counts["saw its end"] == racers


def test_late_receipt_of_a_thawed_process_is_kept_as_evidence(tmp_path: Path) -> None:
    report = campaign("zombie", "errand", tmp_path, at=("post:after_effect",))
    expect_fine(report)
    assert report.tally.counts["late receipts"] == 1
    assert report.tally.in_doubt == 0, "the evidence settles it, and no person is asked"


@pytest.mark.minutes(1)
@pytest.mark.parametrize(("trials", "seed"), [(5, 17), pytest.param(200, 16, marks=pytest.mark.torture)])
def test_damage_is_harmless_or_named_and_never_silent(tmp_path: Path, trials: int, seed: int) -> None:
    report = campaign("flip", "errand", tmp_path, trials=trials, seed=seed)
    expect_fine(report)
    counts = report.tally.counts
    assert counts[damage.FLIPPED] + counts[damage.CUT] == report.tally.landed
    assert counts[damage.DETECTED] + counts[damage.HARMLESS] == report.tally.landed
    assert counts[damage.REPAIRED] + counts.get(damage.PUT_BACK, 0) == counts[damage.DETECTED]
    assert counts[damage.HARMLESS] > 0
    assert counts[damage.REPAIRED] > 0


@pytest.mark.parametrize(
    ("mode", "bug"),
    [
        ("racers", "toothless"),
        ("clock-jump", "deaf_clock"),
        pytest.param("zombie", "toothless", marks=pytest.mark.torture),
        pytest.param("power", "toothless", marks=[needs_power, pytest.mark.torture]),
    ],
)
def test_mode_whose_processes_are_not_stopped_lands_nothing_and_fails(tmp_path: Path, mode: str, bug: str) -> None:
    report = campaign(mode, "thinker", tmp_path, bug=bug, at=("plan:inside_step",))
    assert report.tally.landed == 0, described(report)
    assert not report.is_fine


@pytest.mark.parametrize("mode", ["disk-full", "flip", pytest.param("power", marks=needs_power)])
def test_mode_that_does_no_harm_lands_nothing_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    monkeypatch.setattr(disk_full, "LEAST_BYTES", 1 << 30)
    monkeypatch.setattr(damage, "harm", lambda *_: damage.Harm("nothing", "no byte"))
    monkeypatch.setattr(Disk, "lose_power", lambda _: None)
    report = campaign(mode, "thinker", tmp_path, at=("plan:inside_step",))
    assert report.tally.landed == 0, described(report)
    assert not report.is_fine


def test_damage_of_a_seed_is_the_same_when_it_is_replayed(tmp_path: Path) -> None:
    wide = campaign("flip", "thinker", tmp_path, trials=1, seed=11)
    narrow = campaign("flip", "thinker", tmp_path, seed=11, at=(planned_point(wide),))
    assert narrow.tally.counts == wide.tally.counts


def planned_point(report: Report) -> str:
    (plan,) = flip.plan(report.reference, report.options)
    return plan.points[0].text


@pytest.mark.parametrize(
    ("mode", "options", "message"),
    [("kill-database", {}, "this store is a file"), ("racers", {"racers": 1}, "at least two processes")],
)
def test_combination_that_makes_no_sense_is_refused(
    tmp_path: Path, mode: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        campaign(mode, "thinker", tmp_path, **options)
    assert refused.value.hint


NAMELESS = """
import perdure

@perdure.step
def think() -> int:
    return 7

@perdure.agent
def job() -> int:
    return think()

if __name__ == "__main__":
    print(perdure.run(job))
"""


@pytest.mark.parametrize(
    ("written", "message"),
    [
        (NAMELESS, "begins another run each time it has ended"),
        ("open('kept', 'w').write('7')\n", "this script has none"),
    ],
)
def test_script_in_which_no_run_can_be_found_again_is_refused(tmp_path: Path, written: str, message: str) -> None:
    script = tmp_path / "script.py"
    script.write_text(written)
    subject = Subject(kind="script", app=str(script), shown="script.py")
    options = Options(folder=str(tmp_path))
    with Laboratory(subject, options) as laboratory, pytest.raises(UsageError, match=message) as refused:
        laboratory.campaign("zombie")
    assert refused.value.hint
