"""An agent killed at every point of its run, in real processes: what is counted, and what must never be found."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest

from perdure.errors import PerdureError, StepFailed, UsageError
from perdure.testing.crash.campaign import Laboratory, Report
from perdure.testing.crash.modes import Plan
from perdure.testing.crash.modes import every as modes_every
from perdure.testing.crash.options import Options
from perdure.testing.crash.points import EFFECT_WINDOWS, STEP_WINDOWS, WRITE_WINDOWS
from perdure.testing.crash.subject import Subject, agent_subject
from tests.kit import clerk
from tests.kit.campaigns import note_counts
from tests.postgres import schema_url, server_url
from tests.sampling import every

Campaign = Callable[..., Report]


@pytest.fixture
def campaign(tmp_path: Path) -> Campaign:
    def play(
        agent: Callable[..., Any], *args: Any, mode: str = "every", setup: str = "", only: str = "", **options: Any
    ) -> Report:
        subject = agent_subject(agent, *args)
        if setup:
            (tmp_path / "setup.py").write_text(setup)
            subject = msgspec.structs.replace(subject, setup=(str(tmp_path / "setup.py"),))
        with Laboratory(subject, Options(jobs=2, folder=str(tmp_path), **options)) as laboratory:
            if not only:
                return laboratory.campaign(mode)
            points = [point for point in laboratory.reference.points if re.search(only, point.text)]
            tally = laboratory.play([Plan("every", (point,)) for point in points], modes_every.play)
            return Report(subject, "every", laboratory.options, laboratory.reference, tally, 0.0)

    return play


def expect_fine(report: Report) -> None:
    tally = report.tally
    note_counts(report)
    assert tally.faults == []
    assert tally.landed == tally.planned > 0
    assert tally.equal == tally.resumed == tally.trials
    assert (tally.rerun, tally.repeated, tally.lost) == (0, 0, 0)


@every(sampled=18, tortured=1)
def test_every_kind_of_call_killed_at_every_point_repeats_and_loses_nothing(campaign: Campaign, stride: int) -> None:
    report = campaign(clerk.office, 2, sample=stride)
    expect_fine(report)
    assert report.tally.again == report.tally.trials
    assert report.tally.in_effect > 0
    assert report.tally.in_doubt > 0
    windows = {point.window for point in report.reference.points}
    assert windows == {*EFFECT_WINDOWS, *STEP_WINDOWS, *WRITE_WINDOWS, "before_request", "after_request"}


def test_request_that_lands_after_its_sender_died_is_not_sent_again(campaign: Campaign) -> None:
    report = campaign(clerk.office, 2, only="after_request|letter:before_request", outside_seconds=0.3)
    expect_fine(report)
    assert report.tally.landed == 4


@every(sampled=36, tortured=1)
def test_strands_and_retries_are_killed_at_points_that_do_not_depend_on_their_order(
    campaign: Campaign, stride: int
) -> None:
    report = campaign(clerk.crowd, [1, 2, 3], sample=stride)
    expect_fine(report)
    assert report.reference.unstable == ()
    assert len({point.text for point in report.reference.points}) == len(report.reference.points)


@every(sampled=28, tortured=1)
def test_items_of_a_map_are_points_and_where_its_batches_end_is_no_fault(campaign: Campaign, stride: int) -> None:
    expect_fine(campaign(clerk.mapping, 3, sample=stride))


def test_item_of_a_map_that_is_done_again_is_counted_as_run_again(campaign: Campaign) -> None:
    forgetful = """
from perdure.replay import Journal

absorb = Journal.absorb
Journal.absorb = lambda self, record: None if record.kind == "batch" else absorb(self, record)
"""
    report = campaign(clerk.mapping, 3, at=("record_batch@main.0:after",), setup=forgetful)
    assert report.tally.rerun == 3


def test_sleeps_are_skipped_and_people_answer(campaign: Campaign) -> None:
    report = campaign(clerk.patient, "Which?", sample=48, signals={"go": '"now"'})
    expect_fine(report)
    assert report.reference.result == "red now"
    assert report.reference.seconds < 30


def test_answer_is_given_to_every_question(campaign: Campaign) -> None:
    report = campaign(clerk.patient, "Which?", at=("look:recorded",), answer='"blue"', signals={"go": "1"})
    assert report.reference.result == "blue 1"


def test_question_that_nobody_answers_is_named(campaign: Campaign) -> None:
    with pytest.raises(UsageError) as refused:
        campaign(clerk.silent)
    assert refused.value.message == "The run waits for the question 'Which colour?', and nobody answers."
    assert refused.value.hint == "say what it gets: --answer JSON"


def test_answer_that_does_not_fit_is_named(campaign: Campaign) -> None:
    with pytest.raises(UsageError, match="does not fit"):
        campaign(clerk.patient, "Which?", answer='"green"', signals={"go": "1"})


def test_several_kills_in_a_row_are_several_processes(campaign: Campaign) -> None:
    points = ("mail:inside_effect", "record_verdict@main.1:inside", "mail:after_effect")
    report = campaign(clerk.note, 3, at=points)
    expect_fine(report)
    assert (report.tally.planned, report.tally.landed) == (3, 3)


def test_without_the_kill_a_campaign_reports_that_nothing_landed(campaign: Campaign) -> None:
    spared = "from perdure.testing.crash import trap\ntrap.stop = lambda how: None\n"
    report = campaign(clerk.note, 3, at=("mail:after_effect",), setup=spared)
    assert not report.is_fine
    assert (report.tally.planned, report.tally.landed) == (1, 0)
    assert [fault.kind for fault in report.tally.faults] == ["missed"]


@pytest.mark.parametrize("only", ["(mail|receipt)@main.1", pytest.param("main.1", marks=pytest.mark.torture)])
def test_effect_that_is_sent_without_asking_anybody_is_counted_as_repeated(campaign: Campaign, only: str) -> None:
    careless = """
from perdure.engine import effect, settle

def settled(prepared, intent, *, attempt, why, performance=None):
    return settle.Again(attempt + 1)
    yield

effect.settle = settled
"""
    report = campaign(clerk.note, 3, setup=careless, only=only)
    assert {fault.kind for fault in report.tally.faults} == {"repeated"}
    twice = {"mail@main.1:after_effect", "record_receipt@main.1:inside"}
    assert {fault.points[0] for fault in report.tally.faults} == twice
    assert report.tally.repeated == len(twice)


@pytest.mark.parametrize("only", ["mail@main.1", pytest.param("main.1", marks=pytest.mark.torture)])
def test_effect_that_is_taken_for_done_is_counted_as_lost(campaign: Campaign, only: str) -> None:
    hopeful = """
from perdure.engine import effect, settle

def settled(prepared, intent, *, attempt, why, performance=None):
    return settle.Happened("mailed 6")
    yield

effect.settle = settled
"""
    report = campaign(clerk.note, 3, setup=hopeful, only=only)
    assert report.tally.lost == 2
    lost = {fault.points[0] for fault in report.tally.faults if fault.kind == "lost"}
    assert lost == {"mail@main.1:after_intent", "mail@main.1:inside_effect"}


def test_step_that_is_not_replayed_is_counted_as_run_again(campaign: Campaign) -> None:
    forgetful = """
from perdure import replay
from perdure.engine import active

def decide(journal, call):
    decision = replay.decide(journal, call)
    return replay.Fresh() if type(decision) is replay.Replayed and call.kind == "step" else decision

active.decide = decide
active.remembered = lambda *_: None
"""
    report = campaign(clerk.note, 3, at=("look:recorded",), setup=forgetful)
    assert report.tally.rerun > 0
    assert "rerun" in {fault.kind for fault in report.tally.faults}


def test_completed_run_that_does_something_again_is_a_fault(campaign: Campaign) -> None:
    restless = """
from perdure.engine import lifecycle
from tests.kit import clerk

recorded = lifecycle.recorded_result

def recorded_result(session, spec, run):
    clerk.post("again", "once more")
    return recorded(session, spec, run)

lifecycle.recorded_result = recorded_result
"""
    report = campaign(clerk.note, 3, at=("mail:after_receipt",), setup=restless)
    assert report.tally.again == 0
    assert [(fault.kind, fault.what) for fault in report.tally.faults] == [
        ("again", "again was done to the outside"),
    ]


def test_result_that_is_random_by_nature_is_not_compared(campaign: Campaign) -> None:
    report = campaign(clerk.stamped, sample=20)
    assert report.is_fine
    assert not report.reference.has_result
    assert (report.tally.equal, report.tally.not_compared) == (0, report.tally.trials)


def test_points_that_only_one_uncrashed_run_passes_are_named_and_not_killed_at(campaign: Campaign) -> None:
    report = campaign(clerk.chancy, at=("create_run:after",))
    assert report.reference.unstable
    assert not {point.text for point in report.reference.points} & set(report.reference.unstable)


@pytest.mark.parametrize(
    ("agent", "error", "message"),
    [
        (clerk.unlucky, StepFailed, "Without any kill it does not come to its end: exit code 1: ValueError: no way."),
        (clerk.endless, UsageError, "Without any kill it does not end within 1 s."),
    ],
)
def test_agent_that_does_not_end_without_a_kill_is_not_killed(
    campaign: Campaign, agent: Callable[..., Any], error: type[PerdureError], message: str
) -> None:
    with pytest.raises(error) as refused:
        campaign(agent, timeout_seconds=1.0)
    assert refused.value.message == message


def test_stubbed_body_is_not_executed_and_still_counted(tmp_path: Path) -> None:
    subject = msgspec.structs.replace(agent_subject(clerk.endless), stubs={"stall": "7"})
    with Laboratory(subject, Options(jobs=2, folder=str(tmp_path), at=("stall:inside_step",))) as laboratory:
        report = laboratory.campaign()
    expect_fine(report)
    assert report.reference.result == 7


def test_nothing_is_left_behind_but_the_folders_of_faults(campaign: Campaign, tmp_path: Path) -> None:
    expect_fine(campaign(clerk.note, 3, at=("mail:after_effect",)))
    assert not list(tmp_path.glob("perdure-crash-*"))
    spared = "from perdure.testing.crash import trap\ntrap.stop = lambda how: None\n"
    report = campaign(clerk.note, 3, at=("mail:after_effect",), setup=spared)
    (fault,) = report.tally.faults
    assert [str(folder) for folder in tmp_path.glob("perdure-crash-*/*")] == [fault.folder]
    assert {"work", "logs"} <= {entry.name for entry in Path(fault.folder).iterdir()}


def test_agent_defined_inside_a_function_is_refused() -> None:
    import perdure

    @perdure.agent
    def local() -> int:
        return 1

    with pytest.raises(UsageError, match="defined inside a function"):
        agent_subject(local)


def test_on_a_server_every_trial_has_a_schema_of_its_own_and_leaves_none(campaign: Campaign) -> None:
    with schema_url() as url:
        before = schemas()
        report = campaign(clerk.note, 3, only="record_receipt|create_run:inside", store=url)
        expect_fine(report)
        assert schemas() == before
        assert "inside" in {point.window for point in report.reference.points if point.name == "record_receipt"}


@pytest.mark.torture
def test_every_kind_of_call_on_a_server_killed_at_every_point_repeats_and_loses_nothing(campaign: Campaign) -> None:
    expect_fine(campaign(clerk.office, 2, store=server_url()))


@pytest.mark.minutes(1)
@pytest.mark.parametrize("at", [pytest.param((), marks=pytest.mark.torture), ("record_ended:after",)])
def test_recovery_killed_twice_at_its_own_points_ends_the_same(campaign: Campaign, at: tuple[str, ...]) -> None:
    report = campaign(clerk.note, 3, mode="during-recovery", depth=2, at=at)
    expect_fine(report)
    assert report.tally.planned > 2 * report.tally.trials


def test_check_killed_while_it_is_asked_is_asked_again(campaign: Campaign) -> None:
    for window in ("inside_check", "after_check"):
        report = campaign(clerk.office, 2, at=("parcel:after_request", f"parcel:{window}"))
        expect_fine(report)
        assert report.tally.landed == 2


def test_random_kills_come_from_the_seed(campaign: Campaign) -> None:
    report = campaign(clerk.office, 2, mode="random", trials=2, seed=11)
    expect_fine(report)
    assert report.tally.trials == 2


def schemas() -> set[str]:
    with psycopg.connect(server_url()) as connection:
        return {name for (name,) in connection.execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'crash_%'")}


def test_subject_of_an_agent_is_imported_under_its_module() -> None:
    subject = agent_subject(clerk.note, 3)
    assert (subject.kind, subject.app, subject.name) == ("agent", "tests.kit.clerk", "note")
    assert isinstance(subject, Subject)
