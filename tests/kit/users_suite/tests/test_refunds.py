"""Tests as a user of perdure writes them: every fixture of the plugin once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from backoffice import refunds  # type: ignore[import-not-found]  # a project of its own, not on the path of this one

import perdure
from perdure.testing import Crash, ManualClock, Outcomes, People, Script, StoreInUse, replay_check


@pytest.fixture
def scripted(outcomes: Outcomes, people: People) -> Script:
    """Nothing real happens, and the lead says yes."""
    outcomes(refunds.price_of).returns(250)
    outcomes(refunds.send_mail).returns("mail")
    people.answer("Refund…", True, assignee="lead")
    return outcomes(refunds.pay_back)


def test_three_days_pass_in_milliseconds(perdure_store: StoreInUse, clock: ManualClock, scripted: Script) -> None:
    scripted.returns("payment 7")
    began = clock.now
    assert perdure.run(refunds.refund, "A-17") == "mail"
    assert clock.now - began == timedelta(days=2, hours=8)
    assert scripted.calls[0].arguments == {"order": "A-17", "cents": 3500}
    assert len(perdure_store.calls(perdure_store.runs()[0])) == 20


def test_a_question_that_nobody_answers_in_time_fails_the_run(
    clock: ManualClock, people: People, outcomes: Outcomes
) -> None:
    outcomes(refunds.price_of).returns(250)
    outcomes(refunds.pay_back).forbidden()
    people.leave_open("Refund")
    handle = perdure.start(refunds.refund, "A-17")
    clock.advance("3d")
    with pytest.raises(perdure.errors.DeadlineExceeded):
        handle.result()


def test_a_flaky_price_is_read_again(clock: ManualClock, people: People, outcomes: Outcomes) -> None:
    prices = outcomes(refunds.price_of).raises(OSError("busy")).then.returns(250)
    people.answer("Refund", "no")
    assert perdure.run(refunds.refund, "A-17", lines=1) == "kept"
    assert [call.attempt for call in prices.calls] == [1, 2]


def test_a_lost_answer_does_not_pay_twice(clock: ManualClock, scripted: Script) -> None:
    scripted.lost("payment 7")
    assert perdure.run(refunds.refund, "A-17") == "mail"
    assert len(scripted.performed) == 1


def test_a_declined_payment_is_told(clock: ManualClock, scripted: Script, outcomes: Outcomes) -> None:
    scripted.raises(refunds.Declined("no"))
    mails = outcomes(refunds.send_mail)
    assert perdure.run(refunds.refund, "A-17") == "mail"
    assert mails.calls[0].arguments["text"] == "your bank declined"


@pytest.mark.parametrize("perdure_store", ["sqlite"], indirect=True)
def test_running_refunds_fit_this_code(perdure_store: StoreInUse, people: People, outcomes: Outcomes) -> None:
    outcomes(refunds.price_of).returns(250)
    people.leave_open("Refund")
    with pytest.raises(perdure.PerdureError):
        perdure.run(refunds.refund, "A-17")
    checked = replay_check(refunds, perdure_store)
    assert checked.fine, checked
    assert checked.runs[0].at == 15


def test_killed_after_the_money_went_out(crash: Crash) -> None:
    crash(refunds.deliver, "A-17").at("pay_back", "after_effect")


def test_killed_at_every_point(crash: Crash) -> None:
    report = crash(refunds.deliver, "A-17").every_point()
    assert report.tally.landed == report.tally.planned > 100


def test_a_refund_with_a_person_is_killed(crash: Crash) -> None:
    crash(refunds.refund, "A-17", lines=2).answering("yes").every_point(sample=4)


def test_eight_processes_resume_at_once(crash: Crash) -> None:
    crash(refunds.deliver, "A-17").racers(8, sample=40)


def test_killed_at_random(crash: Crash) -> None:
    crash(refunds.deliver, "A-17").random(5, seed=1)


def test_killed_again_while_it_recovers(crash: Crash) -> None:
    crash(refunds.deliver, "A-17").during_recovery(2, sample=80)


def test_frozen_and_thawed(crash: Crash) -> None:
    crash(refunds.deliver, "A-17").zombie(sample=60)
