"""What each kind of record says, in words. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.bodies import (
    Attempt,
    Batch,
    Done,
    Doubt,
    Ended,
    Failure,
    Note,
    Observed,
    Opened,
    Repaired,
    Settled,
    Started,
    read_body,
)
from perdure.cli.rows import progress_words
from perdure.records import Kind, RunState
from perdure.telemetry.text import counted, duration, utc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.records import Record
    from perdure.replay import Entry

OUTCOMES: Final = {"happened": "it happened", "did_not_happen": "it did not happen", "fail": "the run fails"}


def step_words(record: Record, body: Any, entry: Entry, runs: Mapping[str, str]) -> str:  # noqa: ANN401 - a body
    """What a record of a step says."""
    match body:
        case Done(failure=Failure() as failure):
            return f"failed: {error_words(failure)}"
        case Done() if record.kind == Kind.ANSWER:
            return _answer_words(body, entry, runs)
        case Opened():
            return wait_words(body, runs)
        case Note():
            return f"{body.about}{f' to {body.text}' if body.text else ''}"
        case Done():
            return "receipt" if record.kind == Kind.RECEIPT else "done"
        case Batch(first, count):
            return f"{counted(first + count, 'item')} done"
        case Attempt(attempt, failure, next_at):
            delay = duration(max(0.0, next_at - record.at))
            return f"attempt {attempt} failed: {error_words(failure)}; the next after {delay}"
        case Doubt(_, why):
            return f"in doubt: {why}"
        case Settled(_, outcome, by):
            return f"verdict: {OUTCOMES[outcome]} (by {by})"
        case _:
            return "intent"


def run_words(record: Record, body: Any) -> str:  # noqa: ANN401 - a body
    """What a record of the run itself says, endings and deliveries apart."""
    match body:
        case Started():
            return f"accepted by perdure {body.perdure}, Python {body.python}"
        case Observed(_, words):
            return ("; ".join(words) or "resources looked at") + (f" (by {body.by})" if body.by else "")
        case Repaired(set_aside, why):
            return f"repaired: {counted(set_aside, 'record')} set aside: {why}"
        case Note(about="progress"):
            return f"progress: {progress_words(body)}"
        case Note(about="unprotected"):
            return body.text
        case Note():
            by = f" by {body.by}" if body.by else ""
            return f"{body.about}{by}{f': {body.text}' if body.text else ''}"
        case _:
            return f"patched: {record.name}"


def ending_words(ended: Ended, runs: Mapping[str, str]) -> str:
    """How a run ended, or why it stopped."""
    if ended.continued:
        return f"completed; goes on as {runs.get(ended.continued, ended.continued)}"
    if ended.failure is not None:
        undone = "; its effects were taken back" if ended.undone else ""
        return f"failed: {error_words(ended.failure)}{undone}"
    if ended.state in (RunState.COMPLETED, RunState.CANCELLED):
        return ended.state
    reason = f" ({ended.reason.replace('_', ' ')})" if ended.reason else ""
    return f"stopped{reason}: {ended.message}"


def error_words(failure: Failure) -> str:
    """An exception on one line."""
    return f"{failure.type.removeprefix('builtins.')}: {failure.message}"


def wait_words(opened: Opened, runs: Mapping[str, str]) -> str:
    """For what a run began to wait."""
    due = ""
    if opened.due_at and opened.reason != "time":
        due = f"; until {utc(opened.due_at)}"
    if opened.question is not None:
        assignee = f" (for {opened.question.assignee})" if opened.question.assignee else ""
        return f"{opened.question.text}{assignee}{due}"
    if opened.reason == "child":
        return f"child run {runs.get(opened.child, opened.child)}"
    if opened.reason == "signal":
        return f"waits for the signal {opened.signal!r}{due}"
    return f"until {utc(opened.due_at)}"


def _answer_words(done: Done, entry: Entry, runs: Mapping[str, str]) -> str:
    opened = read_body(entry.wait) if entry.wait is not None else None
    by = f" (by {done.by})" if done.by else ""
    match opened:
        case Opened(question=question) if question is not None:
            return f"{_answered(done)}{by}{_note(done)}"
        case Opened(reason="signal"):
            return f"signal {opened.signal!r} came{by}"
        case Opened(reason="child"):
            return f"child run {runs.get(opened.child, opened.child)}"
        case _:
            return "over"


def _note(done: Done) -> str:
    """What was written beside an answer."""
    given = None if done.blob else msgspec.json.decode(bytes(done.value))
    return f": {given['note']}" if isinstance(given, dict) and given.get("note") else ""


def _answered(done: Done) -> str:
    if done.blob:
        return "answered"
    given = msgspec.json.decode(bytes(done.value))
    if not isinstance(given, dict):
        return "answered"
    value = given.get("choice") or msgspec.json.encode(given.get("value")).decode()
    return f"nobody answered in time, so: {value}" if given.get("is_default") else f"answered: {value}"
