"""`perdure demo approval`: an agent asks a person, and its process dies while the question is open."""

from __future__ import annotations

from typing import Final

import perdure
from perdure import events
from perdure.demo import stage

NAME: Final = "perdure.demo.approval"
STEPS: Final = 5
"""The wait for a person is one of them."""
REFUNDS: Final = "demo-refunds.jsonl"
_PAID_CENTS: Final = {"A-17": 4900}


@perdure.step
def read_complaint(order: str) -> str:
    """Ask the model what the customer wants."""
    stage.ask_model(tokens=640, dollars=0.0021)
    return f"The parcel of order {order} came broken; the customer wants the money back."


@perdure.step
def look_up_order(order: str) -> int:
    """What was paid, in cents."""
    stage.take(stage.STEP_SECONDS)
    return _PAID_CENTS[order]


@perdure.effect(approve=True, in_flight_seconds=0)
def refund(order: str, cents: int) -> str:
    """Pay the money back, once a person has approved just this call."""
    key = perdure.current().key
    stage.write(REFUNDS, key=key, order=order, cents=str(cents))
    return f"refund-{key[:8]}"


@refund.check
def was_refunded(intent: perdure.Intent) -> perdure.Verdict:
    """Look for the refund in the file."""
    return stage.verdict(REFUNDS, intent, f"refund-{intent.key[:8]}")


@perdure.step
def write_letter(outcome: str) -> str:
    """Ask the model for a letter to the customer."""
    stage.ask_model(tokens=910, dollars=0.0048)
    return f"Dear customer, {outcome}."


@perdure.agent(name=NAME)
def refund_desk(order: str = "A-17") -> str:
    """Read, look up, refund what a person approves, and write to the customer."""
    read_complaint(order)
    cents = look_up_order(order)
    try:
        outcome = f"{refund(order, cents)} is on its way"
    except perdure.errors.ApprovalDenied:
        outcome = "we are sorry, there is no refund"
    return write_letter(outcome)


AGENT: Final = refund_desk


def play() -> None:
    """Run the agent until it has asked, and die."""
    events.subscribe(_die_asking, events.WaitOpened)
    perdure.run(refund_desk, fresh=True)


def _die_asking(event: events.Observable) -> None:
    del event
    if stage.death == "asked":
        stage.die()
