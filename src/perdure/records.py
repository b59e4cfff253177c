"""Everything the store keeps, as frozen structs, and the digests that make damage visible.

A journal is an ordered list of `Record`s. Each carries a digest over its own fields and the digest of the record before
it, so a run's records form one chain; the `Run` row holds the chain's length and head, and a digest of its own.

Annotations are objects here and not texts: msgspec would compile each text anew when the first run meets its struct.
"""

import re
from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from perdure import typed

FORMAT: Final = 1
"""The version of the record bodies below, written into every run's first record."""

DIGEST_BYTES: Final = 16
NO_DIGEST: Final = bytes(DIGEST_BYTES)
NULL: Final = Raw(b"null")

_TICK_ID: Final = r".+@[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}Z"
_MADE_ID: Final = re.compile(
    rf"([0-9a-f]{{12}}-[a-z2-9]{{12}}|undo-[0-9a-f]{{16}}|.+/[0-9a-f]{{16}}|{_TICK_ID})(~[0-9]+)?", re.DOTALL
)
"""The ids of runs, of those that take back, of children, of ticks, and of those that go on in their place."""

DEFAULT_QUEUE: Final = "default"
"""The queue of a run that names none."""

Durability = Literal["power", "process"]


class RunState(StrEnum):
    """Where a run stands."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


class WaitReason(StrEnum):
    """Why a waiting run waits."""

    HUMAN = "human"
    TIME = "time"
    SIGNAL = "signal"
    CHILD = "child"
    IN_DOUBT = "in_doubt"
    PARKED = "parked"


class Kind(StrEnum):
    """What a record of the journal says."""

    STARTED = "started"
    DELIVERY = "delivery"
    STEP = "step"
    ATTEMPT = "attempt"
    INTENT = "intent"
    RECEIPT = "receipt"
    BATCH = "batch"
    WAIT = "wait"
    ANSWER = "answer"
    NOTE = "note"
    DOUBT = "doubt"
    VERDICT = "verdict"
    PATCHED = "patched"
    REPAIRED = "repaired"
    OBSERVED = "observed"
    ENDED = "ended"


COMPLETIONS: Final = frozenset({Kind.STEP, Kind.RECEIPT, Kind.ANSWER})
"""Records that complete a call, each counted as a step."""

FINISHED: Final = frozenset({RunState.COMPLETED, RunState.CANCELLED})
"""States that no delivery leaves again; a failed run may be resumed."""


class Record(Struct, frozen=True, gc=False):
    """One entry of a journal."""

    seq: int
    kind: str
    key: str
    name: str
    arguments: bytes
    at: float
    epoch: int
    body: str
    digest: bytes = NO_DIGEST


class Run(Struct, frozen=True, gc=False):
    """One agent task: who it is, where it stands, and the head of its journal."""

    run_id: str
    name: str
    agent: str
    arguments: bytes
    durability: Durability
    created_at: float
    updated_at: float
    state: str = RunState.QUEUED
    reason: str = ""
    detail: str = ""
    epoch: int = 0
    holder: str = ""
    deliveries: int = 0
    steps: int = 0
    suspects: int = 0
    length: int = 0
    wake_at: float = 0.0
    """When to look at a waiting run again; 0 where only mail can wake it."""
    heard: int = 0
    """The newest mail a waiting run knew of; anything newer wakes it."""
    tags: str = ""
    tokens: int = 0
    dollars: float = 0.0
    """What its steps say they took."""
    queue: str = DEFAULT_QUEUE
    priority: int = 0
    """Higher goes first."""
    tenant: str = ""
    """On whose behalf it is: those of one queue take turns."""
    turn: int = 0
    """Its place among the queued runs of its queue, agent and priority; the store gives it when the run is ready."""
    version: str = ""
    """Of the code whose workers alone may take it; "" for any."""
    head: bytes = NO_DIGEST
    digest: bytes = NO_DIGEST


class Queue(Struct, frozen=True):
    """What runs pass on their way to a worker, and how many may pass; 0 is no limit."""

    name: str
    concurrency: int = 0
    """How many of its runs may be `running` at once, on all workers together."""
    per_worker: int = 0
    """How many of them one worker takes on; each worker minds that itself."""
    rate: float = 0.0
    """How many of its runs may begin in a second."""
    burst: int = 0
    """How many may begin at once after a quiet time; 0 is one."""
    bucket: str = ""
    """The bucket its tokens are taken from, which queues may share; "" is one of its own."""


class Schedule(Struct, frozen=True):
    """When an agent is to run by itself, up to where that was seen to, and what came of it last."""

    name: str
    """Its agent's, and after a colon the name of its own, where it has one."""
    agent: str
    cron: str
    timezone: str
    catch_up: str
    arguments: str
    """The arguments of each of its runs as JSON, without the tick."""
    next_at: float
    """The first tick that was not seen to yet."""
    last_at: float = 0.0
    """The newest tick for which there was a run."""
    last_run: str = ""
    off_at: float = 0.0
    """When somebody switched it off; 0 where nobody did."""
    digest: bytes = NO_DIGEST


class Debounce(Struct, frozen=True):
    """Starts of one key that become one run, as long as nobody has taken it."""

    agent: str
    key: str
    run_id: str
    first_at: float
    newest_at: float
    starts: str
    """The newest starts, as JSON: by the id that each would have had alone, the id of the run that it became."""
    digest: bytes = NO_DIGEST


class Worker(Struct, frozen=True):
    """A process that may hold runs, and how to tell whether it is alive."""

    worker_id: str
    pid: int
    host: str
    boot_id: str
    lock_inode: int
    beat_at: float
    beat_boot: float
    drain_at: float = 0.0
    """When somebody asked it to finish what it has and take nothing more; 0 where nobody did."""
    death: str = ""
    """How its process ended, where whoever started it was told; empty while it lives, or where nobody knows."""
    died_at: float = 0.0
    version: str = ""
    """Of the code it executes; it takes runs that are pinned to this version, and those that are not pinned."""


class Mail(Struct, frozen=True):
    """What somebody other than the holder wrote to a run."""

    mail_id: int
    run_id: str
    kind: Literal["verdict", "evidence", "cancel", "answer", "refused", "signal", "pause", "unpause", "child", "accept"]
    key: str
    body: str
    by: str
    at: float
    taken: int = 0
    digest: bytes = NO_DIGEST


class Loss(Struct, frozen=True):
    """Acknowledged commits that the store no longer had when it was opened."""

    generation: int
    at: float
    expected: int
    found: int


class Append(Struct, frozen=True):
    """One fenced extension of a journal: the records, and the run's row after them."""

    run: Run
    records: tuple[Record, ...]
    blobs: tuple[tuple[bytes, bytes], ...] = ()
    taken: tuple[int, ...] = ()
    power: bool = True


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
_encode_fields = msgspec.msgpack.Encoder().encode


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


def record_digest(run_id: str, before: bytes, record: Record) -> bytes:
    """The digest that binds a record's fields to its place in the chain."""
    return fields_digest(run_id.encode(), before, msgspec.structs.astuple(record)[:-1])


def fields_digest(run_id: bytes, before: bytes, fields: tuple[Any, ...]) -> bytes:
    """The same for fields that are not a record yet."""
    return sha256(before + run_id + _encode_fields(fields)).digest()[:DIGEST_BYTES]


def run_digest(run: Run) -> bytes:
    """The digest over every field of a run's row but itself."""
    fields: tuple[object, ...] = (
        run.run_id,
        run.name,
        run.agent,
        run.arguments,
        run.durability,
        run.created_at,
        run.updated_at,
        run.state,
        run.reason,
        run.detail,
        run.epoch,
        run.holder,
        run.deliveries,
        run.steps,
        run.suspects,
        run.length,
        run.head,
    )
    if run.wake_at != 0.0 or run.heard != 0 or run.tags != "":  # NULL is damage
        fields = (*fields, run.wake_at, run.heard, run.tags)
    if run.tokens != 0 or run.dollars != 0.0:
        fields = (*fields, run.tokens, run.dollars)
    placed = (run.queue, run.priority, run.tenant, run.turn, run.version)
    if placed != (DEFAULT_QUEUE, 0, "", 0, ""):
        fields = (*fields, *placed)
    return sha256(_encode_fields(fields)).digest()[:DIGEST_BYTES]


def sealed_run(run: Run) -> Run:
    """Bring the row's digest up to date."""
    return msgspec.structs.replace(run, digest=run_digest(run))


def mail_digest(mail: Mail) -> bytes:
    """The digest over what a mail says and whether it was taken: taken twice, or never, it would be as wrong."""
    fields = (mail.run_id, mail.kind, mail.key, mail.body, mail.by, mail.at, mail.taken)
    return sha256(_encode_fields(fields)).digest()[:DIGEST_BYTES]


def sealed_schedule(schedule: Schedule) -> Schedule:
    """Bring the digest over every other field up to date."""
    return msgspec.structs.replace(schedule, digest=_row_digest(schedule))


def sealed_debounce(debounce: Debounce) -> Debounce:
    """Bring the digest over every other field up to date."""
    return msgspec.structs.replace(debounce, digest=_row_digest(debounce))


def is_whole_row(row: Schedule | Debounce) -> bool:
    """Whether a row is what was written."""
    return row.digest == _row_digest(row)


def _row_digest(row: Schedule | Debounce) -> bytes:
    return sha256(_encode_fields(msgspec.structs.astuple(row)[:-1])).digest()[:DIGEST_BYTES]


def undo_id(run_id: str, number: int = 1) -> str:
    """The id of the run that takes back the effects of this one; always the same, so that there is one.

    Once it was cancelled, the next one may: each that comes after a cancelled one has the next number.
    """
    place = run_id if number == 1 else f"{run_id}\n{number}"
    return f"undo-{sha256(place.encode()).hexdigest()[:DIGEST_BYTES]}"


def tick_id(schedule: str, tick_at: float) -> str:
    """The id of the run of a tick; always the same, so that there is one."""
    return f"{schedule}@{datetime.fromtimestamp(tick_at, UTC):%Y-%m-%dT%H:%MZ}"


def is_tick_id(run_id: str) -> bool:
    """Whether an id looks like that of a tick."""
    return re.fullmatch(_TICK_ID, run_id, re.DOTALL) is not None


def is_own_id(run_id: str) -> bool:
    """Whether somebody chose this id; those that are made look otherwise."""
    return _MADE_ID.fullmatch(run_id) is None


def blob_digest(content: bytes) -> bytes:
    """The address of a large value: the digest of its content."""
    return sha256(content).digest()


def extended(  # the changes are fields of Run, checked by msgspec
    run: Run,
    *,
    at: float,
    records: tuple[Record, ...],
    **changes: Any,  # noqa: ANN401
) -> tuple[Run, tuple[Record, ...]]:
    """The run's row and the chained records after `records` were appended to its journal.

    The records and the row are made here for the store alone, so their digests are filled in rather than copied in.
    """
    head = run.head
    for record in records:
        head = record_digest(run.run_id, head, record)
        msgspec.structs.force_setattr(record, "digest", head)
    after = msgspec.structs.replace(run, updated_at=at, length=run.length + len(records), head=head, **changes)
    msgspec.structs.force_setattr(after, "digest", run_digest(after))
    return after, records
