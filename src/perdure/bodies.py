"""What a record says: a body for each kind, stored as JSON text, and read as nothing but its struct.

Annotations are objects here and not texts: msgspec would compile each text anew when the first run meets its struct.
"""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from perdure import typed
from perdure.records import Kind, Record

FORMAT: Final = 1
"""The version of the bodies below, written into every run's first record."""

NULL: Final = Raw(b"null")


class Failure(Struct, frozen=True, omit_defaults=True):
    """An exception as it is stored: its class by name, its message, its arguments when they are plain."""

    type: str
    message: str
    arguments: Raw = NULL
    plain: bool = False
    trace: str = ""
    safe: str = ""
    hint: str = ""


class Ancestor(Struct, frozen=True):
    """A run that started another, and the call it is of."""

    run_id: str
    agent: str
    arguments: str


class Change(Struct, frozen=True, omit_defaults=True):
    """Working state that a fork was given: set once the call with this key is past, or before the first call."""

    state: dict[str, Raw]
    after: str = ""


class Origin(Struct, frozen=True, omit_defaults=True):
    """Where a fork comes from, and what it has from there."""

    run_id: str
    name: str
    at: int
    """How many completed steps of the other run it has."""
    records: int = 1
    """Its records up to here are those of the other run."""
    keys: dict[str, str] = {}
    """The effects that were in doubt there, by step key, and the keys under which the outside may know them."""
    changes: tuple[Change, ...] = ()
    arguments: tuple[str, ...] = ()
    """The arguments that were replaced."""


class Started(Struct, frozen=True, omit_defaults=True):
    """Body of the first record: what was asked for, and by which code."""

    agent: str
    arguments: Raw
    code: str
    format: int = FORMAT
    python: str = ""
    perdure: str = ""
    lineage: tuple[Ancestor, ...] = ()
    """The runs that started this one, outermost first."""
    deadline_at: float = 0.0
    signals: tuple[str, ...] | None = None
    """The names of the signals it hears, where its agent declares them."""
    forked_from: Origin | None = None


class Delivery(Struct, frozen=True, omit_defaults=True):
    """Body of a delivery: who took the run, and what became of the holder before."""

    worker: str
    pid: int
    host: str
    delivery: int
    before: str = ""
    unproven_seconds: float = 0.0
    """For how long the holder before may still have been alive: its session ended, and that proves nothing."""
    version: str = ""
    """Of the code that executes it from here on, where the worker has one."""


class Tracked(Struct, frozen=True, omit_defaults=True):
    """A resource as it was when somebody last looked: how to look again, what was seen, what to do if it differs."""

    kind: str
    identity: str
    look: int
    """Looks of one run are numbered as they begin: the last look at a resource counts, in whatever order they land."""

    state: Literal["present", "absent", "unreachable"] = "present"
    digest: str = ""
    words: str = ""
    options: dict[str, Any] = {}
    on_change: Literal["park", "accept", "recreate"] = "park"
    timeout: float = 5.0
    listing: str = ""
    """The address of the `Listing` of a directory, or of a file whose content is kept."""

    kept: bool = False
    size_limit: int = 0


class Kept(Struct, frozen=True):
    """A file whose content a run keeps: its name, the address of its content, its size in bytes."""

    name: str
    digest: str
    size: int


class Listed(Struct, frozen=True, omit_defaults=True):
    """One entry of a directory: where it is, what it is, and the digest of its content or the target of the link."""

    path: str
    kind: Literal["file", "dir", "link"]
    mode: int = 0
    content: str = ""
    size: int = 0


class Listing(Struct, frozen=True):
    """The entries of a directory, in the order of their paths; a lone file is one entry without a path."""

    entries: tuple[Listed, ...] = ()


class Cost(Struct, frozen=True, omit_defaults=True):
    """What a call took, where its body says so."""

    tokens: int = 0
    dollars: float = 0.0


def added(one: Cost, other: Cost) -> Cost:
    """What two calls took together."""
    return Cost(one.tokens + other.tokens, one.dollars + other.dollars)


class Done(Struct, frozen=True, omit_defaults=True):
    """Body of a completed step or of an effect's receipt: a value, or the failure raised to the agent."""

    value: Raw = NULL
    blob: str = ""
    failure: Failure | None = None
    attempt: int = 1
    seconds: float = 0.0
    shown: str = ""
    state: dict[str, Raw] | None = None
    dropped: tuple[str, ...] = ()
    resources: tuple[Tracked, ...] = ()
    artifacts: tuple[Kept, ...] = ()
    by: str = ""
    cost: Cost | None = None


class Question(Struct, frozen=True, omit_defaults=True):
    """What a person is asked; what has nothing to say is left out."""

    text: Annotated[str, Meta(description="the question")]
    show: Annotated[Raw, Meta(description="what the person should see")] = NULL
    options: Annotated[tuple[str, ...], Meta(description="the choices")] = ()
    form: Annotated[Raw, Meta(description="the JSON Schema of the answer, where it is a form")] = NULL
    assignee: Annotated[str, Meta(description="who should answer")] = ""
    remind_at: Annotated[tuple[float, ...], Meta(description="when reminders are due")] = ()
    escalate_at: Annotated[float, Meta(description="when it is escalated")] = 0.0
    escalate_to: Annotated[str, Meta(description="to whom")] = ""
    approves: Annotated[
        str, Meta(description="the digest of the arguments of the effect that the answer lets happen")
    ] = ""


class Opened(Struct, frozen=True, omit_defaults=True):
    """Body of a wait: for what the run waits, and until when."""

    reason: Literal["human", "time", "signal", "child"]
    shown: str = ""
    due_at: float = 0.0
    question: Question | None = None
    signal: str = ""
    child: str = ""
    failed: str = ""
    """The failure of the child that its parent knew of when it began to wait; only a later one answers."""


class Note(Struct, frozen=True, omit_defaults=True):
    """Body of a note: what belongs to no call but is worth knowing.

    Of a script: its seed, what clocks told it, and what it did that nothing protects, where a tool did it `by` that.
    """

    about: Literal["progress", "reminder", "escalation", "children", "seed", "drawn", "unprotected"]
    text: str = ""
    done: float = 0.0
    total: float = 0.0
    by: str = ""


class Batch(Struct, frozen=True, omit_defaults=True):
    """Body of a batch: so many items of a map are done, from this one on, and where their results are."""

    first: int
    count: int
    blob: str
    """The address of the `Lot` of these items."""
    items: str
    """The digest over the items, by which they are recognised when the source is walked again."""
    failed: int = 0
    seconds: float = 0.0
    resources: tuple[Tracked, ...] = ()
    artifacts: tuple[Kept, ...] = ()
    cost: Cost | None = None


class Lot(Struct, frozen=True, omit_defaults=True):
    """What a batch refers to: the results of its items, in order, and what is kept to recognise each item."""

    values: list[Raw]
    failures: dict[int, Failure] = {}
    prints: bytes = b""
    shown: list[str] = []


class Attempt(Struct, frozen=True, omit_defaults=True):
    """Body of a failed attempt that will be followed by another."""

    attempt: int
    failure: Failure
    next_at: float
    seconds: float = 0.0
    shown: str = ""
    cost: Cost | None = None


class Intended(Struct, frozen=True, omit_defaults=True):
    """Body of an intent: everything needed to check, repeat under the same key, or ask a person."""

    effect_key: str
    attempt: int
    arguments: Raw
    blob: str = ""
    key_at: float = 0.0
    shown: str = ""


class Doubt(Struct, frozen=True, omit_defaults=True):
    """Body of a doubt: why an attempt that began cannot be called done or not done."""

    attempt: int
    why: str
    lost: bool = False


class Settled(Struct, frozen=True, omit_defaults=True):
    """Body of a verdict: how an effect in doubt was settled, and by whom."""

    attempt: int
    outcome: Literal["happened", "did_not_happen", "fail"]
    by: str
    value: Raw = NULL
    blob: str = ""
    note: str = ""


class Passed(Struct, frozen=True, omit_defaults=True):
    """How far a scope went on after a call in it failed: a resumed run continues beyond what handled the failure."""

    calls: int
    spawned: dict[str, int] = {}


class Ended(Struct, frozen=True, omit_defaults=True):
    """Body of an ending or a pause: the outcome, or why the run stopped."""

    state: str
    reason: str = ""
    value: Raw = NULL
    blob: str = ""
    failure: Failure | None = None
    code: str = ""
    message: str = ""
    hint: str = ""
    reopened: tuple[str, ...] = ()
    passed: dict[str, Passed] = {}
    undone: bool = False
    continued: str = ""
    """The run that goes on in place of this one."""


class Observed(Struct, frozen=True, omit_defaults=True):
    """Body of a look at resources outside of any step: what differed and was accepted or recreated, or a checkpoint."""

    resources: tuple[Tracked, ...]
    words: tuple[str, ...] = ()
    by: str = ""


class Repaired(Struct, frozen=True, omit_defaults=True):
    """Body of a repair: how many records after the trusted prefix were set aside."""

    set_aside: int
    why: str


BODY_OF: Final[dict[str, type[Struct]]] = {
    Kind.STARTED: Started,
    Kind.DELIVERY: Delivery,
    Kind.STEP: Done,
    Kind.ATTEMPT: Attempt,
    Kind.INTENT: Intended,
    Kind.RECEIPT: Done,
    Kind.BATCH: Batch,
    Kind.WAIT: Opened,
    Kind.ANSWER: Done,
    Kind.NOTE: Note,
    Kind.DOUBT: Doubt,
    Kind.VERDICT: Settled,
    Kind.REPAIRED: Repaired,
    Kind.OBSERVED: Observed,
    Kind.ENDED: Ended,
}

_encode_body = msgspec.json.Encoder().encode


class _Decoders(dict[str, Callable[[str], Any]]):
    """A decoder for each kind, made when first needed: making them all would be felt at import."""

    def __missing__(self, kind: str) -> Callable[[str], Any]:
        self[kind] = typed.decoder(BODY_OF[kind])
        return self[kind]


_decoders: Final = _Decoders()


def write_body(body: Struct) -> str:
    """A body as the JSON text that is stored."""
    return _encode_body(body).decode()


def read_body(record: Record) -> Any:  # noqa: ANN401 - the struct depends on the record's kind
    """The body struct of a record; raises `ValueError` (msgspec's own) where it is not one."""
    try:
        return _decoders[record.kind](record.body)
    except (KeyError, RecursionError) as error:
        raise ValueError(f"a body of kind {record.kind!r} that cannot be read ({type(error).__name__})") from error
