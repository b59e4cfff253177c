"""Reading a run's file with distrust: every line is proved before anything of it reaches a store."""

from __future__ import annotations

import hashlib
import math
import re
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TypeVar

import msgspec
from msgspec import Struct

from perdure import typed
from perdure.bodies import Ended, Started, read_body
from perdure.errors import CheckpointCorrupt, FormatTooNew, PerdureError
from perdure.records import COMPLETIONS, FINISHED, Kind, Record, Run, RunState, WaitReason
from perdure.store import blobs
from perdure.store.chain import Prefix, is_whole, is_whole_mail, refuse_newer, sound_prefix, trusted_prefix
from perdure.store.lease import Park
from perdure.store.portable import (
    LAYOUT,
    BlobLine,
    EndLine,
    ExportLine,
    MailLine,
    RecordLine,
    RunLine,
    artifacts_in,
)
from perdure.store.protocol import Whole

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_BYTES: Final = 2 * blobs.MAX_CONTENT_BYTES
_ADDRESS: Final = re.compile("[0-9a-f]{64}")
_REASONS: Final = frozenset({"", *WaitReason})
_HIGHEST: Final = 2**63
_COUNTS: Final = ("epoch", "deliveries", "steps", "suspects", "length", "heard", "tokens", "turn")
_FLOATS: Final = ("created_at", "updated_at", "wake_at", "dollars")

L = TypeVar("L", bound=Struct)


class Parcel:
    """A file that was read and verified to its end; its large values are read again when they are needed."""

    def __init__(self, file: BinaryIO, first: ExportLine, whole: Whole, places: dict[bytes, int]) -> None:
        self.first = first
        self.whole = whole
        self._file = file
        self._places = places

    def load_blob(self, address: bytes) -> bytes:
        """A large value, verified against its address."""
        return blobs.unpack(address, self._stored(address))

    def blobs(self) -> Iterator[tuple[bytes, bytes]]:
        """Every large value as the store keeps it, verified once more as it is handed over."""
        for address in self._places:
            self.load_blob(address)
            yield address, self._stored(address) or b""

    @property
    def depth(self) -> int:
        """How many runs are above this one: a child is taken in before the run that would otherwise start it again."""
        started: Started = read_body(self.whole.records[0])
        return len(started.lineage)

    @property
    def open_children(self) -> list[str]:
        """The children whose outcome an unfinished run still waits for, and that were kept where it comes from."""
        if self.whole.run.state in FINISHED:
            return []
        ended = {record.key for record in self.whole.records if record.kind in COMPLETIONS}
        waits = [record for record in self.whole.records if record.kind == Kind.WAIT and record.key not in ended]
        waited = [read_body(record).child for record in waits]
        return [child for child in waited if child in self.first.children]

    def _stored(self, address: bytes) -> bytes | None:
        if address not in self._places:
            return None
        self._file.seek(self._places[address])
        try:
            line = typed.read(self._file.readline(LINE_BYTES), BlobLine)
        except ValueError:
            return None
        return line.stored if line.address == address.hex() else None


def read_parcel(file: BinaryIO, name: str) -> Parcel:
    """Read a file to its end and prove every part of it; the first thing that is wrong is named."""
    lines = _Lines(file, name)
    first = _first(lines)
    run = lines.next(RunLine).run
    records = tuple(lines.next(RecordLine).record for _ in range(first.records))
    mail = tuple(lines.next(MailLine).mail for _ in range(first.mail))
    places: dict[bytes, int] = {}
    for _ in range(first.blobs):
        place = lines.place
        line = lines.next(BlobLine)
        if not _ADDRESS.fullmatch(line.address):
            raise lines.damaged("holds no address of a large value")
        places[bytes.fromhex(line.address)] = place
    lines.end()
    parcel = Parcel(file, first, Whole(run, records, mail), places)
    try:
        _prove(parcel)
    except _Flaw as flaw:
        raise damaged(name, str(flaw)) from flaw
    return parcel


def damaged(name: str, why: str) -> CheckpointCorrupt:
    """The refusal of a file."""
    return CheckpointCorrupt(
        f"{name} {why.rstrip('.')}.",
        safe="nothing was imported.",
        hint="export the run again, or copy the file again: perdure export RUN",
    )


class _First(Struct, frozen=True):
    line: str
    version: int


class _Flaw(Exception):
    """What is wrong with a file whose bytes are as they were written."""


class _Lines:
    """The lines of a file, each decoded to what must stand there, and the digest over them."""

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._count = 0
        self._proof = hashlib.sha256()
        self.place = 0

    def next(self, kind: type[L]) -> L:
        return self.accepted(self.raw(), kind)

    def accepted(self, raw: bytes, kind: type[L]) -> L:
        decoded = self.decoded(raw, kind)
        self._proof.update(raw)
        self._count += 1
        return decoded

    def raw(self) -> bytes:
        raw = self._file.readline(LINE_BYTES)
        if not raw.endswith(b"\n"):
            raise self.damaged("is cut off" if len(raw) < LINE_BYTES else "is too long")
        self.place += len(raw)
        return raw

    def decoded(self, raw: bytes, kind: type[L]) -> L:
        try:
            return typed.read(raw, kind)
        except (ValueError, RecursionError) as error:
            raise self.damaged(f"is not what must stand there ({error})") from error

    def end(self) -> None:
        expected = EndLine(self._count, self._proof.hexdigest())
        if self.raw() != msgspec.json.encode(expected) + b"\n":
            raise self.damaged("does not agree with the lines before it: the file was changed")
        if self._file.read(1):
            raise damaged(self._name, "goes on after its end")

    def damaged(self, why: str) -> CheckpointCorrupt:
        return damaged(self._name, f"cannot be trusted: line {self._count + 1} {why}")


def _first(lines: _Lines) -> ExportLine:
    raw = lines.raw()
    try:
        known = typed.read(raw, _First)
    except (ValueError, RecursionError) as error:
        raise lines.damaged("does not begin an exported run") from error
    if known.line == "export" and known.version > LAYOUT:
        raise FormatTooNew(
            f"The file was written by a newer perdure (layout {known.version}; this one knows up to {LAYOUT}).",
            safe="nothing was imported.",
            hint="pip install --upgrade perdure",
        )
    return lines.accepted(raw, ExportLine)


def _prove(parcel: Parcel) -> None:
    """Everything that a store's own rows would be asked, and whether the parts belong together."""
    first, whole = parcel.first, parcel.whole
    run = whole.run
    if not is_whole(run) or (run.run_id, run.name, run.state) != (first.run_id, first.name, first.state):
        raise _Flaw("is damaged: the digest of the run's row does not match")
    _prove_fields(whole)
    prefix = trusted_prefix(run, map(msgspec.structs.astuple, whole.records))
    if prefix.problem:
        raise _Flaw(f"is damaged: {prefix.problem}")
    refuse_newer(run, prefix.records)
    _prove_blobs(parcel, prefix)
    _prove_story(run, whole.records)
    for mail in whole.mail:
        if mail.run_id != run.run_id or not is_whole_mail(mail) or not _is_json(mail.body, Any):
            raise _Flaw("is damaged: the digest of a mail does not match")


def _prove_fields(whole: Whole) -> None:
    """Digests can be made by anybody: what no perdure would write is refused before it can trouble a reader."""
    run = whole.run
    counts = [getattr(run, name) for name in _COUNTS]
    counts += [record.epoch for record in whole.records] + [mail.taken for mail in whole.mail]
    floats = [getattr(run, name) for name in _FLOATS] + [record.at for record in whole.records]
    floats += [mail.at for mail in whole.mail]
    is_sound = (
        bool(run.run_id)
        and (run.run_id + run.name + run.queue + run.tenant + run.version).isprintable()
        and -_HIGHEST <= run.priority < _HIGHEST
        and run.state in frozenset(RunState)
        and run.reason in _REASONS
        and all(0 <= count < _HIGHEST for count in counts)
        and all(map(math.isfinite, floats))
        and (not run.tags or _is_json(run.tags, dict[str, str]))
        and (not run.detail or _is_json(run.detail, Park))
    )
    if not is_sound:
        raise _Flaw("cannot be trusted: the run's row holds what perdure never writes")


def _prove_blobs(parcel: Parcel, prefix: Prefix) -> None:
    wanted: set[bytes] = set()

    def load(address: bytes) -> bytes:
        wanted.add(address)
        return parcel.load_blob(address)

    sound = sound_prefix(prefix, load)
    if sound.problem:
        raise _Flaw(f"is damaged: {sound.problem}")
    stored = {address for address, _ in _verified_blobs(parcel)}
    if stored - wanted - artifacts_in(prefix.records):
        raise _Flaw("cannot be trusted: it holds large values that the run does not refer to")


def _verified_blobs(parcel: Parcel) -> Iterator[tuple[bytes, bytes]]:
    try:
        yield from parcel.blobs()
    except PerdureError as error:
        raise _Flaw(f"is damaged: {error.message}") from error


def _prove_story(run: Run, records: tuple[Record, ...]) -> None:
    """The row says what the journal says."""
    started: Started = read_body(records[0])
    last = read_body(records[-1]) if records[-1].kind == Kind.ENDED else None
    is_completed = isinstance(last, Ended) and last.state == RunState.COMPLETED
    if started.agent != run.agent or (run.state == RunState.COMPLETED and not is_completed):
        raise _Flaw("cannot be trusted: the run's row says something else than its journal")


def _is_json(text: str, kind: Any) -> bool:  # noqa: ANN401 - whatever msgspec decodes to
    try:
        typed.read(text, kind)
    except (ValueError, RecursionError):
        return False
    return True
