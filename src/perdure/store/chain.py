"""Reading with distrust: how far a journal's chain holds, which rows are whole, and what a repair makes of the rest."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from perdure import clock, typed
from perdure.bodies import (
    BODY_OF,
    FORMAT,
    Batch,
    Done,
    Ended,
    Intended,
    Listing,
    Repaired,
    Settled,
    Started,
    read_body,
    write_body,
)
from perdure.errors import (
    START_OVER,
    CheckpointCorrupt,
    CommitsLost,
    FormatTooNew,
    PerdureError,
    RunDeaf,
    RunMoved,
    UnknownRun,
)
from perdure.records import (
    COMPLETIONS,
    DIGEST_BYTES,
    FINISHED,
    NO_DIGEST,
    Kind,
    Loss,
    Mail,
    Record,
    Run,
    RunState,
    Schedule,
    extended,
    fields_digest,
    mail_digest,
    run_digest,
    sealed_run,
)
from perdure.store.lease import read_park
from perdure.store.protocol import Finding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Row = tuple[Any, ...]
_KEEPING: Final = frozenset({Kind.STEP, Kind.RECEIPT, Kind.BATCH, Kind.OBSERVED})
_KEPT: Final = ('"resources":[', '"artifacts":[')


class Prefix(Struct, frozen=True):
    """The records that can be trusted, and what is wrong with the one after them (empty where nothing is)."""

    records: list[Record]
    problem: str


def walked(run_id: str, rows: Iterable[Row]) -> Prefix:
    """Walk the chain from the first record until it breaks or ends."""
    records: list[Record] = []
    before = NO_DIGEST
    try:
        owner = run_id.encode()
        for number, row in enumerate(rows):
            if row[0] != number:
                return Prefix(records, f"record {number} is missing")
            before = fields_digest(owner, before, row[:-1])
            if row[-1] != before:
                return Prefix(records, f"record {number} is damaged (its digest does not match)")
            records.append(Record(*row))
    except Exception as error:  # noqa: BLE001 - whatever a damaged row does to its reader, the rows before it stand
        return Prefix(records, f"record {len(records)} cannot be read ({type(error).__name__}: {error})")
    return Prefix(records, "")


def trusted_prefix(run: Run, rows: Iterable[Row]) -> Prefix:
    """Walk the chain from the first record until it breaks, or to the end the run's row names."""
    prefix = walked(run.run_id, rows)
    if prefix.problem:
        return prefix
    length = len(prefix.records)
    head = prefix.records[-1].digest if prefix.records else NO_DIGEST
    if length != run.length or head != run.head:
        return Prefix(prefix.records, f"the journal ends after {length} records, {run.length} were acknowledged")
    return prefix


def sound_prefix(prefix: Prefix, load_blob: Callable[[bytes], bytes]) -> Prefix:
    """The part of a prefix whose bodies, and the large values they refer to, can be read as well."""
    sound: set[bytes] = set()
    for number, record in enumerate(prefix.records):
        try:
            for digest in blobs_of(record):
                load_blob(digest)
            _load_kept(record, load_blob, sound)
        except PerdureError as error:
            return Prefix(prefix.records[:number], f"record {record.seq}: {error.message.rstrip('.')}")
        except (ValueError, RecursionError) as error:
            return Prefix(prefix.records[:number], f"record {record.seq} cannot be read ({error})")
    return prefix


def finding_of(run: Run, prefix: Prefix) -> Finding | Run:
    """The run where row and journal are whole; otherwise what is wrong, and how far it can be trusted."""
    try:
        verified_run(run)
        problem = prefix.problem
        if not problem:
            refuse_newer(run, prefix.records)
    except PerdureError as error:
        problem = error.message
    if not problem:
        return run
    return Finding(where=f"run {run.name}", what=problem, run_id=str(run.run_id), trusted=len(prefix.records))


def schedule_finding(schedule: Schedule) -> Finding:
    """What is said of a schedule that is not what was written."""
    return Finding(where=f"schedule {schedule.name}", what="is damaged (its digest does not match)")


def verified(run: Run, rows: Iterable[Row]) -> list[Record]:
    """The whole journal, or the error that names its damage."""
    prefix = trusted_prefix(run, rows)
    if prefix.problem:
        raise _corrupt(run, prefix.problem, trusted=len(prefix.records))
    refuse_newer(run, prefix.records)
    return prefix.records


def refuse_newer(run: Run, records: list[Record]) -> None:
    """Refuse a journal that only a newer perdure can read."""
    for record in records:
        if record.kind not in BODY_OF and record.kind != Kind.PATCHED:
            raise _too_new(run, f"a record of kind {str(record.kind)!r}")
    if records and _started(run, records[0]).format > FORMAT:
        raise _too_new(run, f"format {_started(run, records[0]).format}")


def is_whole(run: Run) -> bool:
    """Whether a row is what was written."""
    try:
        return run.digest == run_digest(run)
    except Exception:  # noqa: BLE001 - a damaged field may be of any type
        return False


def verified_run(run: Run) -> Run:
    """The row, or the error that names its damage."""
    if not is_whole(run):
        raise CheckpointCorrupt(
            f"The row of run {run.name!r} ({run.run_id!r}) is damaged.",
            safe="its journal is kept.",
            hint="perdure verify; perdure repair rebuilds it from the journal",
        )
    return run


def is_whole_mail(mail: Mail) -> bool:
    """Whether a mail is what was posted, and taken when it says so."""
    return mail.digest == mail_digest(mail)


def verified_mail(mail: Mail) -> Mail:
    """The mail, or the error that names its damage."""
    if not is_whole_mail(mail):
        raise CheckpointCorrupt(
            f"Mail {mail.mail_id} of run {mail.run_id!r} is damaged (its digest does not match).",
            safe="nothing was made of it.",
            hint="perdure verify; or put back a copy",
        )
    return mail


def taken_mail(mail: Mail, *, at_length: int) -> Mail:
    """The mail, taken by the append that made its run's journal so long."""
    taken = msgspec.structs.replace(mail, taken=at_length)
    return msgspec.structs.replace(taken, digest=mail_digest(taken))


def heard_of(run: Run, mail_id: int) -> Run:
    """The row of an imported run once its mail has numbers here; that of a finished one stays as it was."""
    return run if run.state in FINISHED else sealed_run(msgspec.structs.replace(run, heard=mail_id))


def loss_digest(loss: Loss) -> bytes:
    """The digest over a loss that was noticed."""
    fields = msgspec.msgpack.encode(msgspec.structs.astuple(loss))
    return hashlib.sha256(fields).digest()[:DIGEST_BYTES]


def blobs_of(record: Record) -> list[bytes]:
    """The addresses of the large values a record refers to."""
    if record.kind not in BODY_OF:
        return []
    body = read_body(record)
    if isinstance(body, (Done, Batch, Intended, Settled, Ended)) and body.blob:
        return [bytes.fromhex(body.blob)]
    return []


def _load_kept(record: Record, load_blob: Callable[[bytes], bytes], sound: set[bytes]) -> None:
    """Read every content that a record keeps of resources, once however many records keep it."""
    is_keeping = record.kind in _KEEPING and any(mention in record.body for mention in _KEPT)
    body = read_body(record) if is_keeping else None
    wanted = [bytes.fromhex(kept.digest) for kept in getattr(body, "artifacts", ())]
    for tracked in getattr(body, "resources", ()):
        address = bytes.fromhex(tracked.listing)
        if address and address not in sound:
            listing = typed.read(load_blob(address), Listing)
            sound.add(address)
            files = [entry for entry in listing.entries if entry.kind == "file" and tracked.kept]
            wanted += [bytes.fromhex(entry.content) for entry in files]
    for digest in wanted:
        if digest not in sound:
            load_blob(digest)
            sound.add(digest)


def needs_repair(run: Run, prefix: Prefix) -> bool:
    """Whether a run with a whole row cannot go on by itself: its journal is cut, or commits of it may be lost.

    One that was moved away goes on elsewhere, and must not be made to go on here.
    """
    park = read_park(run)
    if park.code == RunMoved.code:
        raise RunMoved(park.message, safe=park.safe, hint=park.hint)
    return bool(prefix.problem) or park.code == CommitsLost.code


def rebuilt(run_id: str, name: str, prefix: Prefix) -> Run:
    """The row of a run as its journal tells it, where the row itself is damaged."""
    first, last = prefix.records[0], prefix.records[-1]
    ended = read_body(last) if last.kind == Kind.ENDED else None
    if isinstance(ended, Ended) and ended.code == RunMoved.code:
        raise RunMoved(ended.message, safe="nothing was changed.", hint=ended.hint)
    earlier = [read_body(record).set_aside for record in prefix.records if record.kind == Kind.REPAIRED]
    return Run(
        run_id=run_id,
        name=name,
        agent=first.name,
        arguments=first.arguments,
        durability="power",
        created_at=first.at,
        updated_at=last.at,
        epoch=max(record.epoch for record in prefix.records),
        suspects=sum(_suspects(set_aside) for set_aside in earlier),
        length=len(prefix.records),
        head=last.digest,
    )


def repaired(run: Run, prefix: Prefix, *, total: int) -> tuple[Run, Record]:
    """The row and the record that let a run go on after its trusted prefix; `total` records were there.

    Every effect that may have been among the lost records is in doubt: at most one for two records, rounded up. The
    epoch passes every one that may have been handed out.
    """
    kept = len(prefix.records)
    set_aside = max(total, run.length) - kept
    now = clock.wall_seconds()
    bare = msgspec.structs.replace(
        run,
        agent=_started(run, prefix.records[0]).agent,
        arguments=prefix.records[0].arguments,
        state=RunState.QUEUED,
        reason="",
        detail="",
        epoch=run.epoch + set_aside + 1,
        holder="",
        deliveries=0,
        steps=sum(record.kind in COMPLETIONS for record in prefix.records),
        suspects=max(1, run.suspects + _suspects(set_aside)),
        length=kept,
        wake_at=run.wake_at if run.state == RunState.QUEUED else 0.0,
        head=prefix.records[-1].digest,
    )
    body = Repaired(set_aside=set_aside, why=prefix.problem or "the run's row was damaged, or commits of it were lost")
    record = Record(bare.length, Kind.REPAIRED, "", bare.agent, b"", now, bare.epoch, write_body(body))
    after, records = extended(bare, at=now, records=(record,))
    return after, records[0]


def irreparable(name: str, prefix: Prefix) -> CheckpointCorrupt:
    """The refusal to go on with a run of which nothing can be trusted."""
    return CheckpointCorrupt(
        f"Run {name} cannot be repaired: {prefix.problem or 'its journal is gone'}; even its arguments are not known.",
        safe="what is left of it is kept.",
        hint=START_OVER,
    )


def deaf(run_id: str) -> RunDeaf:
    """The answer where a run has finished, and hears nothing any more."""
    return RunDeaf(f"Run {run_id!r} has finished.", safe="nothing was sent.", hint="perdure show tells how it ended")


def unknown_run(run_id: str, location: str) -> UnknownRun:
    """The answer where no run has this id."""
    return UnknownRun(f"There is no run {run_id!r} in {location}.", hint="perdure ls lists them")


def _suspects(set_aside: int) -> int:
    return (set_aside + 1) // 2


def _started(run: Run, first: Record) -> Started:
    try:
        body = read_body(first)
    except (KeyError, ValueError, RecursionError) as error:
        raise _corrupt(run, f"record 0 cannot be read ({error})", trusted=0) from error
    if not isinstance(body, Started):
        raise _corrupt(run, f"its first record is of kind {str(first.kind)!r}", trusted=0)
    return body


def _corrupt(run: Run, problem: str, *, trusted: int) -> CheckpointCorrupt:
    return CheckpointCorrupt(
        f"Run {run.name}: {problem}.",
        safe=f"records 0 to {trusted - 1} are trusted." if trusted else "nothing was replayed.",
        hint=f"perdure verify; perdure repair {run.name} continues from the trusted records",
    )


def _too_new(run: Run, what: str) -> FormatTooNew:
    return FormatTooNew(
        f"Run {run.name} holds {what}, written by a newer perdure.",
        safe="it was not touched.",
        hint="pip install --upgrade perdure",
    )
