"""A journal as a list of moments: what happened, in order, with the number of the step it happened to. Pure."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from perdure import clock
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
    Note,
    Observed,
    Opened,
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
    from collections.abc import Mapping, Sequence

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


_NO_RUNS: Final[Mapping[str, str]] = MappingProxyType({})


def moments(records: Sequence[Record], runs: Mapping[str, str] = _NO_RUNS) -> list[Moment]:
    """Every record as a moment; `runs` are the words for other runs that the records name, by id."""
    journal = Journal(records)
    numbers = numbers_of(journal)
    told = []
    deliveries = 0
    for record in records:
        deliveries += record.kind == Kind.DELIVERY
        body = None if record.kind == Kind.PATCHED else read_body(record)
        if record.key in numbers:
            told.append(_of_step(record, body, journal.entries[record.key], numbers[record.key], runs))
        else:
            text = _run_words(record, body, deliveries, runs)
            failed = isinstance(body, Ended) and body.state == RunState.FAILED
            told.append(Moment(record.seq, record.at, record.kind, text, failed=failed))
    return told


def referred_runs(records: Sequence[Record]) -> list[str]:
    """The ids of the runs that a journal names: children, and the run that goes on in its place."""
    found = []
    for record in records:
        if record.kind == Kind.WAIT:
            found.append(read_body(record).child)
        elif record.kind == Kind.ENDED:
            found.append(read_body(record).continued)
    return [run_id for run_id in found if run_id]


def progress_words(note: Note) -> str:
    """How far an agent says it is, such as 47/50 transform."""
    total = f"/{note.total:g}" if note.total else ""
    return f"{note.done:g}{total} {note.text}".strip()


def _of_step(
    record: Record,
    body: Any,  # noqa: ANN401 - depends on the record
    entry: Entry,
    number: int,
    runs: Mapping[str, str],
) -> Moment:
    return Moment(
        record.seq,
        record.at,
        record.kind,
        _step_words(record, body, entry, runs),
        number=number,
        key=record.key,
        name=record.name,
        kind=entry.kind,
        call=entry.shown_call(),
        attempt=getattr(body, "attempt", 0),
        seconds=getattr(body, "seconds", 0.0),
        failed=getattr(body, "failure", None) is not None,
    )


def _step_words(record: Record, body: Any, entry: Entry, runs: Mapping[str, str]) -> str:  # noqa: ANN401 - a body
    match body:
        case Done(failure=Failure() as failure):
            return f"failed: {_error_words(failure)}"
        case Done() if record.kind == Kind.ANSWER:
            return _answer_words(body, entry, runs)
        case Opened():
            return _wait_words(body, runs)
        case Note():
            return f"{body.about}{f' to {body.text}' if body.text else ''}"
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


def _wait_words(opened: Opened, runs: Mapping[str, str]) -> str:
    due = ""
    if opened.due_at and opened.reason != "time":
        due = f"; until {clock.instant(opened.due_at).strftime('%Y-%m-%d %H:%M:%S UTC')}"
    if opened.question is not None:
        assignee = f" (for {opened.question.assignee})" if opened.question.assignee else ""
        return f"{opened.question.text}{assignee}{due}"
    if opened.reason == "child":
        return f"child run {runs.get(opened.child, opened.child)}"
    if opened.reason == "signal":
        return f"waits for the signal {opened.signal!r}{due}"
    return f"until {clock.instant(opened.due_at).strftime('%Y-%m-%d %H:%M:%S UTC')}"


def _answer_words(done: Done, entry: Entry, runs: Mapping[str, str]) -> str:
    opened = read_body(entry.wait) if entry.wait is not None else None
    by = f" (by {done.by})" if done.by else ""
    match opened:
        case Opened(question=question) if question is not None:
            return f"{_answered(done)}{by}"
        case Opened(reason="signal"):
            return f"signal {opened.signal!r} came{by}"
        case Opened(reason="child"):
            return f"child run {runs.get(opened.child, opened.child)}"
        case _:
            return "over"


def _answered(done: Done) -> str:
    if done.blob:
        return "answered"
    given = msgspec.json.decode(bytes(done.value))
    if not isinstance(given, dict):
        return "answered"
    value = given.get("choice") or msgspec.json.encode(given.get("value")).decode()
    return f"nobody answered in time, so: {value}" if given.get("is_default") else f"answered: {value}"


def _run_words(record: Record, body: Any, delivery: int, runs: Mapping[str, str]) -> str:  # noqa: ANN401 - a body
    match body:
        case Started():
            return f"accepted by perdure {body.perdure}, Python {body.python}"
        case Delivery(_, pid, host):
            return f"delivery {delivery}: {body.before or f'pid {pid} on {host}'}"
        case Observed(_, words):
            return ("; ".join(words) or "resources looked at") + (f" (by {body.by})" if body.by else "")
        case Repaired(set_aside, why):
            return f"repaired: {counted(set_aside, 'record')} set aside: {why}"
        case Ended(continued=continued) if continued:
            return f"completed; goes on as {runs.get(continued, continued)}"
        case Ended():
            return _ending(body)
        case Note(about="progress"):
            return f"progress: {progress_words(body)}"
        case Note():
            by = f" by {body.by}" if body.by else ""
            return f"{body.about}{by}{f': {body.text}' if body.text else ''}"
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
