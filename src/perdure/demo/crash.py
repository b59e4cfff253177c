"""`perdure demo`: fifty steps, a model that is made up, and one mail that must not be sent twice."""

from __future__ import annotations

from typing import Final

import perdure
from perdure.demo import stage

NAME: Final = "perdure.demo"
STEPS: Final = 50
REGIONS: Final = 20
QUARTERS: Final = 4
RECIPIENT: Final = "board@example.com"
OUTBOX: Final = "demo-outbox.jsonl"


@perdure.step
def plan(regions: int) -> str:
    """Ask the model what to do."""
    stage.ask_model(tokens=412, dollars=0.0011)
    return f"Extract {regions} regions, total each, report by quarter."


@perdure.step
def extract(region: int) -> list[int]:
    """The orders of one region, in cents."""
    stage.take(stage.STEP_SECONDS)
    return [(region * 7919 + order * 104729) % 50_000 for order in range(12)]


@perdure.step
def transform(region: int, orders: list[int]) -> tuple[int, int]:
    """The total of one region."""
    stage.take(stage.STEP_SECONDS)
    return region, sum(orders)


@perdure.step
def summarise(quarter: int, totals: list[int]) -> str:
    """Ask the model for a sentence about one quarter."""
    stage.ask_model(tokens=1830, dollars=0.0074)
    return f"Quarter {quarter} brought {sum(totals) / 100:,.2f}."


@perdure.step
def write_report(sentences: list[str]) -> str:
    """Ask the model for the report."""
    stage.ask_model(tokens=2960, dollars=0.0205)
    return " ".join(sentences)


@perdure.effect(in_flight_seconds=0)  # a file: once its writer is dead, nothing can still arrive
def send_report(to: str, report: str) -> str:
    """Send the mail: the world remembers this one."""
    if stage.death == "before":
        stage.die()
    key = perdure.current().key
    stage.write(OUTBOX, key=key, to=to, report=report)
    if stage.death == "after":
        stage.die()
    return f"mail-{key[:8]}"


@send_report.check
def was_sent(intent: perdure.Intent) -> perdure.Verdict:
    """Look for the mail in the outbox."""
    return stage.verdict(OUTBOX, intent, f"mail-{intent.key[:8]}")


@perdure.step
def archive(mail: str) -> str:
    """Put the report away."""
    stage.take(stage.STEP_SECONDS)
    return f"archive/{mail}"


@perdure.step
def update_index(path: str) -> int:
    """Enter the report into the index."""
    stage.take(stage.STEP_SECONDS)
    return len(path)


@perdure.step
def close_books(total: int) -> str:
    """Close the period."""
    stage.take(stage.STEP_SECONDS)
    return f"books closed at {total / 100:,.2f}"


@perdure.agent(name=NAME)
def report_customers(regions: int = REGIONS) -> str:
    """Extract, transform, ask the model, send one mail."""
    plan(regions)
    orders = [extract(region) for region in range(regions)]
    totals = [transform(region, orders[region])[1] for region in range(regions)]
    size = regions // QUARTERS
    quarters = [totals[start : start + size] for start in range(0, regions, size)]
    sentences = [summarise(number, quarter) for number, quarter in enumerate(quarters, 1)]
    mail = send_report(RECIPIENT, write_report(sentences))
    update_index(archive(mail))
    return f"{mail} sent to {RECIPIENT}; {close_books(sum(totals))}"


AGENT: Final = report_customers


def play() -> None:
    """Run the agent until it dies."""
    perdure.run(report_customers, fresh=True)
