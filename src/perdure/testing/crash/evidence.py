"""What a trial's store says between two processes: which calls are completed, what is in doubt, what is waited for."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure.bodies import Batch, Done, Intended, Opened, Settled, Started, read_body
from perdure.engine.ask import TIMEOUT
from perdure.errors import StoreUnavailable
from perdure.records import FINISHED, Kind, Record, Run, RunState
from perdure.replay import Journal
from perdure.store.protocol import Which
from perdure.testing.crash.points import Point, run_label

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.replay import Entry
    from perdure.store.protocol import Store
    from perdure.testing.crash.place import Place


_RECORD: Final = "record_"


class Performed(Struct, frozen=True):
    """One attempt of an effect, as its intent says."""

    name: str
    arguments: str
    """The digest of its arguments."""
    shown: str
    """The call as a person would write it, and no longer than one reads."""
    attempt: int
    given: str = ""
    """The arguments as JSON; something shorter where they are kept apart."""


class RunEvidence(Struct, frozen=True):
    """One run as it is recorded now."""

    run: Run
    label: str
    records: tuple[Record, ...]
    mail: int

    @property
    def journal(self) -> Journal:
        """The records as the replay reads them."""
        return Journal(list(self.records))

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes of it."""
        return self.run.state in FINISHED or self.run.state == RunState.FAILED

    @property
    def failure(self) -> dict[str, str] | None:
        """What it failed with; None where it did not."""
        ended = next((read_body(record) for record in reversed(self.records) if record.kind == Kind.ENDED), None)
        if self.run.state != RunState.FAILED or ended is None or ended.failure is None:
            return None
        return {"type": ended.failure.type.removeprefix("builtins."), "message": ended.failure.message}

    @property
    def is_past_deadline(self) -> bool:
        """Whether it failed once the deadline was over that it was given."""
        started = next((read_body(record) for record in self.records if record.kind == Kind.STARTED), None)
        limit = started.deadline_at if isinstance(started, Started) else 0.0
        is_late = any(record.kind == Kind.ENDED and record.at >= limit for record in self.records)
        return limit > 0 and is_late and self.run.state == RunState.FAILED

    @property
    def mark(self) -> tuple[Any, ...]:
        """What changes when anything is written of the run."""
        return (self.run.state, self.run.reason, self.run.length, self.run.head, self.mail)


class Evidence(Struct, frozen=True):
    """Every run of a trial's store at one moment."""

    runs: tuple[RunEvidence, ...] = ()

    def completed(self) -> set[tuple[str, str]]:
        """The run and key of every call, and of every item of a map, whose completion is committed."""
        found: set[tuple[str, str]] = set()
        for each in self.runs:
            journal = each.journal
            done = [key for key, entry in journal.entries.items() if entry.completion or entry.verdict]
            items = [item for key, batches in journal.batches.items() for item in _items(key, batches)]
            found |= {(each.run.run_id, key) for key in (*done, *items)}
        return found

    def values(self) -> dict[str, Any]:
        """The value or failure of every completed call, by label and key.

        Not that of a map: where its batches end depends on when it was killed.
        """
        found: dict[str, Any] = {}
        for each in self.runs:
            journal = each.journal
            for key, entry in journal.entries.items():
                done = entry.done or entry.verdict
                if done is not None and key not in journal.batches:
                    found[f"{each.label}{key}"] = _outcome(done)
        return found

    def arguments(self) -> dict[str, str]:
        """The digest of the arguments of every call, by label and key."""
        return {f"{each.label}{key}": entry.arguments.hex() for each, key, entry in self._entries()}

    def performed(self) -> dict[str, list[Performed]]:
        """Every attempt of each effect, by label and key."""
        found: dict[str, list[Performed]] = {}
        for each in self.runs:
            for record in each.records:
                if record.kind == Kind.INTENT:
                    intended: Intended = read_body(record)
                    told = intended.shown or f"{record.name}(…)"
                    given = bytes(intended.arguments).decode(errors="replace")
                    attempt = Performed(record.name, record.arguments.hex(), told, intended.attempt, given)
                    found.setdefault(f"{each.label}{record.key}", []).append(attempt)
        return found

    def shows(self, point: Point) -> bool:
        """Whether what happens at this point has happened: its call is completed, or its record is there."""
        if point.name.startswith(_RECORD):
            kind = point.name.removeprefix(_RECORD)
            records = [(each.label, record) for each in self.runs for record in each.records]
            return any(record.kind == kind and f"{label}{record.key}" == point.key for label, record in records)
        closed = [(each, key, entry) for each, key, entry in self._entries() if entry.completion or entry.verdict]
        return any((entry.name, f"{each.label}{key}") == (point.name, point.key) for each, key, entry in closed)

    def happened(self) -> set[str]:
        """The label and key of every effect of which somebody said that it happened."""
        return {
            f"{each.label}{key}"
            for each, key, entry in self._entries()
            if entry.verdict is not None and entry.verdict.outcome == "happened"
        }

    def expired(self) -> set[str]:
        """The label and key of every wait that ended because its time was over, and of every deadline."""
        waits = {f"{each.label}{key}" for each in self.runs for key in _expired(each.records)}
        return waits | {f"{each.label}deadline" for each in self.runs if each.is_past_deadline}

    def _entries(self) -> Iterator[tuple[RunEvidence, str, Entry]]:
        for each in self.runs:
            yield from ((each, key, entry) for key, entry in each.journal.entries.items())

    def results(self) -> dict[str, Any]:
        """What every run that is over returned or failed with, by label."""
        found: dict[str, Any] = {}
        for each in self.runs:
            ended = next((read_body(record) for record in reversed(each.records) if record.kind == Kind.ENDED), None)
            if each.is_over and ended is not None:
                failure = ended.failure and (ended.failure.type, ended.failure.message)
                found[each.label] = (each.run.state, failure or ended.blob or bytes(ended.value).decode())
        return found

    def failure(self, run_id: str) -> dict[str, str] | None:
        """What the run of this id, or the newest that took its place, failed with; None where it did not."""
        generations = [each for each in self.runs if each.run.run_id.partition("~")[0] == run_id]
        newest = max(generations, key=lambda each: each.run.created_at, default=None)
        return newest.failure if newest is not None else None

    def unfinished(self) -> list[RunEvidence]:
        """The runs that are not over."""
        return [each for each in self.runs if not each.is_over]

    def marks(self) -> dict[str, tuple[Any, ...]]:
        """What changes when anything is written."""
        return {each.run.run_id: each.mark for each in self.runs}


def read_evidence(place: Place, main: tuple[str, str]) -> Evidence:
    """What is committed now; nothing where no process has made the store yet."""
    if not place.is_there:
        return Evidence()
    try:
        store = place.open()
    except StoreUnavailable:
        return Evidence()  # a server on which no process has made the tables yet
    with contextlib.closing(store):
        return Evidence(tuple(_run_evidence(store, run, main) for run in store.find_runs(Which(), limit=10_000)))


def _run_evidence(store: Store, run: Run, main: tuple[str, str]) -> RunEvidence:
    whole = store.load_whole(run.run_id)
    return RunEvidence(whole.run, run_label(whole.run, main), whole.records, len(whole.mail))


def _items(key: str, batches: list[Record]) -> list[str]:
    """The keys of the items of a map that are done; those that have keys of their own are not known by it."""
    bodies: list[Batch] = [read_body(batch) for batch in batches]
    return [f"{key}[{number}]" for body in bodies for number in range(body.first, body.first + body.count)]


def _expired(records: tuple[Record, ...]) -> Iterator[str]:
    """The keys of the waits that nobody ended before their time was over, and whose end was not recorded too early.

    By the records: a wait that ended its run in this way is no more in the journal as the replay reads it.
    """
    limits: dict[str, Opened] = {}
    for record in records:
        if record.kind == Kind.WAIT:
            limits[record.key] = read_body(record)
        elif record.kind == Kind.ANSWER and 0 < limits[record.key].due_at <= record.at:
            done: Done = read_body(record)
            if done.by == TIMEOUT or (limits[record.key].reason == "signal" and done.failure is not None):
                yield record.key


def _outcome(done: Done | Settled) -> Any:
    failure = getattr(done, "failure", None)
    if failure is not None:
        return (failure.type, failure.message)
    return done.blob or bytes(done.value).decode()
