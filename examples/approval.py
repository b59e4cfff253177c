"""A payment that waits for a person, and survives every restart while it waits.

    python approval.py &                  asks, and waits for the answer
    kill -9 %1                            while it waits
    perdure inbox                         the question is still there
    perdure approve invoice-17            also while nothing runs; or: perdure reject invoice-17
    python approval.py                    takes the answer, and pays

However often it is killed, the question is asked once, and the invoice is paid once. The bank is made up: it is the
file payments.txt.
"""

from pathlib import Path

import perdure


@perdure.step
def read_invoice(number: int) -> dict[str, str | int]:
    return {"number": number, "to": "Owl Supplies Ltd", "cents": 128_000}


@perdure.effect
def pay(to: str, cents: int) -> str:
    with Path("payments.txt").open("a") as bank:
        bank.write(f"{cents} to {to}\n")
    return f"paid {cents / 100:.2f} to {to}"


@perdure.agent
def handle_invoice(number: int) -> str:
    invoice = read_invoice(number)
    answer = perdure.ask("Pay this invoice?", options=["approve", "reject"], show=invoice)
    if answer.choice == "reject":
        return f"rejected by {answer.by}"
    receipt = pay(str(invoice["to"]), int(invoice["cents"]))
    return f"invoice {number}: {receipt}"


if __name__ == "__main__":
    # `start` stays and goes on by itself once it is answered; `perdure.run` would end with exit code 3 at the question.
    run = perdure.start(handle_invoice, 17, run_id="invoice-17")
    print(f"to answer, from another shell: perdure approve {run.run_id}", flush=True)
    print(run.result())
