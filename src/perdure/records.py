"""Everything the store keeps, as frozen structs, and the digests that make damage visible.

A journal is an ordered list of `Record`s. Each carries a digest over its own fields and the digest of the record before
it, so a run's records form one chain; the `Run` row holds the chain's length and head, and a digest of its own.

Annotations are objects here and not texts: msgspec would compile each text anew when the first run meets its struct.
"""

import re
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

DIGEST_BYTES: Final = 16
NO_DIGEST: Final = bytes(DIGEST_BYTES)

_TICK_ID: Final = r".+@[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}Z"
_MADE_ID: Final = rf"([0-9a-f]{{12}}-[a-z2-9]{{12}}|undo-[0-9a-f]{{16}}|.+/[0-9a-f]{{16}}|{_TICK_ID})(~[0-9]+)?"
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


_FIRST_FIELDS: Final = Run.__struct_fields__.index("wake_at")
_LATER_FIELDS: Final = Run.__struct_fields__.index("head")
_NO_LATER: Final = Run.__struct_defaults__[_FIRST_FIELDS - _LATER_FIELDS - 2 : -2]
"""The fields between these two came later. In most runs they say nothing, and are then no part of the digest."""

_encode_fields = msgspec.msgpack.Encoder().encode


def record_digest(run_id: str, before: bytes, record: Record) -> bytes:
    """The digest that binds a record's fields to its place in the chain."""
    return fields_digest(run_id.encode(), before, msgspec.structs.astuple(record)[:-1])


def fields_digest(run_id: bytes, before: bytes, fields: tuple[Any, ...]) -> bytes:
    """The same for fields that are not a record yet."""
    return sha256(before + run_id + _encode_fields(fields)).digest()[:DIGEST_BYTES]


def run_digest(run: Run) -> bytes:
    """The digest over every field of a run's row but itself."""
    fields = msgspec.structs.astuple(run)
    later = fields[_FIRST_FIELDS:_LATER_FIELDS]
    fields = (*fields[:_FIRST_FIELDS], run.head)
    if later != _NO_LATER:
        waiting, spent, placed = later[:3], later[3:5], later[5:]
        if waiting != (0.0, 0, ""):  # NULL is damage
            fields = (*fields, *waiting)
        if spent != (0, 0.0):
            fields = (*fields, *spent)
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
    return re.fullmatch(_MADE_ID, run_id, re.DOTALL) is None


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
