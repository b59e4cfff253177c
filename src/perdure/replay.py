"""Decides what a call means given the journal: pure functions of (journal, next call).

`decide` answers with one of `Fresh`, `Replayed`, `Verdicted`, `InDoubt`, `Open`, `Diverged`; the engine acts on it and
never looks at records itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct

from perdure.bodies import (
    Attempt,
    Batch,
    Done,
    Doubt,
    Ended,
    Failure,
    Intended,
    Note,
    Opened,
    Passed,
    Settled,
    Started,
    read_body,
)
from perdure.records import Kind, Record

CallKind = Literal["step", "effect", "wait"]

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


SOURCE: Final = "/items#"
"""How the scope begins in which the source of a map makes its own calls."""


UNSEEN: Final = "records of this run were lost or damaged, or it went further elsewhere"
"""Opens the doubt of an effect of which nothing is on record, not even that it began."""


def doubt_words(shown: str, why: str) -> str:
    """That an effect is in doubt, and why."""
    return (
        f"{shown} {'may have been performed' if why.startswith(UNSEEN) else 'was started and never confirmed'} ({why})"
    )


class Call(Struct, frozen=True, gc=False):
    """The next call of the program: where it stands, what it is, with which arguments."""

    key: str
    name: str
    arguments: bytes
    kind: CallKind
    shown: str = ""


class Fresh(Struct, frozen=True):
    """Nothing completed is recorded: perform this attempt, not before that time."""

    attempt: int = 1
    not_before: float = 0.0
    forgiven: int = 0
    """Attempts made before a resume attempted the call anew; the retry policy does not count them."""
    since: float = 0.0
    """When the first attempt began; 0 where there was none."""
    last: Failure | None = None
    """How the attempt before this one failed."""


FIRST: Final = Fresh()
"""Nothing at all is recorded: most calls of most runs."""


class Replayed(Struct, frozen=True, gc=False):
    """The call completed before: its recorded value or failure is the answer."""

    done: Done


class Verdicted(Struct, frozen=True):
    """The call was in doubt and has been settled: it happened with this value, or the run fails here."""

    verdict: Settled


class InDoubt(Struct, frozen=True):
    """The call was started and never confirmed. Without `intent`, the intent itself may be what was lost."""

    attempt: int
    intent: Record | None
    why: str = ""


class Open(Struct, frozen=True):
    """The call is a wait that began before and has no answer yet."""

    wait: Record


class Diverged(Struct, frozen=True):
    """The journal holds another call at this place."""

    recorded: str
    kind: CallKind


Decision = Fresh | Replayed | Verdicted | InDoubt | Open | Diverged


class Entry(Struct, gc=False):
    """What the journal knows of one step key. Most keys are a plain completed step, so the rest is told by defaults."""

    kind: CallKind
    name: str
    arguments: bytes
    completion: Record | None = None
    attempts: int = 0
    forgiven: int = 0
    not_before: float = 0.0
    since: float = 0.0
    shown: str = ""
    doubt: str = ""
    failure: Failure | None = None
    intent: Record | None = None
    verdict: Settled | None = None
    wait: Record | None = None

    @property
    def done(self) -> Done | None:
        """The completion, decoded."""
        return None if self.completion is None else read_body(self.completion)

    @property
    def is_open(self) -> bool:
        """Whether an intent stands here without receipt, failure or verdict."""
        return self.intent is not None and self.completion is None and self.verdict is None

    @property
    def is_waiting(self) -> bool:
        """Whether a wait stands here that has no answer and will not be begun anew."""
        return self.wait is not None and self.completion is None and not self.forgiven

    def complete(self, record: Record) -> None:
        """A value or a failure was recorded for this call."""
        self.completion = record
        self.intent = None

    def reopen(self) -> None:
        """The failure recorded here ended the run: a resume attempts the call anew."""
        self.shown = self.shown_call()
        self.completion = None
        self.verdict = None
        self.intent = None
        self.not_before = self.since = 0.0
        self.failure = None
        if self.kind == "step":
            self.attempts = 0
        elif self.kind == "wait":
            self.attempts += 1
        self.forgiven = self.attempts

    def shown_call(self) -> str:
        """The recorded call as a person would write it."""
        done = None if self.shown else self.done
        if done is not None:
            self.shown = done.shown
        return self.shown or f"{self.name}(…)"


class Strands:
    """Which calls and strands each scope has on record; made from the keys when it is first asked for."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._last_call: dict[str, tuple[int, str]] = {}
        self._last_child: dict[str, dict[str, tuple[int, str]]] = {}
        for key in keys:
            scope, dot, index = key.rpartition(".")
            if dot and index.isdecimal() and not key.startswith("="):
                if scope not in self._last_call:
                    self._note_parents(scope, key)
                self._last_call[scope] = max(self._last_call.get(scope, (-1, "")), (int(index), key))

    def beyond(self, scope: str, index: int, spawned: Mapping[str, int]) -> str:
        """The key of a call of this scope, or of a strand it started, beyond so many calls and strands; else empty."""
        last, key = self._last_call.get(scope, (-1, ""))
        if last >= index:
            return key
        for name, (occurrence, child_key) in self._last_child.get(scope, {}).items():
            if occurrence >= spawned.get(name, 0):
                return child_key
        return ""

    def _note_parents(self, scope: str, key: str) -> None:
        """Remember of every strand on the way to this scope that its parent started it."""
        parent, slash, strand = scope.rpartition("/")
        while slash:
            name, _, occurrence = strand.rpartition("#")
            known = self._last_child.setdefault(parent, {})
            known[name] = max(known.get(name, (-1, "")), (int(occurrence), key))
            parent, slash, strand = parent.rpartition("/")


class Journal:
    """The records of one run, indexed by step key."""

    def __init__(self, records: Iterable[Record] = (), *, suspects: int = 0) -> None:
        self.suspects = suspects
        self.entries: dict[str, Entry] = {}
        self.batches: dict[str, list[Record]] = {}
        self.patches: set[str] = set()
        self.notes: list[tuple[str, Note]] = []
        self.ended: Ended | None = None
        self.first: Record | None = None
        self.deliveries: list[Record] = []
        self.passed: dict[str, dict[str, Passed]] = {}
        self._strands: Strands | None = None
        self._inside: dict[str, list[str]] | None = None
        for record in records:
            self.absorb(record)

    def absorb(self, record: Record) -> None:
        """Take the next record in."""
        kind = record.kind
        if kind == "step" and record.key not in self.entries:
            self.entries[record.key] = Entry("step", record.name, record.arguments, record)
            self._strands = None
        elif kind == "step":
            self._entry(record, "step").complete(record)
        elif kind == Kind.RECEIPT:
            self._entry(record, "effect").complete(record)
        elif kind == Kind.ANSWER:
            self._entry(record, "wait").complete(record)
        elif kind == Kind.NOTE:
            self.notes.append((record.key, read_body(record)))
        elif kind == Kind.PATCHED:
            self.patches.add(record.key)
        elif record.key:
            self._absorb_progress(record)
        else:
            self._absorb_event(record)

    def started(self) -> Started:
        """What the run was asked to do; `ValueError` where its first record is missing."""
        if self.first is None:
            raise ValueError("the journal has no first record")
        started: Started = read_body(self.first)
        return started

    def open_entries(self) -> Iterator[tuple[str, Entry]]:
        """The effects in doubt, oldest first."""
        return ((key, entry) for key, entry in self.entries.items() if entry.is_open)

    def completed(self) -> Iterator[tuple[str, Entry]]:
        """The calls with a recorded completion, oldest first."""
        return ((key, entry) for key, entry in self.entries.items() if entry.completion is not None)

    def beyond(self, scope: str, index: int, spawned: Mapping[str, int]) -> Entry | None:
        """A call recorded in this scope, or in a strand it started, that lies beyond so many calls and strands."""
        if self._strands is None:
            self._strands = Strands(self.entries)
        key = self._strands.beyond(scope, index, spawned)
        return self.entries[key] if key else None

    def inside(self, place: str) -> list[str]:
        """The calls recorded for the items of the map with this key, or in the scope of a map's source."""
        if self._inside is None:
            self._inside = {}
            for key in self.entries:
                for owner in _owners(key):
                    self._inside.setdefault(owner, []).append(key)
        return self._inside.get(place, [])

    def _entry(self, record: Record, kind: CallKind) -> Entry:
        entry = self.entries.get(record.key)
        if entry is None:
            entry = self.entries[record.key] = Entry(kind, record.name, record.arguments)
            self._strands = None
        return entry

    def _absorb_progress(self, record: Record) -> None:
        body: Any = read_body(record)
        match body:
            case Intended():
                entry = self._entry(record, "effect")
                entry.intent, entry.verdict, entry.doubt = record, None, ""
                entry.attempts = body.attempt
                entry.shown = body.shown
            case Attempt():
                entry = self._entry(record, "step")
                entry.attempts = body.attempt
                entry.not_before = body.next_at
                entry.failure = body.failure
                entry.since = entry.since or record.at - body.seconds
                entry.intent = None
                entry.shown = body.shown or entry.shown
            case Opened():
                entry = self._entry(record, "wait")
                entry.wait, entry.forgiven = record, 0
                entry.shown = body.shown
            case Batch():
                self._entry(record, "step").shown = record.name
                self.batches.setdefault(record.key, []).append(record)
            case Doubt():
                entry = self._entry(record, "effect")
                entry.doubt = body.why
                if body.lost:
                    entry.intent = record
                    entry.attempts = body.attempt
            case Settled():
                entry = self._entry(record, "effect")
                if body.outcome == "did_not_happen":
                    entry.intent, entry.doubt = None, ""
                else:
                    entry.verdict = body

    def _absorb_event(self, record: Record) -> None:
        """What happened to the run as a whole."""
        if record.kind == Kind.STARTED:
            self.first = record
        elif record.kind == Kind.DELIVERY:
            self.deliveries.append(record)
        elif record.kind == Kind.ENDED:
            self._absorb_end(read_body(record))

    def _absorb_end(self, ended: Ended) -> None:
        self.ended = ended
        for key in ended.reopened:
            if key in self.entries:
                self.entries[key].reopen()
                self.passed[key] = ended.passed


def _owners(key: str) -> Iterator[str]:
    """The map whose item a call is for, and the scopes of sources that it was made in."""
    place, bracket, _ = key.partition("[")
    if key.startswith("="):
        return
    if bracket:
        yield place
    position = place.find(SOURCE)
    while position >= 0:
        end = position + len(SOURCE)
        while end < len(place) and place[end].isdecimal():
            end += 1
        yield place[:end]
        position = place.find(SOURCE, end)


def decide(journal: Journal, call: Call) -> Decision:
    """What this call means, given everything recorded so far."""
    entry = journal.entries.get(call.key)
    if entry is None:
        if journal.suspects and call.kind == "effect":
            return InDoubt(attempt=1, intent=None, why=UNSEEN)
        return FIRST
    if entry.name != call.name or entry.arguments != call.arguments or entry.kind != call.kind:
        return Diverged(recorded=entry.shown_call(), kind=entry.kind)
    if entry.completion is not None:
        return Replayed(read_body(entry.completion))
    if entry.verdict is not None:
        return Verdicted(entry.verdict)
    if entry.wait is not None and not entry.forgiven:
        return Open(entry.wait)
    if entry.intent is not None:
        return InDoubt(attempt=entry.attempts, intent=entry.intent, why=entry.doubt)
    return Fresh(entry.attempts + 1, entry.not_before, entry.forgiven, entry.since, entry.failure)


def remembered(journal: Journal, key: str, name: str, arguments: bytes) -> Done | None:
    """The completion of a step that was called just so, and returned; None where there is more to `decide`."""
    entry = journal.entries.get(key)
    if entry is None or entry.completion is None or entry.kind != "step":
        return None
    if entry.name != name or entry.arguments != arguments:
        return None
    done: Done = read_body(entry.completion)
    return done if done.failure is None else None


def left_over(journal: Journal, unvisited: Iterable[str]) -> Entry | None:
    """The first recorded call that the finished program never made."""
    return next((journal.entries[key] for key in unvisited), None)


def is_patched(journal: Journal, *, scope: str, index: int, spawned: Mapping[str, int], name: str) -> tuple[bool, str]:
    """Whether new code runs at this place, and the key of the mark to record (empty where there is nothing to)."""
    key = f"{scope}.{index}?{name}"
    if key in journal.patches:
        return True, ""
    if journal.beyond(scope, index, spawned) is not None:
        return False, ""
    return True, key
