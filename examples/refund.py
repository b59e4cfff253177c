"""A refund agent that is killed inside the payment: was it sent or not? perdure does not guess.

    python refund.py order-7              the payment gateway cannot be asked: a person decides
    python refund.py order-8 --check      the gateway can be asked, and nobody needs to be

The gateway is made up: it is the file gateway.txt, and takes two seconds to answer after it has paid. Start the script
in the background (`python refund.py order-7 &`), kill it during these two seconds (`kill -9 %1`), and start it again.
Without --check it ends with exit code 4 and says how to settle the payment: look into gateway.txt, as you would look
into the gateway's list of payments, and say what you found. With --check the script looks itself, and goes on.
"""

import sys
import time
from pathlib import Path

import perdure

GATEWAY = Path("gateway.txt")


def send_money(order: str, cents: int, reference: str) -> str:
    """What happens at the gateway: the money is gone before the answer is back."""
    with GATEWAY.open("a") as payments:
        payments.write(f"{reference} {cents} for {order}\n")
    print("the gateway has paid; its answer is on the way", flush=True)
    time.sleep(2)
    return f"payment {reference}"


def find_payment(reference: str) -> str:
    sent = GATEWAY.read_text().splitlines() if GATEWAY.exists() else []
    return next((f"payment {reference}" for line in sent if line.startswith(reference)), "")


@perdure.step
def decide(order: str) -> int:
    """Stands for a model that reads the customer's letter."""
    return 100 * len(order)


@perdure.effect
def pay_back(order: str, cents: int) -> str:
    return send_money(order, cents, reference=perdure.current().key)


@perdure.effect(in_flight_seconds=0)  # nothing can still be on its way to a file
def pay_back_checked(order: str, cents: int) -> str:
    return send_money(order, cents, reference=perdure.current().key)


@pay_back_checked.check
def was_paid_back(intent: perdure.Intent) -> perdure.Verdict:
    payment = find_payment(intent.key)
    return perdure.happened(payment) if payment else perdure.did_not_happen()


@perdure.agent
def refund(order: str, *, check: bool) -> str:
    cents = decide(order)
    payment = pay_back_checked(order, cents) if check else pay_back(order, cents)
    return f"{order} refunded: {payment}"


if __name__ == "__main__":
    order = sys.argv[1] if len(sys.argv) > 1 else "order-7"
    # Under an id of its own, a refund is one run however often the script is started, also after it is completed.
    print(perdure.run(refund, order, check="--check" in sys.argv, run_id=f"refund-{order}"))
