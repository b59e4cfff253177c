"""A run as one file that can be carried elsewhere: its layout, its lines, and what a store makes of it.

Layout: JSON lines, UTF-8. First `export` (version of this layout, the run's id, name and state, and how many of each
line follow), then `run` (its row), a `record` for each entry of the journal, a `mail` for each entry of the mailbox, a
`blob` for each large value it refers to (its address, and the compressed bytes as the store keeps them), and `end` (how
many lines came before, and the SHA-256 over all their bytes). Bytes are base64, addresses hexadecimal. Nothing in it
chooses code: it is data that is compared with its own digests, and shown.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from perdure import clock
from perdure.errors import CheckpointCorrupt, RunImported, saved_steps
from perdure.records import FINISHED, Mail, Record, Run, RunState, WaitReason, sealed_run
from perdure.store import blobs
from perdure.store.chain import Prefix, sound_prefix
from perdure.store.lease import Park, read_park, write_park
from perdure.store.protocol import Whole
from perdure.telemetry.text import utc
from perdure.version import VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

LAYOUT: Final = 1
"""The version of the lines below."""

EPOCHS_BEYOND: Final = 1000
"""Elsewhere the run may have been handed out again, with higher epochs, but hardly so often."""

_UNDONE: Final = "undone"
"""The code of a run that failed and took its effects back."""

_ARTIFACT: Final = r'"digest":"([0-9a-f]{64})","size":\d'


class ExportLine(Struct, frozen=True, tag_field="line", tag="export"):
    """What the file is, and what follows."""

    version: int
    run_id: str
    name: str
    state: str
    records: int
    mail: int
    blobs: int
    exported_at: float
    perdure: str
    children: tuple[str, ...] = ()
    """Its child runs that were kept where it was exported; each is a file of its own."""
    undoings: tuple[str, ...] = ()
    """The runs that took its effects back, or were to; each is a file of its own."""


class RunLine(Struct, frozen=True, tag_field="line", tag="run"):
    """The run's row."""

    run: Run


class RecordLine(Struct, frozen=True, tag_field="line", tag="record"):
    """One entry of its journal."""

    record: Record


class MailLine(Struct, frozen=True, tag_field="line", tag="mail"):
    """One entry of its mailbox."""

    mail: Mail


class BlobLine(Struct, frozen=True, tag_field="line", tag="blob"):
    """One large value."""

    address: str
    stored: bytes


class EndLine(Struct, frozen=True, tag_field="line", tag="end"):
    """The proof that nothing is missing."""

    lines: int
    sha256: str


def lines_of(
    whole: Whole,
    load_blob: Callable[[bytes], bytes],
    *,
    children: Iterable[str] = (),
    undoings: Iterable[str] = (),
) -> Iterator[bytes]:
    """Every line of a run's file; large values are read one at a time."""
    addresses = addresses_of(whole, load_blob)
    first = ExportLine(
        version=LAYOUT,
        run_id=whole.run.run_id,
        name=whole.run.name,
        state=whole.run.state,
        records=len(whole.records),
        mail=len(whole.mail),
        blobs=len(addresses),
        exported_at=clock.wall_seconds(),
        perdure=VERSION,
        children=tuple(children),
        undoings=tuple(undoings),
    )
    proof = hashlib.sha256()
    count = 0
    for line in _body_lines(first, whole, addresses, load_blob):
        written = msgspec.json.encode(line) + b"\n"
        proof.update(written)
        count += 1
        yield written
    yield msgspec.json.encode(EndLine(count, proof.hexdigest())) + b"\n"


def _body_lines(
    first: ExportLine, whole: Whole, addresses: list[bytes], load_blob: Callable[[bytes], bytes]
) -> Iterator[Struct]:
    yield first
    yield RunLine(whole.run)
    yield from map(RecordLine, whole.records)
    yield from map(MailLine, whole.mail)
    for address in addresses:
        yield BlobLine(address.hex(), blobs.pack(load_blob(address))[1])


def addresses_of(whole: Whole, load_blob: Callable[[bytes], bytes]) -> list[bytes]:
    """Every large value the run refers to; artifacts of other runs among its values too, where they are kept."""
    found: dict[bytes, None] = {}

    def load(address: bytes) -> bytes:
        found[address] = None
        return load_blob(address)

    prefix = sound_prefix(Prefix(list(whole.records), ""), load)
    if prefix.problem:
        raise CheckpointCorrupt(
            f"Run {whole.run.name}: {prefix.problem}.",
            safe="nothing was exported.",
            hint=f"perdure verify; perdure repair {whole.run.name}",
        )
    for address in sorted(artifacts_in(whole.records) - found.keys()):
        try:
            load(address)
        except CheckpointCorrupt:
            del found[address]  # it only looks like one, or went with the run that kept it
    return list(found)


def artifacts_in(records: Iterable[Record]) -> set[bytes]:
    """The addresses of what looks like an artifact in the bodies of records."""
    return {bytes.fromhex(text) for record in records for text in re.findall(_ARTIFACT, record.body)}


def adopted(whole: Whole, *, exported_at: float, is_undone: bool = False) -> Whole:
    """The run as a store takes it in: a finished one as it is, any other parked until somebody asks for it by name.

    It may have gone further elsewhere: the first effect it reaches here that is not on record is in doubt. One that
    failed and whose effects were taken back goes on nowhere, so it is as good as finished.
    """
    run = whole.run
    is_undone = is_undone or read_park(run).code == _UNDONE
    if run.state in FINISHED or (run.state == RunState.FAILED and is_undone):
        return whole
    when = utc(exported_at)
    park = Park(
        code=RunImported.code,
        message=f"Run {run.name} was imported as it was on {when}; elsewhere it may have gone further.",
        safe=f"{saved_steps(run.steps)}; the first effect it reaches here is in doubt until it is settled.",
        hint=f"see that it is stopped there, then: perdure resume {run.name}",
    )
    return Whole(parked_beyond(run, park), whole.records, whole.mail)


def parked_beyond(run: Run, park: Park, *, heard: int = 0) -> Run:
    """The row of a run that comes in parked, in an epoch that no process elsewhere will reach.

    It may have performed one effect there that is not on record here: that one is suspect.
    """
    row = msgspec.structs.replace(
        run,
        state=RunState.WAITING,
        reason=WaitReason.PARKED,
        detail=write_park(park),
        epoch=run.epoch + EPOCHS_BEYOND,
        holder="",
        deliveries=0,
        suspects=run.suspects + 1,
        wake_at=0.0,
        heard=heard,
        turn=0,
    )
    return sealed_run(row)
