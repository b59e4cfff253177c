"""A refund of twenty steps: the order is read line by line, a person is asked, money and mail go out."""

from __future__ import annotations

import perdure


class Declined(Exception):
    """The bank does not do it."""


@perdure.step(retry=perdure.Retry(attempts=3, delay_seconds=60))
def price_of(line: str) -> int:
    """What the customer paid for this line, in cents."""
    return 100 + len(line)


@perdure.effect(certain=(Declined,))
def pay_back(order: str, cents: int) -> str:
    """Money goes out."""
    return f"payment {order} {cents}"


@pay_back.check
def was_paid(intent: perdure.Intent) -> perdure.Verdict:
    """Ask the bank."""
    return perdure.cannot_tell(f"the bank is not asked for {intent.key} in this example")


@perdure.effect
def send_mail(to: str, text: str) -> str:
    """Mail goes out."""
    return f"mail to {to}: {text}"


@perdure.agent
def refund(order: str, *, lines: int = 14) -> str:
    """Refund an order: `lines` prices, a question, a night, a payment, a mail, and a survey."""
    cents = sum(price_of(f"{order}/{number}") for number in range(lines))
    answer = perdure.ask(f"Refund {cents} cents for {order}?", options=["yes", "no"], assignee="lead", timeout="3d")
    if answer.choice == "no":
        return "kept"
    perdure.sleep("8h")
    try:
        payment = pay_back(order, cents)
    except Declined:
        return send_mail(order, "your bank declined")
    send_mail(order, payment)
    perdure.sleep("2d")
    return send_mail(order, "how was it?")


@perdure.agent
def deliver(order: str) -> str:
    """Ship an order: three parcels, then a mail, without a person."""
    weights = [price_of(f"{order}/{number}") for number in range(15)]
    paid = pay_back(order, sum(weights))
    first = send_mail(order, "it is on its way")
    second = send_mail(order, paid)
    return f"{first}; {second}; {perdure.now().year > 0}"
