"""Extending journals in one round trip: what a batch means for each run, and the statement that fences and writes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from perdure.errors import LeaseLost
from perdure.records import Append, Mail, Record, Run
from perdure.store.chain import taken_mail, verified_mail
from perdure.store.postgres.connect import Q, fetch
from perdure.store.postgres.wire import BIGINT, FLOAT, Statement, numbers
from perdure.store.sql import changeable, only_grows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.store.postgres.connect import Connection
    from perdure.store.protocol import Outcome

CREATE: Final = Statement("create_run", Q["create_run"])
APPEND_ONE: Final = Statement("append_one", Q["append_one"])
APPEND_STEP: Final = Statement("append_step", Q["append_step"])
APPEND_MANY: Final = Statement("append_many", Q["append_many"])


class Extension(Struct):
    """What a batch does to one run: appends that follow each other are one, and land or are refused as one."""

    run: Run
    epoch: int
    before: int
    records: list[Record]
    taken: list[tuple[int, int]]
    """Mail, and the length of the journal at which it is taken."""
    blobs: dict[bytes, bytes]
    places: list[int]
    """Where in the batch its appends are."""

    def follows(self, append: Append) -> bool:
        """Whether this append goes on exactly where the extension ends."""
        length = append.run.length - len(append.records)
        return append.run.epoch == self.run.epoch == self.epoch and length == self.run.length

    def add(self, append: Append, place: int) -> None:
        """Extend the extension."""
        self.run = append.run
        self.records.extend(append.records)
        self.taken.extend((mail_id, append.run.length) for mail_id in append.taken)
        self.blobs.update(append.blobs)
        self.places.append(place)


def rounds_of(batch: Sequence[Append], *, epoch: int | None = None) -> list[list[Extension]]:
    """The batch as rounds in which each run occurs once; `epoch` where the fence is another than the run's own."""
    if len(batch) == 1:
        return [[_extension(batch[0], 0, epoch)]]
    rounds: list[dict[str, Extension]] = [{}]
    for place, append in enumerate(batch):
        run_id = append.run.run_id
        for known in reversed(rounds):
            if run_id in known:
                break
        else:
            known = rounds[0]
        extension = known.get(run_id)
        if extension is not None and extension.follows(append):
            extension.add(append, place)
            continue
        if extension is not None:
            known = _round_after(rounds, known)
        known[run_id] = _extension(append, place, epoch)
    return [list(each.values()) for each in rounds if each]


def create(connection: Connection, run: Run, records: Sequence[Record], worker_id: str) -> bool:
    """Accept a run that this worker holds from the start, in one round trip; False where its id is known."""
    columns = zip(*map(msgspec.structs.astuple, records), strict=True)
    return CREATE.execute(connection, (*msgspec.structs.astuple(run), *columns, worker_id)).ntuples > 0


def write(connection: Connection, extensions: list[Extension]) -> set[str]:
    """Write a round; the ids of the runs whose fence held."""
    if len(extensions) == 1 and len(extensions[0].records) == 1:
        only = extensions[0]
        return {only.run.run_id} if APPEND_ONE.execute(connection, _one(only)).command_tuples else set()
    return {extensions[place].run.run_id for place in numbers(APPEND_MANY.execute(connection, _many(extensions)))}


def is_lone(batch: Sequence[Append]) -> bool:
    """Whether a batch is what a step of a run that is alone makes of it: one record, and nothing beside it."""
    append = batch[0]
    return len(batch) == len(append.records) == 1 and not append.blobs and not append.taken


def write_lone(connection: Connection, append: Append) -> bool:
    """Write the one record of an append; whether its fence held.

    A step changes only what grows with a journal, as long as the run is still moving: less to send, less to compute.
    """
    run, record = append.run, append.records[0]
    is_step = only_grows(run, append.records) and record.at == run.updated_at and record.epoch == run.epoch
    if is_step and APPEND_STEP.send(connection, _step(run, record)).command_tuples:
        return True
    return bool(write(connection, [_extension(append, 0, None)]))


def complete(connection: Connection, extension: Extension) -> None:
    """Keep the large values of an extension that landed, and take the mail that it consumes, once."""
    for blob in extension.blobs.items():
        fetch(connection, "insert_blob", blob)
    for mail_id, length in extension.taken:
        for row in fetch(connection, "read_untaken", (mail_id, extension.run.run_id)):
            taken = taken_mail(verified_mail(Mail(*row)), at_length=length)
            fetch(connection, "take_mail", (taken.taken, taken.digest, mail_id))


def refused(run: Run) -> Outcome:
    """What the holder of a stale epoch gets."""
    return LeaseLost(f"Run {run.name} is held by another worker now.")


def _extension(append: Append, place: int, epoch: int | None) -> Extension:
    fence = append.run.epoch if epoch is None else epoch
    before = append.run.length - len(append.records)
    taken = [(mail_id, append.run.length) for mail_id in append.taken]
    return Extension(append.run, fence, before, list(append.records), taken, dict(append.blobs), [place])


def _round_after(rounds: list[dict[str, Extension]], known: dict[str, Extension]) -> dict[str, Extension]:
    place = next(number for number, each in enumerate(rounds) if each is known) + 1
    if place == len(rounds):
        rounds.append({})
    return rounds[place]


def _step(run: Run, record: Record) -> list[bytes]:
    """The values of `append_step` as they are sent, each written by itself: every step does this.

    The rest of the record follows from the row: it is the newest, so that its digest is the head of the journal.
    """
    return [
        FLOAT(run.updated_at),
        BIGINT(run.deliveries),
        BIGINT(run.steps),
        BIGINT(run.suspects),
        BIGINT(run.tokens),
        FLOAT(run.dollars),
        run.head,
        run.digest,
        run.run_id.encode(),
        BIGINT(run.epoch),
        BIGINT(record.seq),
        record.kind.encode(),
        record.key.encode(),
        record.name.encode(),
        record.arguments,
        record.body.encode(),
    ]


def _one(extension: Extension) -> tuple[Any, ...]:
    run = extension.run
    fence = (run.run_id, extension.epoch, extension.before)
    return (*changeable(run), *fence, *msgspec.structs.astuple(extension.records[0]))


def _many(extensions: list[Extension]) -> tuple[Sequence[Any], ...]:
    rows = [
        (place, extension.run.run_id, extension.epoch, extension.before, *changeable(extension.run))
        for place, extension in enumerate(extensions)
    ]
    records = [
        (place, *msgspec.structs.astuple(record))
        for place, extension in enumerate(extensions)
        for record in extension.records
    ]
    columns = zip(*records, strict=True) if records else [()] * (len(Record.__struct_fields__) + 1)
    return (*zip(*rows, strict=True), *columns)
