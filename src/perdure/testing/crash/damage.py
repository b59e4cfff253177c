"""What a disk may do to the files of an SQLite store: bits that flip, files that are cut; chosen by a seed alone.

The same seed harms the same place of the same files. Each kind of harm aims where it hurts: at what a record says, at
where a page keeps its structure, at any byte that is in use, at the end of a file.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from perdure.testing.crash.dice import Dice

KINDS: Final = ("value", "structure", "anywhere", "cut")
FLIPPED: Final = "bits flipped"
CUT: Final = "files cut"
NOTHING: Final = "nothing to damage"
DETECTED: Final = "damage detected"
HARMLESS: Final = "damage without harm"
REPAIRED: Final = "repaired"
PUT_BACK: Final = "put back"
NOTES: Final = {
    FLIPPED: "in a recorded value, in the structure of a page, or in any byte that is used",
    CUT: "at any length",
    NOTHING: "the kill came before there was a store, or before it held a value",
    DETECTED: "named by whoever read the store, who went no further",
    HARMLESS: "nobody needed what was damaged: every promise was kept",
    REPAIRED: "of those detected, with perdure repair; then the run went on",
    PUT_BACK: "of those detected, what repair could not save: from a copy",
}
"""What is counted of damage, and what each count means."""

_LOG_HEADER_BYTES, _FRAME_HEADER_BYTES = 32, 24
_LARGEST_PAGE: Final = 65536
_STRUCTURE_BYTES: Final = 40
_FILES: Final = ("", "-wal", "-mark")
_DATA: Final = ("", "-wal")
_VALUE: Final = b'"value":'


class Harm(Struct, frozen=True):
    """One damage that was done."""

    file: str
    what: str

    def __str__(self) -> str:
        return f"{self.what} of {self.file}"


def harm(store: Path, kind: str, seed: int) -> Harm | None:
    """Damage the files of a store once; None where they hold nothing that could be damaged so."""
    dice = Dice((1 + seed) * len(KINDS) + KINDS.index(kind))
    if kind == "value":
        return _flip_value(store, dice)
    file = _chosen(store, dice)
    if file is None:
        return None
    if kind == "cut":
        return _cut(file, dice)
    place = _structural(file, dice) if kind == "structure" else _used_byte(file, dice)
    return _flip(file, place, dice)


def settle_in_place(store: Path) -> None:
    """Bring the log into the database file, as a process does that closes the store; damage then meets rows."""
    import apsw

    connection = apsw.Connection(str(store))
    try:
        connection.set_busy_timeout(10_000)
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()  # the log is only found by reading
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        connection.close()


def copy_store(store: Path, folder: Path) -> None:
    """Keep what the files of a store are now."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in _files_of(store):
        shutil.copy2(file, folder / file.name)


def put_back(store: Path, folder: Path) -> None:
    """Make the files of a store what they were when they were copied."""
    for suffix in (*_FILES, "-shm"):
        store.with_name(store.name + suffix).unlink(missing_ok=True)
    for file in folder.iterdir():
        shutil.copy2(file, store.parent / file.name)


def differs(store: Path, folder: Path) -> bool:
    """Whether the files of a store are no longer what was copied."""
    return {file.name: file.read_bytes() for file in _files_of(store)} != {
        file.name: file.read_bytes() for file in folder.iterdir()
    }


def _files_of(store: Path) -> list[Path]:
    beside = [store.with_name(store.name + suffix) for suffix in _FILES]
    return [file for file in beside if file.exists()]


def _chosen(store: Path, dice: Dice) -> Path | None:
    """The database or its log, in proportion to their sizes."""
    beside = [store.with_name(store.name + suffix) for suffix in _DATA]
    files = [(file, written_bytes(file)) for file in beside if file.exists()]
    total = sum(size for _, size in files)
    place = dice.number(total) if total else 0
    for file, size in files:
        if place < size:
            return file
        place -= size
    return None


def written_bytes(file: Path) -> int:
    """Where what is written in a file of a store ends: a log was given room behind it, which is nothing but zeros."""
    return len(file.read_bytes().rstrip(b"\0")) if file.name.endswith("-wal") else file.stat().st_size


def pages_of(file: Path) -> tuple[int, int]:
    """Where the pages of a database begin, or the frames of its log, and from one to the next how many bytes it is."""
    with file.open("rb") as stream:
        header = stream.read(_LOG_HEADER_BYTES)
    if file.name.endswith("-wal"):
        return _LOG_HEADER_BYTES, int.from_bytes(header[8:12]) + _FRAME_HEADER_BYTES
    size = int.from_bytes(header[16:18])
    return 0, _LARGEST_PAGE if size == 1 else size


def _cut(file: Path, dice: Dice) -> Harm:
    length = dice.number(written_bytes(file))
    with file.open("r+b") as stream:
        stream.truncate(length)
    return Harm(file.name, f"everything after byte {length}")


def _structural(file: Path, dice: Dice) -> int:
    """Where a page says what it is and where its cells are; in the log, where a frame says so."""
    size = written_bytes(file)
    start, stride = pages_of(file)
    page = dice.number(max(1, (size - start) // stride))
    return min(size - 1, start + page * stride + dice.number(_STRUCTURE_BYTES))


def _used_byte(file: Path, dice: Dice) -> int:
    """A byte that is not zero: what is zero is mostly room that nothing uses."""
    content = file.read_bytes()[: written_bytes(file)]
    place = dice.number(len(content))
    for distance in range(len(content)):
        if content[(place + distance) % len(content)]:
            return (place + distance) % len(content)
    return place


def _flip_value(store: Path, dice: Dice) -> Harm | None:
    """Change what one record says that a call returned, so that it still reads like a record."""
    bodies = _bodies(store)
    if not bodies:
        return None
    body, value = dice.choice(bodies)
    letters = [place for place, letter in enumerate(value) if chr(letter).isalnum()]
    if not letters:
        return None
    for file in _files_of(store):
        found = file.read_bytes().rfind(body)
        if found >= 0:
            place = dice.choice(letters)
            return _flip(file, found + body.find(_VALUE + value) + len(_VALUE) + place, dice, bit=0)
    return None


def _bodies(store: Path) -> list[tuple[bytes, bytes]]:
    """The bodies of the records that hold a value, as far as they lie in one piece, and the value in each."""
    import apsw

    connection = apsw.Connection(str(store), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        query = "SELECT body FROM records WHERE kind IN ('step', 'receipt') AND length(body) < 1500 ORDER BY id"
        found = [body.encode() for (body,) in connection.execute(query)]
    finally:
        connection.close()
    fields = [(body, msgspec.json.decode(body, type=dict[str, msgspec.Raw])) for body in found]
    return [(body, bytes(named["value"])) for body, named in fields if "value" in named]


def _flip(file: Path, offset: int, dice: Dice, *, bit: int | None = None) -> Harm:
    flipped = dice.number(8) if bit is None else bit
    with file.open("r+b") as stream:
        stream.seek(offset)
        before = stream.read(1)[0]
        stream.seek(offset)
        stream.write(bytes([before ^ (1 << flipped)]))
    return Harm(file.name, f"bit {flipped} of byte {offset}")
