"""Everything the journal and the mailbox know of one step, gathered. Nothing is shown here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Raw, Struct

from perdure import typed
from perdure.bodies import (
    NULL,
    Attempt,
    Batch,
    Delivery,
    Done,
    Doubt,
    Failure,
    Intended,
    Opened,
    Question,
    Settled,
    read_body,
)
from perdure.cli.timeline import Moment, scope_of
from perdure.engine.mailbox import Letter
from perdure.engine.mapping.mapped import ADDRESS_BYTES, read_lot
from perdure.records import Kind

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from perdure.records import Mail, Record
    from perdure.replay import Entry
    from perdure.store.protocol import Store

SAMPLE: Final = 20
"""So many results of a map's items are read, unless all are asked for."""


class Error(Struct, frozen=True):
    """An exception, as it was recorded."""

    type: Annotated[str, Meta(description="its class, by name")]
    message: Annotated[str, Meta(description="its message")]
    trace: Annotated[str, Meta(description="its traceback")]


class AttemptObject(Struct, frozen=True):
    """One attempt at a step."""

    attempt: Annotated[int, Meta(description="which attempt, from 1")]
    at: Annotated[float, Meta(description="when this was recorded: the intent of an effect, else the outcome")]
    outcome: Annotated[str, Meta(description="started, done, failed or in doubt")]
    seconds: Annotated[float, Meta(description="how long it took")]
    error: Annotated[Error | None, Meta(description="the exception it ended with, or null")]
    why: Annotated[str, Meta(description="why it is in doubt")]
    pid: Annotated[int, Meta(description="the process that made it")]
    host: Annotated[str, Meta(description="that process's host")]
    tokens: Annotated[int, Meta(description="tokens it says it took")]
    dollars: Annotated[float, Meta(description="dollars it says it took")]


class Word(Struct, frozen=True):
    """What was said of an effect in doubt."""

    outcome: Annotated[str, Meta(description="happened, did_not_happen or fail")]
    by: Annotated[str, Meta(description="who says so: a person, check, or a worker")]
    at: Annotated[float, Meta(description="when")]
    attempt: Annotated[int, Meta(description="of which attempt")]
    value: Annotated[Raw, Meta(description="the result it had, as JSON")]
    note: Annotated[str, Meta(description="what the check adds")]
    taken: Annotated[bool, Meta(description="whether the run has heard it")]


class Items(Struct, frozen=True):
    """The items of a map."""

    count: Annotated[int, Meta(description="how many are done")]
    failed: Annotated[int, Meta(description="how many of them failed")]
    first: Annotated[list[Raw], Meta(description="the first results, as JSON; null for one that failed")]


class StepObject(Struct, frozen=True):
    """One step of a run."""

    run_id: Annotated[str, Meta(description="the run's id")]
    run: Annotated[str, Meta(description="the run's name")]
    number: Annotated[int, Meta(description="the step's number, as perdure show gives it")]
    key: Annotated[str, Meta(description="its key: scope and call index, or the key it was given")]
    scope: Annotated[list[str], Meta(description="the scopes it stands in below the agent's own, outermost first")]
    name: Annotated[str, Meta(description="its name")]
    kind: Annotated[str, Meta(description="step, effect or wait")]
    call: Annotated[str, Meta(description="the call, as a person would write it; long arguments are shortened")]
    state: Annotated[str, Meta(description="done, failed, in doubt, settled, waiting, retrying or begun")]
    doubt: Annotated[str, Meta(description="why an effect is in doubt; empty where it is not")]
    arguments: Annotated[Raw, Meta(description="the arguments of an effect, as JSON; null where none are kept")]
    effect_key: Annotated[str, Meta(description="the key an effect is performed under")]
    attempts: Annotated[list[AttemptObject], Meta(description="what was recorded of each attempt, oldest first")]
    verdict: Annotated[Word | None, Meta(description="how a doubt was settled, or null")]
    evidence: Annotated[list[Word], Meta(description="what others wrote about it to the run's mailbox")]
    question: Annotated[Question | None, Meta(description="what a person is asked, or null")]
    child: Annotated[str, Meta(description="the id of the child run that a wait is for")]
    due_at: Annotated[float, Meta(description="until when a wait waits; 0 where it has no end")]
    by: Annotated[str, Meta(description="who answered")]
    result: Annotated[Raw, Meta(description="its result, as JSON; null where there is none")]
    error: Annotated[Error | None, Meta(description="the failure that was raised to the agent, or null")]
    items: Annotated[Items | None, Meta(description="of a map: its items, or null")]
    tokens: Annotated[int, Meta(description="tokens it says it took, all attempts together")]
    dollars: Annotated[float, Meta(description="dollars it says it took, all attempts together")]
    moments: Annotated[list[Moment], Meta(description="its part of the timeline")]


class Account:
    """Gathers what is known of one step."""

    def __init__(self, store: Store, records: Sequence[Record], entry: Entry, key: str) -> None:
        self._store = store
        self._entry = entry
        self.key = key
        self._processes = _processes(records)
        self._known = [(record, read_body(record)) for record in records if record.key == key]

    @property
    def records(self) -> list[Record]:
        """The step's own records."""
        return [record for record, _ in self._known]

    def fields(self, *, mails: Sequence[Mail], everything: bool) -> dict[str, Any]:
        """The fields of a `StepObject` that come from the journal and the mailbox."""
        done = self._last(Done)
        opened = self._last(Opened)
        intent = self._last(Intended)
        attempts = list(self._attempts())
        return {
            "key": self.key,
            "scope": scope_of(self.key),
            "name": self._entry.name,
            "kind": self._entry.kind,
            "call": self._entry.shown_call(),
            "state": self._state(),
            "arguments": self._value(intent.arguments, intent.blob) if intent else NULL,
            "effect_key": intent.effect_key if intent else "",
            "attempts": attempts,
            "verdict": self._verdict(),
            "evidence": [_word(mail) for mail in mails if mail.key == self.key and mail.kind in _WORDS],
            "question": opened.question if opened else None,
            "child": opened.child if opened else "",
            "due_at": opened.due_at if opened else 0.0,
            "by": done.by if done else "",
            "result": self._result(done),
            "error": _error(done.failure) if done else None,
            "items": self._items(done, everything=everything),
            **self._cost(),
        }

    def _state(self) -> str:
        entry = self._entry
        if entry.completion is not None:
            done = entry.done
            return "failed" if done is not None and done.failure is not None else "done"
        if entry.verdict is not None:
            return "settled"
        if entry.is_open:
            return "in doubt"
        if entry.is_waiting:
            return "waiting"
        return "retrying" if entry.attempts else "begun"

    def _attempts(self) -> Iterator[AttemptObject]:
        for record, body in self._known:
            outcome, failure, why = _outcome(record, body)
            if not outcome:
                continue
            pid, host = self._processes.get(record.epoch, (0, ""))
            cost = getattr(body, "cost", None)
            yield AttemptObject(
                attempt=body.attempt,
                at=record.at,
                outcome=outcome,
                seconds=getattr(body, "seconds", 0.0),
                error=_error(failure),
                why=why,
                pid=pid,
                host=host,
                tokens=cost.tokens if cost else 0,
                dollars=cost.dollars if cost else 0.0,
            )

    def _verdict(self) -> Word | None:
        for record, body in reversed(self._known):
            if isinstance(body, Settled):
                value = self._value(body.value, body.blob)
                return Word(body.outcome, body.by, record.at, body.attempt, value, body.note, taken=True)
        return None

    def _result(self, done: Done | None) -> Raw:
        if done is not None:
            return self._value(done.value, done.blob)
        settled = self._verdict()
        return settled.value if settled is not None and settled.outcome == "happened" else NULL

    def _items(self, done: Done | None, *, everything: bool) -> Items | None:
        batches = [body for _, body in self._known if isinstance(body, Batch)]
        if not batches and not (done is not None and self._entry.name.startswith("map(")):
            return None
        first: list[Raw] = []
        for batch in batches:
            if everything or len(first) < SAMPLE:
                first += read_lot(self._store.load_blob(bytes.fromhex(batch.blob)[:ADDRESS_BYTES])).values
        count = sum(batch.count for batch in batches)
        failed = sum(batch.failed for batch in batches)
        return Items(count, failed, first if everything else first[:SAMPLE])

    def _cost(self) -> dict[str, float]:
        costs = [body.cost for _, body in self._known if getattr(body, "cost", None) is not None]
        return {"tokens": sum(cost.tokens for cost in costs), "dollars": sum(cost.dollars for cost in costs)}

    def _value(self, value: Raw, blob: str) -> Raw:
        return Raw(self._store.load_blob(bytes.fromhex(blob))) if blob else value

    def _last(self, kind: type[Any]) -> Any:  # noqa: ANN401 - of that kind, or None
        return next((body for _, body in reversed(self._known) if isinstance(body, kind)), None)


_WORDS: Final = frozenset({"verdict", "evidence"})


def _outcome(record: Record, body: object) -> tuple[str, Failure | None, str]:
    match body:
        case Attempt(failure=failure):
            return "failed", failure, ""
        case Done(failure=failure) if record.kind != Kind.ANSWER:
            return ("failed" if failure else "done"), failure, ""
        case Intended():
            return "started", None, ""
        case Doubt(why=why):
            return "in doubt", None, why
        case _:
            return "", None, ""


def _word(mail: Mail) -> Word:
    letter = typed.read(mail.body, Letter)
    by = mail.by if mail.kind == "verdict" else f"{mail.by}, which saw it end"
    return Word(letter.outcome, by, mail.at, letter.attempt, letter.value, "", taken=bool(mail.taken))


def _error(failure: Failure | None) -> Error | None:
    if failure is None:
        return None
    return Error(failure.type.removeprefix("builtins."), failure.message, failure.trace)


def _processes(records: Sequence[Record]) -> dict[int, tuple[int, str]]:
    """Which process had the run, by epoch."""
    found = {}
    for record in records:
        if record.kind == Kind.DELIVERY:
            body: Delivery = read_body(record)
            found[record.epoch] = (body.pid, body.host)
    return found
