"""`perdure demo effect`: a payment is sent, and its process dies before that is recorded."""

from __future__ import annotations

from typing import Final

import perdure
from perdure.demo import stage

NAME: Final = "perdure.demo.effect"
STEPS: Final = 3
PAYMENTS: Final = "demo-payments.jsonl"
INVOICE: Final = "2026-118"
_DUE_CENTS: Final = {INVOICE: 129_00}


@perdure.step
def read_invoice(invoice: str) -> int:
    """Ask the model how much is due, in cents."""
    stage.ask_model(tokens=380, dollars=0.0009)
    return _DUE_CENTS[invoice]


@perdure.effect(in_flight_seconds=0)
def pay(invoice: str, cents: int) -> str:
    """Pay; whether it happened can be found out."""
    return _paid(invoice, cents)


@pay.check
def was_paid(intent: perdure.Intent) -> perdure.Verdict:
    """Look for the payment at the bank, which is a file."""
    return stage.verdict(PAYMENTS, intent, payment_of(intent.key))


@perdure.effect(in_flight_seconds=0)
def pay_blindly(invoice: str, cents: int) -> str:
    """Pay; whether it happened only a person can find out."""
    return _paid(invoice, cents)


@perdure.step
def file_receipt(payment: str) -> str:
    """Put the receipt away."""
    stage.take(stage.STEP_SECONDS)
    return f"receipt for {payment} filed"


@perdure.agent(name=NAME)
def pay_invoice(invoice: str, *, has_check: bool) -> str:
    """Read an invoice, pay it once, file the receipt."""
    cents = read_invoice(invoice)
    return file_receipt(pay(invoice, cents) if has_check else pay_blindly(invoice, cents))


AGENT: Final = pay_invoice


def play(kind: str) -> None:
    """Run the agent until it has paid, and die."""
    perdure.run(pay_invoice, INVOICE, has_check=kind == "checked", fresh=True)


def payment_of(key: str) -> str:
    """The bank's number for the payment under this key."""
    return f"payment-{key[:8]}"


def _paid(invoice: str, cents: int) -> str:
    key = perdure.current().key
    stage.write(PAYMENTS, key=key, payment=payment_of(key), invoice=invoice, cents=str(cents))
    if stage.death == "after":
        stage.die()
    return payment_of(key)
