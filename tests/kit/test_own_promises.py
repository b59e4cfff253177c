"""Runs are judged by what they promise: to fail, to go either way, to be unsynced, to leave files; and no further."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from perdure.errors import StepFailed, UsageError
from perdure.testing.crash import report as reports
from perdure.testing.crash import strays
from perdure.testing.crash.campaign import Laboratory, Report
from perdure.testing.crash.grounds import UNSYNCED
from perdure.testing.crash.options import Options
from perdure.testing.crash.points import Point
from perdure.testing.crash.reference import compared
from perdure.testing.crash.subject import Subject, agent_subject
from perdure.testing.crash.tally import Fault, Tally, forgiven
from perdure.testing.crashing import Crash, CrashFailed
from tests.kit import clerk, doubter
from tests.kit.campaigns import described
from tests.kit.desk import Desk
from tests.kit.test_modes_tools import needs_power
from tests.kit.test_reference import observation

Campaign = Callable[..., Report]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    def play(agent: Callable[..., Any], *args: Any, mode: str = "every", setup: str = "", **options: Any) -> Report:
        subject = agent_subject(agent, *args)
        if setup:
            subject = msgspec.structs.replace(subject, setup=(f"tests.planted.{setup}",))
        with Laboratory(subject, Options(jobs=2, folder=str(tmp_path), **options)) as laboratory:
            return laboratory.campaign(mode)

    return play


def kinds(report: Report) -> list[str]:
    return [fault.kind for fault in report.tally.faults]


@pytest.mark.parametrize(
    ("agent", "at"),
    [
        (doubter.refused, "blurt:after_effect"),
        (doubter.stumbling, "record_ended:after"),
        pytest.param(doubter.refused, "record_ended:after", marks=pytest.mark.exhaustive),
        pytest.param(doubter.stumbling, "blurt:after_effect", marks=pytest.mark.exhaustive),
    ],
)
def test_run_that_is_meant_to_fail_fails_the_same_way_after_a_kill(
    campaign: Campaign, agent: Callable[..., Any], at: str
) -> None:
    report = campaign(agent, 7, at=(at,), fails=True)
    tally = report.tally
    assert report.is_fine, described(report)
    assert (tally.landed, tally.resumed, tally.equal, tally.again, tally.rerun) == (1, 1, 1, 1, 0)
    assert "results equal               1  all failed with the same error, as without a kill" in reports.text(report)


def test_failures_with_other_words_each_time_are_not_called_the_same(campaign: Campaign) -> None:
    report = campaign(doubter.muttering, 7, at=("blurt:after_effect",), fails=True)
    assert report.is_fine, described(report)
    told = reports.text(report)
    assert "results equal               1  in the fields that two uncrashed runs agree on" in told
    assert "the same error" not in told


def test_other_request_under_the_same_key_is_a_fault(campaign: Campaign) -> None:
    report = campaign(clerk.stamping, "form", at=("stamp:after_effect",))
    (fault,) = report.tally.faults
    assert fault.kind == "arguments"
    assert re.fullmatch(r"stamp was asked for again under its key with form, by \d+, not form, by \d+", fault.what)


def test_run_that_fails_otherwise_after_a_kill_is_a_fault(campaign: Campaign) -> None:
    report = campaign(doubter.sulking, 7, at=("blurt:after_receipt",), fails=True)
    assert [(fault.kind, fault.what.partition(" instead")[0]) for fault in report.tally.faults] == [
        ("result", "it returned {'failed': {'type': 'ValueError', 'message': 'never'}}")
    ]
    assert "--expect-failure" in report.tally.faults[0].replay


def test_effect_repeated_on_the_way_to_a_failure_is_a_fault(campaign: Campaign) -> None:
    report = campaign(doubter.refused, 7, at=("blurt:after_effect",), fails=True, setup="swallowed_doubt")
    assert kinds(report) == ["repeated"]


def test_failure_nobody_expects_and_success_nobody_expects_are_refused(campaign: Campaign) -> None:
    with pytest.raises(StepFailed, match="does not come to its end") as failed:
        campaign(doubter.refused, 7)
    assert failed.value.hint.endswith("if it is meant to fail: --expect-failure")
    with pytest.raises(UsageError, match="is meant to fail, and comes to its end"):
        campaign(doubter.asking, 7, fails=True)


def test_script_that_is_meant_to_fail_is_killed_and_judged(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("open('kept', 'w').write('7')\nraise SystemExit('not today')\n")
    subject = Subject(kind="script", app=str(script), shown="script.py")
    with Laboratory(subject, Options(jobs=1, folder=str(tmp_path), fails=True)) as laboratory:
        report = laboratory.campaign()
    assert report.is_fine, described(report)
    assert report.tally.equal == report.tally.trials > 0
    assert report.reference.result == {"failed": {"exit_code": 1, "last_line": "not today"}}


@pytest.mark.parametrize("agent", [doubter.fickle, doubter.moody])
def test_agent_that_itself_varies_is_named_once_and_not_blamed_for_going_another_way(
    campaign: Campaign, agent: Callable[..., Any]
) -> None:
    report = campaign(agent, sample=12)
    told = reports.text(report)
    assert report.is_fine, described(report)
    assert told.count("The agent itself varies: of two runs that nobody killed, only one calls look@main.1.") == 1
    assert (report.tally.equal, report.tally.compared) == (0, 0)
    assert reports.campaign_object(report).varies == "look@main.1"


def test_effect_of_a_varying_agent_that_is_repeated_is_still_a_fault(campaign: Campaign) -> None:
    report = campaign(doubter.fickle, at=("blurt:after_effect",), setup="swallowed_doubt")
    assert kinds(report) == ["repeated"]
    sound = [Fault(kind, "") for kind in ("rerun", "repeated", "again", "stuck", "unsaved")]
    held = [Fault(kind, "") for kind in ("missed", "extra", "lost", "arguments", "result", "values", "files")]
    tally = Tally(planned=3, landed=2, repeated=2, lost=1, varies="look@main.0", faults=[*sound, *held])
    assert forgiven(tally).faults == sound
    assert (tally.planned, tally.unreached, tally.repeated, tally.lost) == (2, 1, 1, 0)
    steady = Tally(faults=[*held])
    assert forgiven(steady).faults == held


def test_order_in_which_children_are_claimed_is_not_called_nondeterminism(campaign: Campaign) -> None:
    report = campaign(doubter.middle, 2, at=("create_run:after",))
    writes = ("claim_run#3:before", "record_note@middle.b1f500/#2:inside")
    reference = msgspec.structs.replace(report.reference, unstable=writes)
    *_, told = reports.verdict(msgspec.structs.replace(report, reference=reference))
    assert list(reports.points_text("app.py:middle", reference))[-1] == told
    assert told == (
        "Two uncrashed runs differ in 2 writes of their bookkeeping (claim_run#3:before,"
        " record_note@middle.b1f500/#2:inside), as runs do that are under way at once: nothing was killed there."
    )


def test_write_of_bookkeeping_that_did_not_come_is_no_missed_kill(tmp_path: Path) -> None:
    from perdure.testing.crash.modes import Plan, every

    with Laboratory(agent_subject(doubter.middle, 2), Options(jobs=2, folder=str(tmp_path))) as laboratory:
        child = next(label for label in sorted(laboratory.reference.runs) if label)
        by_chance = [
            Point("claim_run", "inside", occurrence=9),
            Point("record_ended", "inside", occurrence=9),
            Point("record_ended", "inside", child, occurrence=9),
            Point("record_attempt", "inside", f"{child}main.0"),
            Point("look", "inside_step", f"{child}main.0", occurrence=9),
        ]
        calls = [Point("look", "inside_step", key) for key in ("main.9", f"{child}main.9")]
        calls += [Point("record_attempt", "inside", "main.0")]
        tally = laboratory.play([Plan("every", (point,)) for point in by_chance], every.play)
        missed = laboratory.play([Plan("every", (call,)) for call in calls], every.play)
    assert (tally.planned, tally.landed, tally.unreached, tally.faults) == (0, 0, len(by_chance), [])
    assert [fault.kind for fault in missed.faults] == ["missed"] * len(calls)


def test_attempt_of_a_child_that_only_one_uncrashed_run_records_is_not_called_nondeterminism() -> None:
    attempt, call = Point("record_attempt", "inside", "child.00/main.1"), Point("look", "recorded", "child.00/main.1")
    runs = frozenset({"", "child.00/"})
    one, other = (observation(points=points, runs=runs) for points in ((call,), (call, attempt)))
    reference = compared(one, other, explore=lambda rows: [])
    (told,) = list(reports.points_text("app.py:parent", reference))[-1:]
    assert "in 1 write of their bookkeeping (record_attempt@child.00/main.1:inside), as runs do" in told


def test_commit_of_a_child_that_only_one_uncrashed_run_hears_of_is_not_called_nondeterminism() -> None:
    begun, heard = (Point("look", window, "child.00/main.1") for window in ("before_step", "recorded"))
    runs = frozenset({"", "child.00/"})
    one, other = (observation(points=points, runs=runs) for points in ((begun,), (begun, heard)))
    reference = compared(one, other, explore=lambda rows: [])
    (told,) = list(reports.points_text("app.py:parent", reference))[-1:]
    assert "in 1 write of their bookkeeping (look@child.00/main.1:recorded), as runs do" in told


@needs_power
def test_unsynced_steps_may_be_lost_with_the_power_and_effects_never(campaign: Campaign) -> None:
    report = campaign(doubter.hasty, mode="power", at=("look@main.4:recorded",))
    assert report.is_fine, described(report)
    assert report.tally.counts[UNSYNCED] == 2, "the two steps after the effect, and none before it"
    assert report.tally.equal == report.tally.again == 1
    told = reports.text(report)
    assert 'steps since the newest effect, executed again: durability="process" may lose them' in told
    assert 'Its durability="process" was judged by what that promises' in told


@needs_power
def test_synced_steps_lost_with_the_power_are_a_fault_of_an_unsynced_run_too(campaign: Campaign) -> None:
    report = campaign(doubter.hasty, mode="power", at=("pay:after_receipt",), setup="skipped_fsync")
    assert "unsaved" in kinds(report), described(report)


def test_settings_in_force_are_part_of_the_command_that_replays(campaign: Campaign) -> None:
    settings = {"PERDURE_DURABILITY": "process", "PERDURE_VERSION": "v(1)"}
    report = campaign(doubter.boasting, at=("boast:inside_effect",), settings=settings)
    (fault,) = report.tally.faults
    assert fault.replay.startswith("PERDURE_DURABILITY=process PERDURE_VERSION='v(1)' perdure crash ")
    assert shlex.split(fault.replay)[2:4] == ["perdure", "crash"]


def test_files_that_are_named_must_be_left_as_without_a_kill(campaign: Campaign) -> None:
    report = campaign(doubter.noting, at=("note@main.2:after_step",), compare=("notes.txt", "out"))
    (fault,) = report.tally.faults
    assert (fault.kind, fault.what) == ("files", "notes.txt: it has 3 lines instead of 2")
    assert "--compare notes.txt --compare out" in fault.replay
    sound = campaign(doubter.noting, at=("write:after_step",), compare=("out",))
    assert sound.is_fine, described(sound)
    told = reports.text(sound)
    assert "files equal                 1  out" in told
    assert "Compared were results, recorded values, and out.\n" in told


def test_files_that_are_written_and_not_compared_are_named(campaign: Campaign) -> None:
    report = campaign(doubter.noting, at=("write:recorded",), compare=("out",))
    assert reports.uncompared_files(report) == ["notes.txt"]
    assert "It writes notes.txt, and that was not compared: --compare PATH does." in reports.text(report)
    assert reports.campaign_object(report).files_not_compared == ("notes.txt",)
    whole = campaign(doubter.noting, at=("write:recorded",), compare=(".",))
    assert "not compared" not in reports.text(whole)


def test_files_that_are_not_compared_are_named_beside_faults_too(campaign: Campaign) -> None:
    report = campaign(doubter.noting, at=("note@main.2:after_step",), compare=("notes.txt",))
    (fault,) = report.tally.faults
    assert fault.kind == "files"
    (written, *_) = reports.uncompared_files(report)
    assert f"It writes {written}" in reports.text(report)


def test_file_that_was_only_copied_is_not_called_written(campaign: Campaign, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("7")
    report = campaign(doubter.noting, at=("write:recorded",), files=(str(kept),))
    assert reports.uncompared_files(report) == ["notes.txt", "out/1.txt"]


def test_file_in_which_uncrashed_runs_differ_is_not_compared_and_named(campaign: Campaign) -> None:
    report = campaign(doubter.stamping, at=("stamp:after_step",), compare=("out",))
    assert report.is_fine, described(report)
    assert "1  out; two uncrashed runs differ in out/stamp.txt: not compared" in reports.text(report)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nosuch.txt", "the run leaves no such file without any kill"),
        ("../notes.txt", "outside of the folder in which each trial runs"),
        ("/etc/passwd", "outside of the folder in which each trial runs"),
    ],
)
def test_path_that_cannot_be_compared_is_refused(campaign: Campaign, path: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as refused:
        campaign(doubter.noting, compare=("notes.txt", path))
    assert refused.value.hint


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="only Linux tells what another process is")
def test_process_that_a_body_leaves_behind_is_ended_and_named(campaign: Campaign, tmp_path: Path) -> None:
    report = campaign(doubter.leaving, at=("leave:recorded",))
    assert report.is_fine, described(report)
    (stray,) = report.tally.strays
    assert stray.endswith("import time; time.sleep(600)")
    assert f"outlived its trial, and was ended: {stray}" in reports.text(report)
    assert reports.campaign_object(report).left_behind == (stray,)
    assert strays.end_strays("http://127.0.0.1:0/", tmp_path) == []
    assert os.getpid() not in {int(each.name) for each in strays._strays("", Path("/nowhere"))}  # noqa: SLF001


def test_fixture_compares_files_and_names_where_a_test_finds_all_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reports, "MOST_TRIALS", 0)
    with pytest.raises(CrashFailed) as failed:
        Crash(tmp_path)(doubter.noting).comparing("notes.txt").at("note", "after_step")
    assert "… and 1 more trial with faults; CrashFailed.report.tally.faults has them all" in str(failed.value)
    assert "--json" not in str(failed.value)
    assert failed.value.report is not None
    assert kinds(failed.value.report) == ["files"]


def test_fixture_expects_failures_and_says_so_in_its_own_words(tmp_path: Path) -> None:
    assert Crash(tmp_path)(doubter.refused, 7).expecting_failure().at("blurt", "after_effect").is_fine
    with pytest.raises(CrashFailed, match=r"if it is meant to fail: \.expecting_failure\(\)"):
        Crash(tmp_path)(doubter.refused, 7).at("blurt", "after_effect")
    with pytest.raises(CrashFailed, match=r"\.comparing\('nosuch'\): the run leaves no such file"):
        Crash(tmp_path)(doubter.noting).comparing("nosuch").at("note", "after_step")


def test_options_of_the_command_line_reach_the_campaign_and_its_replay(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    words = ("tests.kit.doubter:sulking", "--expect-failure", "--compare", "kept", "--at", "blurt:after_receipt")
    kept = tmp_path / "kept"
    kept.write_text("7")
    first = desk.crash(*words, "--copy", str(kept), "--", "number=7")
    assert first.code == 1, first
    (replay,) = [line.partition("replay: ")[2] for line in first.out.splitlines() if "replay: " in line]
    again = desk.crash(*shlex.split(replay)[2:])
    assert again.code == 1, again
    for result in (first, again):
        assert "it returned {'failed': {'type': 'ValueError', 'message': 'never'}}" in result.out
        assert "files equal                 1  kept" in result.out
