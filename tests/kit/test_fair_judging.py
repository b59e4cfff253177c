"""The judge blames nobody for what is right, passes nothing that is wrong, and claims no more than was judged."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from perdure.errors import StoreUnavailable
from perdure.testing.crash import report as reports
from perdure.testing.crash.agreement import Agreed
from perdure.testing.crash.campaign import Laboratory, Report
from perdure.testing.crash.modes import Plan, every
from perdure.testing.crash.options import Options
from perdure.testing.crash.points import find_point
from perdure.testing.crash.subject import agent_subject
from perdure.testing.crash.trial import Trial
from tests.kit import doubter
from tests.kit.campaigns import described
from tests.kit.test_modes_tools import needs_power

Campaign = Callable[..., Report]
WINDOWS = ("before_intent", "after_receipt")


def kinds(report: Report) -> list[str]:
    return [fault.kind for fault in report.tally.faults]


@pytest.mark.parametrize(
    "mode", ["zombie", "clock-jump", pytest.param("power", marks=[needs_power, pytest.mark.exhaustive])]
)
def test_every_mode_plays_the_person_until_its_point_is_reached(campaign: Campaign, mode: str) -> None:
    report = campaign(doubter.asking, 1, mode=mode, at=("pay:inside_effect",))
    assert report.is_fine, described(report)
    assert report.tally.landed == report.tally.planned == report.tally.trials
    assert report.tally.equal == report.tally.trials


def test_disk_that_fills_up_after_an_answer_stops_the_run_and_loses_nothing(campaign: Campaign) -> None:
    report = campaign(doubter.wordy, mode="disk-full", at=("deliver:inside_effect",))
    tally = report.tally
    assert report.is_fine, described(report)
    assert (tally.planned, tally.landed, tally.in_effect) == (1, 1, 1)
    assert "room was enough" not in tally.counts
    assert (tally.resumed, tally.equal, tally.again, tally.lost, tally.repeated) == (1, 1, 1, 0, 0)


def test_end_of_a_run_that_waited_for_a_person_is_a_point_of_its_own(campaign: Campaign) -> None:
    report = campaign(doubter.asking, 1, at=("record_ended#2:inside",))
    assert report.is_fine, described(report)
    texts = [point.text for point in report.reference.points]
    assert texts.index("record_ended:after") < texts.index("open_store#2:before")
    assert texts[-1] == "record_ended#2:after"


def test_process_frozen_at_the_end_after_an_answer_is_taken_over(campaign: Campaign) -> None:
    report = campaign(doubter.asking, 1, mode="zombie", at=("record_ended#2:before",))
    assert report.is_fine, described(report)


def test_effect_of_a_restarted_run_is_the_same_in_whichever_process_it_goes_on(tmp_path: Path) -> None:
    with Laboratory(agent_subject(doubter.restarting, 1), Options(jobs=2, folder=str(tmp_path))) as laboratory:
        looks = [point for point in laboratory.reference.points if point.text.startswith("look@")]
        (third,) = [point for point in looks if point.text.endswith("~3/main.0:before_step")]
        tally = laboratory.play([Plan("every", (third,))], every.play)
    assert tally.is_fine, tally.faults


def test_effect_killed_in_mid_body_that_its_check_found_is_not_called_lost(campaign: Campaign) -> None:
    report = campaign(doubter.mailing, at=("halfway:inside",))
    assert report.is_fine, described(report)
    assert (report.tally.lost, report.tally.unjudged) == (0, 1)
    assert "1 killed in mid-body happened, by their checks: not judged" in reports.text(report)


def test_effect_killed_where_its_body_began_is_lost_whatever_its_check_says(campaign: Campaign) -> None:
    report = campaign(doubter.boasting, at=("boast:inside_effect",))
    assert kinds(report) == ["lost"]


def test_step_that_gives_another_value_when_it_runs_anew_is_no_fault(campaign: Campaign) -> None:
    report = campaign(doubter.game, at=("flip:after_step",))
    assert report.is_fine, described(report)
    assert (report.tally.equal, report.tally.not_compared) == (0, 1)
    told = reports.text(report)
    assert "0  of 0 compared; 1 not compared: a step gave another value" in told
    assert "1 result could not be compared.\n" in told
    assert reports.campaign_object(report).results_not_compared == 1


def test_value_recorded_before_a_kill_must_be_the_same_afterwards(tmp_path: Path) -> None:
    def play(trial: Trial, plan: Plan) -> None:
        trial.kill(plan.points[0])
        last = trial.resume_to_the_end()
        trial.recorded["main.0"] = '"heads"'
        trial.judge(last)

    with Laboratory(agent_subject(doubter.game), Options(jobs=1, folder=str(tmp_path))) as laboratory:
        point = find_point(laboratory.reference.points, "flip:after_step")
        tally = laboratory.play([Plan("every", (point,))], play)
    assert [fault.what for fault in tally.faults] == ['main.0 was recorded as "heads", and now as "tails"']


def test_store_of_one_trial_that_cannot_be_used_does_not_end_the_campaign(tmp_path: Path) -> None:
    def play(trial: Trial, plan: Plan) -> None:
        if plan.seed:
            raise StoreUnavailable("perdure.db is locked by another process.", hint="start again once it is done")
        every.play(trial, plan)

    with Laboratory(agent_subject(doubter.game), Options(jobs=1, folder=str(tmp_path))) as laboratory:
        point = find_point(laboratory.reference.points, "flip:after_step")
        tally = laboratory.play([Plan("every", (point,), seed=seed) for seed in (1, 0)], play)
    assert (tally.trials, tally.landed) == (2, 1)
    assert [(fault.kind, fault.what) for fault in tally.faults] == [
        ("stuck", "perdure.db is locked by another process.")
    ]
    assert Path(tally.faults[0].folder).exists()


def test_step_that_is_given_other_arguments_after_a_kill_is_a_fault(campaign: Campaign) -> None:
    report = campaign(doubter.misled, at=("remember@main.0:recorded",))
    assert set(kinds(report)) == {"result", "values"}


@pytest.mark.parametrize(
    ("mode", "later"),
    [
        ("every", ()),
        ("racers", ()),
        pytest.param("during-recovery", ("open_store:after",), marks=pytest.mark.exhaustive),
        pytest.param("clock-jump", (), marks=pytest.mark.exhaustive),
    ],
)
def test_effect_that_is_performed_with_other_arguments_after_a_kill_is_a_fault(
    campaign: Campaign, mode: str, later: tuple[str, ...]
) -> None:
    report = campaign(doubter.oblivious, mode=mode, at=("announce@main.2:before_intent", *later), racers=2)
    faults = [fault for fault in report.tally.faults if fault.kind == "arguments"]
    assert {fault.what for fault in faults} == {
        "announce@main.2 was performed as announce(text='seen []') instead of announce(text='seen [1, 2]')"
    }
    assert "× an effect was performed with other arguments" in reports.text(report)
    assert {*kinds(report)} == {"arguments"}


def test_arguments_that_look_alike_are_shown_where_they_differ(campaign: Campaign) -> None:
    report = campaign(doubter.verbose, at=("announce@main.2:before_intent",))
    (fault,) = report.tally.faults
    assert fault.kind == "arguments"
    assert 'so seen []"' in fault.what
    assert 'so seen [1, 2]"' in fault.what


def test_effect_that_the_agent_itself_gives_other_arguments_is_no_fault(tmp_path: Path) -> None:
    with Laboratory(agent_subject(doubter.seasonal), Options(jobs=2, folder=str(tmp_path))) as laboratory:
        before, after = (find_point(laboratory.reference.points, f"announce:{each}") for each in WINDOWS)
        alone = laboratory.play([Plan("every", (before,))], every.play)
        tally = laboratory.play([Plan("every", (point,)) for point in (before, after)], every.play)
    assert [fault.kind for fault in alone.faults] == ["arguments"]  # only a process that nobody killed can tell
    assert tally.faults == []
    assert {*tally.swaying} == {"announce@main.1"}


def test_fields_that_uncrashed_runs_agree_on_are_compared_where_others_differ(campaign: Campaign) -> None:
    assert kinds(campaign(doubter.forgetful, at=("remember@main.0:recorded",))) == ["result"]
    sound = campaign(doubter.forgetful, at=("create_run:after",))
    assert (sound.tally.equal, sound.tally.not_compared) == (1, 0)
    assert "Fields in which two uncrashed runs differ were not compared." in reports.text(sound)


def test_result_that_was_not_compared_is_not_counted_as_equal(campaign: Campaign) -> None:
    report = campaign(doubter.dated, sample=24)
    assert report.is_fine, described(report)
    assert (report.tally.equal, report.tally.not_compared) == (0, report.tally.trials)
    assert "0  of 0 compared" in reports.text(report)


def test_verdict_claims_no_more_than_was_judged(campaign: Campaign) -> None:
    report = campaign(doubter.asking, 1, at=("look:recorded",))
    (verdict,) = reports.verdict(report)
    listed = len(report.reference.points)
    assert verdict == (f"Every promise was kept at 1 of {listed} points. None of the kills landed inside an effect.")
    (verdict,) = reports.verdict(campaign(doubter.dated, at=("look:recorded",)))
    assert "No effect and no request to the outside was seen: only steps were judged." in verdict


def test_verdict_counts_no_point_that_no_run_came_by(campaign: Campaign) -> None:
    report = campaign(doubter.middle, 1, at=("create_run:after",))
    listed = len(report.reference.points)
    report.tally.points, report.tally.judged, report.tally.unreached = listed, listed - 3, 3
    assert next(reports.verdict(report)).startswith(f"Every promise was kept at {listed - 3} of {listed} points.")
    report.tally.judged = listed
    assert next(reports.verdict(report)).startswith("Every promise was kept. ")


@pytest.mark.parametrize(
    ("one", "other", "found", "differs"),
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 1, "b": 4}, ""),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"a": 2, "b": 2}, ".a"),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, {"b": 2}, ".a"),
        ({"a": [1, {"c": 2}]}, {"a": [5, {"c": 2}]}, {"a": [7, {"c": 3}]}, ".a.1"),
        ([1, 2], [1, 3], "gone", ".0"),
        ("x", "x", "y", "."),
        ("x", "y", "z", ""),
    ],
)
def test_results_are_compared_field_by_field(one: Any, other: Any, found: Any, differs: str) -> None:
    assert Agreed(one, other).differs(found) == differs


def test_results_without_a_common_field_are_not_compared_at_all() -> None:
    assert Agreed({"a": 1}, {"a": 2}).is_empty
    assert not Agreed({"a": 1, "b": 1}, {"a": 2, "b": 1}).is_empty
    assert not Agreed(None, None).is_empty
