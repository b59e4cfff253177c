"""A journal as a list of moments: what happened, in order, with the number of the step it happened to. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure.cli.status import numbers_of
from perdure.records import (
    Attempt,
    Batch,
    Delivery,
    Done,
    Doubt,
    Ended,
    Failure,
    Kind,
    Observed,
    Record,
    Repaired,
    RunState,
    Settled,
    Started,
    read_body,
)
from perdure.replay import Journal
from perdure.telemetry.text import counted, duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.replay import Entry

OUTCOMES: Final = {"happened": "it happened", "did_not_happen": "it did not happen", "fail": "the run fails"}


class Moment(Struct, frozen=True, omit_defaults=True):
    """One record of a journal, in words."""

    seq: int
    at: float
    record: str
    text: str
    number: int = 0
    key: str = ""
    name: str = ""
    kind: str = ""
    call: str = ""
    attempt: int = 0
    seconds: float = 0.0
    failed: bool = False


def moments(records: Sequence[Record]) -> list[Moment]:
    """Every record as a moment."""
    journal = Journal(records)
    numbers = numbers_of(journal)
    told = []
    deliveries = 0
    for record in records:
        deliveries += record.kind == Kind.DELIVERY
        body = None if record.kind == Kind.PATCHED else read_body(record)
        if record.key in numbers:
            told.append(_of_step(record, body, journal.entries[record.key], number=numbers[record.key]))
        else:
            text = _run_words(record, body, delivery=deliveries)
            failed = isinstance(body, Ended) and body.state == RunState.FAILED
            told.append(Moment(record.seq, record.at, record.kind, text, failed=failed))
    return told


def _of_step(record: Record, body: Any, entry: Entry, *, number: int) -> Moment:  # noqa: ANN401 - depends on the record
    return Moment(
        record.seq,
        record.at,
        record.kind,
        _step_words(record, body),
        number=number,
        key=record.key,
        name=record.name,
        kind=entry.kind,
        call=entry.shown_call(),
        attempt=getattr(body, "attempt", 0),
        seconds=getattr(body, "seconds", 0.0),
        failed=getattr(body, "failure", None) is not None,
    )


def _step_words(record: Record, body: Any) -> str:  # noqa: ANN401 - depends on the record
    match body:
        case Done(failure=Failure() as failure):
            return f"failed: {_error_words(failure)}"
        case Done():
            return "receipt" if record.kind == Kind.RECEIPT else "done"
        case Batch(first, count):
            return f"{counted(first + count, 'item')} done"
        case Attempt(attempt, failure, next_at):
            delay = duration(max(0.0, next_at - record.at))
            return f"attempt {attempt} failed: {_error_words(failure)}; the next after {delay}"
        case Doubt(_, why):
            return f"in doubt: {why}"
        case Settled(_, outcome, by):
            return f"verdict: {OUTCOMES[outcome]} (by {by})"
        case _:
            return "intent"


def _run_words(record: Record, body: Any, *, delivery: int) -> str:  # noqa: ANN401 - depends on the record
    match body:
        case Started():
            return f"accepted by perdure {body.perdure}, Python {body.python}"
        case Delivery(_, pid, host):
            return f"delivery {delivery}: {body.before or f'pid {pid} on {host}'}"
        case Observed(_, words):
            return "; ".join(words) + (f" (by {body.by})" if body.by else "")
        case Repaired(set_aside, why):
            return f"repaired: {counted(set_aside, 'record')} set aside: {why}"
        case Ended():
            return _ending(body)
        case _:
            return f"patched: {record.name}"


def _ending(ended: Ended) -> str:
    if ended.failure is not None:
        undone = "; its effects were taken back" if ended.undone else ""
        return f"failed: {_error_words(ended.failure)}{undone}"
    if ended.state in (RunState.COMPLETED, RunState.CANCELLED):
        return ended.state
    reason = f" ({ended.reason.replace('_', ' ')})" if ended.reason else ""
    return f"stopped{reason}: {ended.message}"


def _error_words(failure: Failure) -> str:
    return f"{failure.type.removeprefix('builtins.')}: {failure.message}"
