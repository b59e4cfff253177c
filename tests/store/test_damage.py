"""Flipped bits and cut files: whatever a disk does to a store is named, or does not matter. Nothing is silently wrong.

Each case damages a copy at one place, then looks at it as a reader and as a worker would. A value that comes back must
be one that was written. One that is older than the last acknowledged, or absent, must have been named: by an error, by
a finding of `check`, or as a recorded loss.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from typing import TYPE_CHECKING, Any, Final

import apsw
import msgspec
import pytest
from msgspec import Struct

from perdure.errors import CheckpointCorrupt, PerdureError
from perdure.records import FINISHED, Mail, Record, Run, RunState
from perdure.store import blobs
from perdure.store.chain import is_whole, trusted_prefix, verified_run
from perdure.store.protocol import Finding
from perdure.store.sqlite import SqliteStore
from perdure.testing.crash.damage import pages_of, written_bytes
from tests.store.journals import claimed, created, ending, held_run, intent, land, large_step, letter, new_run, step
from tests.summary import note

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from perdure.records import Append

CHUNKS: Final = [0, *(pytest.param(chunk, marks=pytest.mark.torture) for chunk in range(1, 10))]
FLIPS, HEADER_FLIPS, CUTS = 50, 20, 20
"""Of each kind in each chunk. In all, in the database and as often in its log: 500 flips anywhere, 200 where pages keep
their structure, 200 cuts."""


class Original(Struct):
    """What was acknowledged, and every earlier state of it."""

    folder: Path
    rows: dict[str, list[Run]]
    journals: dict[str, list[Record]]
    mail: dict[str, list[Mail]]
    blobs: dict[bytes, bytes]

    def newest(self, run_id: str) -> Run:
        return self.rows[run_id][-1]


class Author:
    """Writes a store and remembers everything it was acknowledged."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store = SqliteStore(path)
        self.original = Original(path.parent, {}, {}, {}, {})

    def reopen(self) -> None:
        self.store.close()
        self.store = SqliteStore(self.path)

    def create(self, run_id: str) -> None:
        self._saw(created(self.store, run_id, at=100.0 + len(self.original.rows)))

    def claim(self, run_id: str) -> None:
        self._saw(claimed(self.store, run_id))

    def append(self, one: Append) -> None:
        self._saw(land(self.store, one))
        for digest, stored in one.blobs:
            self.original.blobs[digest] = blobs.unpack(digest, stored)

    def row(self, run_id: str) -> Run:
        return self.original.newest(run_id)

    def finish(self) -> Original:
        for run_id in self.original.rows:
            self.original.journals[run_id] = self.store.load_journal(run_id)
            self.original.mail[run_id] = self.store.read_mail(run_id)
        return self.original

    def _saw(self, run: Run) -> None:
        self.original.rows.setdefault(run.run_id, []).append(run)


def write_history(author: Author, names: str, generator: random.Random) -> None:
    """Runs in every state, with mail taken and not taken, and with large values."""
    for number, letters in enumerate(names):
        run_id = f"run-{letters}"
        author.create(run_id)
        if number % 4 == 3:
            continue
        author.claim(run_id)
        for _ in range(2 + number % 5):
            author.append(step(author.row(run_id), value=f'"{generator.randbytes(40).hex()}"'))
        if number % 3 == 0:
            author.append(large_step(author.row(run_id), generator.randbytes(9000)))
        first, _ = author.store.post(letter(run_id)), author.store.post(letter(run_id, body='"later"'))
        author.append(intent(author.row(run_id), taken=(first.mail_id,)))
        if number % 2:
            author.append(ending(author.row(run_id), (RunState.COMPLETED, RunState.FAILED)[number % 4 // 2]))


@pytest.fixture(scope="module", params=["in the database", "in the log"])
def original(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Original:
    generator = random.Random(1)
    author = Author(tmp_path_factory.mktemp("written") / "perdure.db")
    write_history(author, "abcdefgh", generator)
    author.reopen()
    write_history(author, "ijklmnop", generator)
    if request.param == "in the database":
        author.reopen()
    written = author.finish()
    written.folder = tmp_path_factory.mktemp("original")
    if request.param == "in the database":
        author.store.close()
    for name in ("perdure.db", "perdure.db-wal", "perdure.db-mark"):
        with contextlib.suppress(FileNotFoundError):
            shutil.copy2(author.path.with_name(name), written.folder / name)
    author.store.close()
    return written


class Damage:
    """One damaged copy and what became of it."""

    def __init__(self, original: Original, folder: Path) -> None:
        self.original = original
        self.folder = folder
        self.named: list[str] = []
        self.missing: list[str] = []
        self.wrong: list[str] = []

    def restore(self) -> None:
        """An undamaged copy, in a folder nothing else remembers."""
        shutil.rmtree(self.folder, ignore_errors=True)
        shutil.copytree(self.original.folder, self.folder)

    def look_as_reader(self) -> None:
        """As `perdure verify` and `perdure show` do."""
        with self._naming("open"), contextlib.closing(self._open(create=False)) as store:
            for found in store.check():
                if isinstance(found, Finding):
                    self.named.append(f"{found.where}: {found.what}")
                else:
                    self._compare_row(found.run_id, found)
            self._read_everything(store)

    def look_as_worker(self) -> None:
        """As a process does that would go on with the work."""
        with self._naming("open"), contextlib.closing(self._open(create=True)) as store:
            with self._naming("losses"):
                self.named.extend(f"loss {loss.expected - loss.found}" for loss in store.losses())
            with self._naming("join"):
                store.join()
            self._read_everything(store)
            for run_id in self.original.rows:
                with self._naming("create_run"):
                    self._compare_row(run_id, store.create_run(*new_run(run_id, at=9.0)))

    def _open(self, *, create: bool) -> SqliteStore:
        return SqliteStore(self.folder / "perdure.db", create=create)

    @contextlib.contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        try:
            yield
        except PerdureError as error:
            self.named.append(f"{what}: {error}")

    def _read_everything(self, store: SqliteStore) -> None:
        original = self.original
        with self._naming("list_runs"):
            listed = {run.run_id: run for run in store.list_runs()}
            for run_id in listed.keys() | original.rows.keys():
                self._compare_row(run_id, listed.get(run_id))
        for run_id in original.rows:
            with self._naming("read_run"):
                self._compare_row(run_id, store.read_run(run_id))
            with self._naming("load_journal"):
                self._compare(f"journal of {run_id}", original.journals[run_id], store.load_journal(run_id))
            with self._naming("read_mail"):
                self._compare(f"mail of {run_id}", original.mail[run_id], store.read_mail(run_id))
        for digest, content in original.blobs.items():
            with self._naming("load_blob"):
                if store.load_blob(digest) != content:
                    self.wrong.append(f"blob {digest.hex()}")

    def _compare_row(self, run_id: str, found: Run | None) -> None:
        known = self.original.rows.get(run_id, [])
        if found is None:
            self.missing.append(f"run {run_id}")
        elif found not in known:
            self._compare_parked(run_id, found, known)
        elif found != known[-1]:
            self.missing.append(f"newest row of {run_id}")

    def _compare_parked(self, run_id: str, found: Run, known: list[Run]) -> None:
        """A recorded loss parks what was unfinished; a run whose creation was lost may be created anew."""
        is_new = found.created_at == 9.0 and found.length == 1
        is_parked = any(
            (row.length, row.head, row.name, row.arguments) == (found.length, found.head, found.name, found.arguments)
            and row.state not in FINISHED
            for row in known
        )
        has_loss = any(name.startswith("loss") for name in self.named)
        if has_loss and (is_new or (is_parked and found.suspects)):
            self.missing.append(f"newest row of {run_id}")
        else:
            self.wrong.append(f"row of {run_id}: {found}")

    def _compare(self, what: str, written: list[Any], found: list[Any]) -> None:
        """A journal may only end earlier than it did. Mail may be absent, or not be taken yet."""
        if found == written:
            return
        bodies = [(mail.mail_id, mail.body) for mail in written if isinstance(mail, Mail)]
        is_older_mail = all(
            one in written or (isinstance(one, Mail) and not one.taken and (one.mail_id, one.body) in bodies)
            for one in found
        )
        if found == written[: len(found)] or (bodies and is_older_mail):
            self.missing.append(what)
        else:
            self.wrong.append(f"{what}: {found}")

    @property
    def silent(self) -> list[str]:
        """What came back wrong, or was gone and nobody said so."""
        return self.wrong + ([] if self.named else self.missing)


def assert_nothing_silent(original: Original, folder: Path, seed: str, count: int, harm: Any) -> None:
    generator = random.Random(seed)
    unharmed = 0
    for number in range(count):
        damage = Damage(original, folder)
        damage.restore()
        description = harm(folder, generator)
        shutil.copytree(folder, folder.with_name("reader"))
        worker, damage.folder = damage.folder, folder.with_name("reader")
        damage.look_as_reader()
        shutil.rmtree(damage.folder)
        assert not damage.silent, f"seed {seed!r}, case {number}, {description}: reader saw {damage.silent}"
        damage.folder, damage.named, damage.missing = worker, [], []
        damage.look_as_worker()
        assert not damage.silent, f"seed {seed!r}, case {number}, {description}: worker saw {damage.silent}"
        unharmed += not damage.named
    note("damaged stores", trials=count, landed={KINDS[harm]: count}, planned=count)
    assert unharmed < count  # the damage is real


def a_file(folder: Path, generator: random.Random) -> Path:
    """The database or its log, in proportion to their sizes."""
    files = [file for file in (folder / "perdure.db", folder / "perdure.db-wal") if file.exists()]
    return generator.choices(files, [written_bytes(file) for file in files])[0]


def flip(file: Path, offset: int, bit: int) -> str:
    content = bytearray(file.read_bytes())
    content[offset] ^= 1 << bit
    file.write_bytes(content)
    return f"bit {bit} of byte {offset} of {file.name} flipped"


def flip_anywhere(folder: Path, generator: random.Random) -> str:
    file = a_file(folder, generator)
    return flip(file, generator.randrange(written_bytes(file)), generator.randrange(8))


def flip_structure(folder: Path, generator: random.Random) -> str:
    """Where a page says what it is and where its cells are; in the log, where a frame says so."""
    file = a_file(folder, generator)
    start, size = pages_of(file)
    page = generator.randrange(max(1, (written_bytes(file) - start) // size))
    header = 100 if page == 0 and file.name == "perdure.db" else 0
    return flip(file, start + page * size + header + generator.randrange(40), generator.randrange(8))


def cut(folder: Path, generator: random.Random) -> str:
    file = a_file(folder, generator)
    length = generator.randrange(written_bytes(file))
    with file.open("r+b") as stream:
        stream.truncate(length)
    return f"{file.name} cut to {length} bytes"


KINDS: Final = {flip_anywhere: "flipped bits", flip_structure: "flipped bits", cut: "cut files"}


@pytest.mark.parametrize("field", Run.__struct_fields__)
@pytest.mark.parametrize("value", [None, 7, 2.5, b"bytes", "text", -1])
def test_row_of_any_shape_is_damage_and_not_a_crash(original: Original, field: str, value: object) -> None:
    """What SQLite makes of a damaged page may be of any type, whatever the table says."""
    run = original.newest("run-a")
    if getattr(run, field) == value:
        return
    damaged = msgspec.structs.replace(run, **{field: value})
    assert not is_whole(damaged)
    with pytest.raises(CheckpointCorrupt):
        verified_run(damaged)
    rows = [msgspec.structs.astuple(record) for record in original.journals["run-a"]]
    prefix = trusted_prefix(damaged, rows)
    assert bool(prefix.problem) == (field in {"run_id", "length", "head"})


@pytest.mark.parametrize("column", range(len(Record.__struct_fields__)))
@pytest.mark.parametrize("value", [None, 7.5, b"bytes", "text", -1])
def test_record_of_any_shape_is_damage_and_not_a_crash(original: Original, column: int, value: object) -> None:
    run = original.newest("run-a")
    rows = [msgspec.structs.astuple(record) for record in original.journals["run-a"]]
    rows[2] = (*rows[2][:column], value, *rows[2][column + 1 :])
    prefix = trusted_prefix(run, rows)
    assert (len(prefix.records), bool(prefix.problem)) == (2, True)


def test_undamaged_copy_is_whole(original: Original, tmp_path: Path) -> None:
    damage = Damage(original, tmp_path / "copy")
    damage.restore()
    damage.look_as_reader()
    damage.look_as_worker()
    assert (damage.named, damage.missing, damage.wrong) == ([], [], [])
    assert len(original.rows) == 16
    assert any(mail.taken for mails in original.mail.values() for mail in mails)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_flipped_bit_is_never_silent(original: Original, tmp_path: Path, chunk: int) -> None:
    assert_nothing_silent(original, tmp_path / "copy", f"flip-{chunk}", FLIPS, flip_anywhere)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_flipped_bit_in_the_structure_is_never_silent(original: Original, tmp_path: Path, chunk: int) -> None:
    assert_nothing_silent(original, tmp_path / "copy", f"structure-{chunk}", HEADER_FLIPS, flip_structure)


@pytest.mark.parametrize("chunk", CHUNKS)
def test_cut_file_is_never_silent(original: Original, tmp_path: Path, chunk: int) -> None:
    assert_nothing_silent(original, tmp_path / "copy", f"cut-{chunk}", CUTS, cut)


@pytest.mark.parametrize("number", [3, 63, 64, 65, 150])
def test_every_record_before_one_that_cannot_be_read_is_trusted(number: int, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "perdure.db")
    run = held_run(store)
    while run.length < 200:
        run = land(store, step(run))
    damaging = apsw.Connection(str(store.path))
    damaging.execute("UPDATE records SET body = CAST(x'ff' AS TEXT) WHERE seq = ?", (number,))
    damaging.close()
    with pytest.raises(CheckpointCorrupt, match=f"record {number} cannot be read") as corrupt:
        store.load_journal("run-1")
    assert corrupt.value.safe == f"records 0 to {number - 1} are trusted."
    store.close()
