"""refund.py: killed inside the payment, it says that it does not know, and the money goes out once."""

from __future__ import annotations

import pytest

from tests.examples.stage import Ended, Stage

SENT, NOT_SENT = "time.sleep", "with GATEWAY.open"
"""Lines of the gateway before which it is killed: the money is gone and the answer is not back, or it is not gone."""


def _in_doubt(ended: Ended) -> None:
    assert ended.code == 4, ended
    assert "pay_back(order='order-7', cents=700) was started and never confirmed" in ended.err
    assert "perdure settle " in ended.err


def test_killed_after_sending_it_stops_in_doubt_and_nothing_is_sent_again_until_it_is_settled(stage: Stage) -> None:
    stage.kill_in("send_money", SENT, "order-7")
    for _ in range(2):
        _in_doubt(stage.run("order-7"))
    (payment,) = stage.lines("gateway.txt")
    reference = payment.split()[0]
    settled = stage.perdure("settle", "refund-order-7", "pay_back", "--happened", f'"payment {reference}"')
    assert settled.code == 0, settled

    ended = stage.run("order-7")
    assert (ended.code, ended.out.strip()) == (0, f"order-7 refunded: payment {reference}"), ended
    assert stage.lines("gateway.txt") == [payment]
    assert stage.called("decide", "pay_back") == ["decide", "pay_back"]
    assert stage.kills == 1


def test_killed_before_sending_and_settled_as_not_happened_it_is_sent_once(stage: Stage) -> None:
    stage.kill_in("send_money", NOT_SENT, "order-7")
    _in_doubt(stage.run("order-7"))
    assert stage.lines("gateway.txt") == []
    settled = stage.perdure("settle", "refund-order-7", "pay_back", "--did-not-happen")
    assert settled.code == 0, settled

    ended = stage.run("order-7")
    (payment,) = stage.lines("gateway.txt")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, f"order-7 refunded: payment {payment.split()[0]}"), ended
    assert stage.called("decide", "pay_back") == ["decide", "pay_back", "pay_back"]
    assert stage.run("order-7").code == 0
    assert stage.lines("gateway.txt") == [payment]
    assert stage.kills == 1


@pytest.mark.parametrize(("line", "performed"), [(SENT, 1), (NOT_SENT, 2)])
def test_with_a_check_nobody_is_needed(stage: Stage, line: str, performed: int) -> None:
    stage.kill_in("send_money", line, "order-8", "--check")
    ended = stage.run("order-8", "--check")
    (payment,) = stage.lines("gateway.txt")
    assert (ended.code, ended.out.splitlines()[-1]) == (0, f"order-8 refunded: payment {payment.split()[0]}"), ended
    assert stage.called("decide", "pay_back_checked") == ["decide", *["pay_back_checked"] * performed]
    assert stage.called("was_paid_back") == ["was_paid_back"]
    assert stage.kills == 1
