"""The agent of `perdure demo`: fifty steps, a model that is made up, and one mail that must not be sent twice.

It is an agent like any other. `python -m perdure.demo` runs it in a process that kills itself inside step 47 and tells
its parent through standard output what happened before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

import perdure
from perdure import clock, events
from perdure.settings import current_settings

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME: Final = "perdure.demo"
STEPS: Final = 50
REGIONS: Final = 20
QUARTERS: Final = 4
RECIPIENT: Final = "board@example.com"
MODEL_CALLS: Final = {"plan": (412, 0.0011), "summarise": (1830, 0.0074), "write_report": (2960, 0.0205)}
"""What each call of the made-up model takes: tokens and dollars, as made up as the model."""

_MODEL_SECONDS: Final = 0.4
_STEP_SECONDS: Final = 0.1
_pace = 1.0
_death = ""


@dataclass(frozen=True)
class Answer:
    """What the made-up model answers."""

    text: str
    tokens: int
    dollars: float


@perdure.step
def plan(regions: int) -> Answer:
    """Ask the model what to do."""
    return _ask_model("plan", f"Extract {regions} regions, total each, report by quarter.")


@perdure.step
def extract(region: int) -> list[int]:
    """The orders of one region, in cents."""
    _take(_STEP_SECONDS)
    return [(region * 7919 + order * 104729) % 50_000 for order in range(12)]


@perdure.step
def transform(region: int, orders: list[int]) -> tuple[int, int]:
    """The total of one region."""
    _take(_STEP_SECONDS)
    return region, sum(orders)


@perdure.step
def summarise(quarter: int, totals: list[int]) -> Answer:
    """Ask the model for a sentence about one quarter."""
    return _ask_model("summarise", f"Quarter {quarter} brought {sum(totals) / 100:,.2f}.")


@perdure.step
def write_report(sentences: list[str]) -> Answer:
    """Ask the model for the report."""
    return _ask_model("write_report", " ".join(sentences))


@perdure.effect(in_flight_seconds=0)  # a file: once its writer is dead, nothing can still arrive
def send_report(to: str, report: str) -> str:
    """Send the mail: the world remembers this one."""
    if _death == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    key = perdure.current().key
    line = msgspec.json.encode({"key": key, "to": to, "report": report}) + b"\n"
    with outbox_path().open("ab", buffering=0) as outbox:
        outbox.write(line)
        os.fsync(outbox.fileno())
    if _death == "after":
        os.kill(os.getpid(), signal.SIGKILL)
    return f"mail-{key[:8]}"


@send_report.check
def was_sent(intent: perdure.Intent) -> perdure.Verdict:
    """Look for the mail in the outbox."""
    if any(mail.get("key") == intent.key for mail in outbox()):
        return perdure.happened(f"mail-{intent.key[:8]}")
    return perdure.did_not_happen()


@perdure.step
def archive(mail: str) -> str:
    """Put the report away."""
    _take(_STEP_SECONDS)
    return f"archive/{mail}"


@perdure.step
def update_index(path: str) -> int:
    """Enter the report into the index."""
    _take(_STEP_SECONDS)
    return len(path)


@perdure.step
def close_books(total: int) -> str:
    """Close the period."""
    _take(_STEP_SECONDS)
    return f"books closed at {total / 100:,.2f}"


@perdure.agent(name=NAME)
def report_customers(regions: int = REGIONS) -> str:
    """Extract, transform, ask the model, send one mail."""
    plan(regions)
    orders = [extract(region) for region in range(regions)]
    totals = [transform(region, orders[region])[1] for region in range(regions)]
    size = regions // QUARTERS
    quarters = [totals[start : start + size] for start in range(0, regions, size)]
    sentences = [summarise(number, quarter).text for number, quarter in enumerate(quarters, 1)]
    mail = send_report(RECIPIENT, write_report(sentences).text)
    update_index(archive(mail))
    return f"{mail} sent to {RECIPIENT}; {close_books(sum(totals))}"


def outbox_path() -> Path:
    """The outbox: a real file beside the store."""
    return Path(current_settings().store).expanduser().absolute().parent / "demo-outbox.jsonl"


def outbox() -> list[dict[str, str]]:
    """Every mail in the outbox; a line cut by a kill is none."""
    mails = []
    with contextlib.suppress(FileNotFoundError):
        for line in outbox_path().read_bytes().splitlines():
            with contextlib.suppress(msgspec.DecodeError):
                mails.append(msgspec.json.decode(line, type=dict[str, str]))
    return mails


def described(step: str, kind: str) -> tuple[str, str]:
    """How a step is shown: its kind, and for a model call what it took."""
    if step not in MODEL_CALLS:
        return kind, ""
    tokens, dollars = MODEL_CALLS[step]
    return "model", f"{tokens:>5,} tokens  ${dollars:.4f}"


def dollars_of(steps: Iterable[str]) -> float:
    """The made-up price of these steps."""
    return sum(MODEL_CALLS[step][1] for step in steps if step in MODEL_CALLS)


def main(death: str, pace: float) -> None:
    """Run the agent in this process, telling standard output what happens, until it kills itself."""
    global _death, _pace
    _death, _pace = death, pace
    perdure.configure(quiet=True)
    events.subscribe(_tell)
    with contextlib.suppress(KeyboardInterrupt):
        perdure.run(report_customers, fresh=True)


def _tell(event: events.Observable) -> None:
    """One line for each event; when nobody listens any more, there is nothing left to demonstrate."""
    try:
        sys.stdout.buffer.write(msgspec.json.encode([type(event).__name__, event]) + b"\n")
        sys.stdout.buffer.flush()
    except OSError:
        os._exit(1)


def _ask_model(call: str, text: str) -> Answer:
    _take(_MODEL_SECONDS)
    tokens, dollars = MODEL_CALLS[call]
    return Answer(text, tokens, dollars)


def _take(seconds: float) -> None:
    clock.sleep(seconds * _pace)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
