"""Reading a journal with distrust: how far its chain holds, and what a repair makes of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from perdure import clock
from perdure.errors import CheckpointCorrupt, FormatTooNew
from perdure.records import (
    BODY_OF,
    FORMAT,
    NO_DIGEST,
    Done,
    Ended,
    Intended,
    Kind,
    Record,
    Repaired,
    Run,
    RunState,
    Settled,
    Started,
    extended,
    read_body,
    record_digest,
    run_digest,
    write_body,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

Row = tuple[Any, ...]
_COMPLETIONS = frozenset({Kind.STEP, Kind.RECEIPT})


class Prefix(Struct, frozen=True):
    """The records that can be trusted, and what is wrong with the one after them (empty where nothing is)."""

    records: list[Record]
    problem: str


def trusted_prefix(run: Run, rows: Iterable[Row]) -> Prefix:
    """Walk the chain from the first record until it breaks, or to the end the run's row names."""
    records: list[Record] = []
    before = NO_DIGEST
    try:
        for row in rows:
            record = Record(*row)
            if record.seq != len(records):
                return Prefix(records, f"record {len(records)} is missing")
            if record.digest != record_digest(run.run_id, before, record):
                return Prefix(records, f"record {record.seq} is damaged (its digest does not match)")
            records.append(record)
            before = record.digest
    except Exception as error:  # noqa: BLE001 - whatever a damaged row does to its reader, the rows before it stand
        return Prefix(records, f"record {len(records)} cannot be read ({type(error).__name__}: {error})")
    if len(records) != run.length or before != run.head:
        return Prefix(records, f"the journal ends after {len(records)} records, {run.length} were acknowledged")
    return Prefix(records, "")


def verified(run: Run, rows: Iterable[Row]) -> list[Record]:
    """The whole journal, or the error that names its damage."""
    prefix = trusted_prefix(run, rows)
    if prefix.problem:
        raise CheckpointCorrupt(
            f"Run {run.name}: {prefix.problem}.",
            safe=f"records 0 to {len(prefix.records) - 1} are trusted." if prefix.records else "nothing was replayed.",
            hint=f"perdure verify; perdure repair {run.name} continues from the trusted records",
        )
    for record in prefix.records:
        if record.kind not in BODY_OF and record.kind != Kind.PATCHED:
            raise _too_new(run, f"a record of kind {record.kind!r}")
    if prefix.records:
        started: Started = read_body(prefix.records[0])
        if started.format > FORMAT:
            raise _too_new(run, f"format {started.format}")
    return prefix.records


def verified_run(run: Run) -> Run:
    """The row, or the error that names its damage."""
    try:
        whole = run.digest == run_digest(run)
    except Exception:  # noqa: BLE001 - a damaged field may be of any type
        whole = False
    if not whole:
        raise CheckpointCorrupt(
            f"The row of run {run.name!r} ({run.run_id!r}) is damaged.",
            safe="its journal is kept.",
            hint="perdure verify; perdure repair rebuilds it from the journal",
        )
    return run


def blobs_of(record: Record) -> list[bytes]:
    """The addresses of the large values a record refers to."""
    if record.kind not in BODY_OF:
        return []
    body = read_body(record)
    if isinstance(body, (Done, Intended, Settled, Ended)) and body.blob:
        return [bytes.fromhex(body.blob)]
    return []


def repaired(run: Run, prefix: Prefix, *, total: int) -> tuple[Run, Record]:
    """The row and the record that let a run go on after its trusted prefix.

    Every effect that may have been among the lost records is in doubt: at most one for two records, rounded up.
    """
    set_aside = max(total, run.length) - len(prefix.records)
    started: Started = read_body(prefix.records[0])
    last = prefix.records[-1]
    now = clock.wall_seconds()
    epoch = max(record.epoch for record in prefix.records) + 1
    bare = msgspec.structs.replace(
        run,
        agent=started.agent,
        arguments=prefix.records[0].arguments,
        state=RunState.QUEUED,
        reason="",
        detail="",
        epoch=max(epoch, run.epoch + 1) if isinstance(run.epoch, int) else epoch,
        holder="",
        deliveries=0,
        steps=sum(record.kind in _COMPLETIONS for record in prefix.records),
        suspects=max(1, (set_aside + 1) // 2),
        length=len(prefix.records),
        head=last.digest,
    )
    body = Repaired(set_aside=set_aside, why=prefix.problem or "the run's row was damaged")
    record = Record(bare.length, Kind.REPAIRED, "", bare.agent, b"", now, bare.epoch, write_body(body))
    after, records = extended(bare, at=now, records=(record,))
    return after, records[0]


def _too_new(run: Run, what: str) -> FormatTooNew:
    return FormatTooNew(
        f"Run {run.name} holds {what}, written by a newer perdure.",
        safe="it was not touched.",
        hint="pip install --upgrade perdure",
    )
