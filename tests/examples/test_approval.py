"""approval.py: killed while it waits for a person, after the answer and after the payment, it pays once."""

from __future__ import annotations

import pytest

from tests.examples.stage import Stage

PAID = ["128000 to Owl Supplies Ltd"]
RESULT = "invoice 17: paid 1280.00 to Owl Supplies Ltd"


def _kill_while_it_waits(stage: Stage) -> None:
    process = stage.start()
    stage.wait_until(lambda: stage.journal("invoice-17").reason == "human", "the question")
    stage.kill(process)
    assert "Pay this invoice?" in stage.perdure("inbox").out


def _asked(stage: Stage) -> int:
    return [entry.kind for entry in stage.journal("invoice-17").entries].count("wait")


@pytest.mark.parametrize("command", [["answer", "invoice-17", "approve"], ["approve", "invoice-17"]])
def test_killed_while_it_waits_and_after_the_answer_and_after_the_payment_it_pays_once(
    stage: Stage, command: list[str]
) -> None:
    _kill_while_it_waits(stage)
    process, gate = stage.start_until("handle_invoice", "receipt = pay(")
    answered = stage.perdure(*command)
    assert answered.code == 0, answered
    stage.kill_at(process, gate)
    assert stage.lines("payments.txt") == []
    stage.kill_in("handle_invoice", "return f")
    assert stage.lines("payments.txt") == PAID

    for _ in range(2):
        ended = stage.run()
        assert (ended.code, ended.out.splitlines()[-1]) == (0, RESULT), ended
        assert stage.lines("payments.txt") == PAID
    assert stage.returned("read_invoice", "pay") == ["read_invoice", "pay"]
    assert _asked(stage) == 1
    assert stage.kills == 3


def test_an_answer_given_while_nothing_runs_is_taken_at_the_next_start(stage: Stage) -> None:
    _kill_while_it_waits(stage)
    _kill_while_it_waits(stage)
    assert stage.perdure("approve", "invoice-17").code == 0
    ended = stage.run()
    assert (ended.code, stage.lines("payments.txt")) == (0, PAID), ended
    assert _asked(stage) == 1
    assert stage.kills == 2


def test_a_rejected_payment_is_not_made(stage: Stage) -> None:
    _kill_while_it_waits(stage)
    assert stage.perdure("reject", "invoice-17", "--by", "grace").code == 0
    ended = stage.run()
    assert (ended.code, ended.out.splitlines()[-1]) == (0, "rejected by grace"), ended
    assert stage.lines("payments.txt") == []
    assert stage.kills == 1
