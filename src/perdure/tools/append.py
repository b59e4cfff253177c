"""`append_once`: text at the end of a file, once for each effect, whatever dies in between.

Beside `name` stand two files. `.name.perdure-keys` is the lock of all writers and has one line for every append that
is done: the digest of its key, where it begins, how long it is. `.name.perdure-pending` exists while one is being
done, and holds its key and content, ended by a digest. Under the lock, in this order, each step synced:

    finish what a dead writer left pending ─ is the key listed? ─ write pending ─ append ─ list the key ─ drop pending

A pending file that is not whole was never acted on. One that is whole is carried out to its end by whoever comes next,
beginning where the dead writer stopped. So the file itself honours keys, and the effect is sent again under its own.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import DecodeError, Struct
from msgspec.json import decode, encode

from perdure.engine.effect import effect
from perdure.engine.values import current
from perdure.errors import UsageError
from perdure.tools.disk import Unsynced, checked_path, lock_within, opened, resolved, sync, write_all

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCK_SECONDS: Final = 30.0
"""How long to wait for other writers; one that is frozen holds the lock until it thaws or dies."""


@dataclass(frozen=True, slots=True)
class Appended:
    """Where in the file the text stands."""

    path: str
    offset_bytes: int
    size_bytes: int


class Pending(Struct, frozen=True):
    """An append that is being done."""

    key: str
    offset: int
    content: bytes


def append_once(path: str | os.PathLike[str], line: str | bytes) -> Appended:
    """Append a line to a file, exactly once for each call of a run.

    `path` names the file, which is made if it does not exist; its folder must. `line` gets a line end if it has none.

    Guaranteed: whenever the process is killed, after the resume the line is there once and whole; a torn line is
    completed by the next writer; lines of several `append_once` at once never mix (they take a lock); a process that
    was frozen and thaws later appends nothing a second time; when this returns, the line is on the device.

    Not guaranteed: programs that append to the same file without the lock keep their own lines, but if one writes right
    behind a torn piece, that piece stays and the whole line follows. The two hidden files beside the file remember what
    was appended: delete them only when no run that appends here is unfinished.
    """
    place = checked_path(path, tool="append_once")
    if not isinstance(line, (str, bytes)) or not line:
        raise UsageError(
            f"append_once: line={line!r} is not a line.", safe="nothing was written.", hint="pass text or bytes"
        )
    return _append_once(place, line)


@effect(
    name="append_once",
    keyed=True,
    key_ttl=float("inf"),
    in_flight_seconds=0,
    certain=(OSError, UsageError),
    ambiguous=(Unsynced,),
)
def _append_once(path: str, line: str | bytes) -> Appended:
    target = resolved(path, tool="append_once")
    content = line.encode() if isinstance(line, str) else line
    content = content if content.endswith(b"\n") else content + b"\n"
    key = sha256(current().key.encode()).hexdigest()[:32]
    with _writers_lock(target) as keys:
        left = _read_pending(target)
        if left is not None:
            _finish(target, keys, left)
        done = _listed(keys, key)
        if done is None:
            pending = Pending(key, _size(target), content)
            _begin(target, pending)
            done = _finish(target, keys, pending)
    return Appended(str(target), *done)


@contextlib.contextmanager
def _writers_lock(target: Path) -> Iterator[int]:
    with opened(_beside(target, "keys"), os.O_RDWR | os.O_CREAT | os.O_APPEND) as keys:
        if not lock_within(keys, LOCK_SECONDS):
            raise TimeoutError(f"another process has held the lock on {target} for {LOCK_SECONDS:g} s")
        yield keys


def _begin(target: Path, pending: Pending) -> None:
    """Put down what is about to be appended."""
    body = encode(pending)
    with opened(_beside(target, "pending"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) as descriptor:
        try:
            write_all(descriptor, body + b"\n" + sha256(body).hexdigest().encode())
            os.fsync(descriptor)
        except OSError:
            _beside(target, "pending").unlink()
            raise
    sync(target.parent)


def _read_pending(target: Path) -> Pending | None:
    """What a dead writer left; None where it left nothing, or had not finished putting it down."""
    try:
        body, _, digest = _beside(target, "pending").read_bytes().rpartition(b"\n")
    except FileNotFoundError:
        return None
    if sha256(body).hexdigest().encode() != digest:
        return None
    with contextlib.suppress(DecodeError):
        return decode(body, type=Pending)
    return None


def _finish(target: Path, keys: int, pending: Pending) -> tuple[int, int]:
    """Carry a pending append to its end, from wherever it stopped; its place in the file."""
    _drop_torn_line(keys)
    done = _listed(keys, pending.key)
    if done is None:
        done = _completed(target, pending), len(pending.content)
        try:
            write_all(keys, f"{pending.key} {done[0]} {done[1]}\n".encode())
            os.fsync(keys)
        except OSError as error:
            raise Unsynced(
                error.errno, f"{target}: the line is there, but its key could not be kept: {error}"
            ) from error
    _beside(target, "pending").unlink()
    return done


def _completed(target: Path, pending: Pending) -> int:
    """Write what is missing of a pending append; where it begins."""
    content = pending.content
    with opened(target, os.O_RDWR | os.O_CREAT | os.O_APPEND) as descriptor:
        os.lseek(descriptor, pending.offset, os.SEEK_SET)
        tail = _read_rest(descriptor)
        found = tail.find(content)
        if found >= 0:
            _sync_or_doubt(descriptor, target)
            return pending.offset + found
        there = len(tail) if content.startswith(tail) else 0
        size = os.fstat(descriptor).st_size
        try:
            write_all(descriptor, content[there:])
        except OSError:
            _take_back(target, descriptor, size - there)
            raise
        end = os.lseek(descriptor, 0, os.SEEK_CUR)
        _sync_or_doubt(descriptor, target)
    sync(target.parent)
    return end - len(content)


def _take_back(target: Path, descriptor: int, size: int) -> None:
    """The line has no room: leave the file as it was, so that nothing happened."""
    try:
        os.ftruncate(descriptor, size)
        os.fsync(descriptor)
        _beside(target, "pending").unlink()
    except OSError as error:
        raise Unsynced(
            error.errno, f"{target}: part of a line was written and could not be removed: {error}"
        ) from error


def _sync_or_doubt(descriptor: int, target: Path) -> None:
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise Unsynced(error.errno, f"{target}: the line was written, but it could not be synced: {error}") from error


def _drop_torn_line(keys: int) -> None:
    """A key is listed only with its line end; what a killed writer left of one is not a key."""
    listed = _read_keys(keys)
    whole = listed.rfind(b"\n") + 1
    if whole != len(listed):
        os.ftruncate(keys, whole)


def _listed(keys: int, key: str) -> tuple[int, int] | None:
    """Where the append with this key stands, if it was done."""
    wanted = f"{key} ".encode()
    for line in _read_keys(keys).splitlines(keepends=True):
        if line.startswith(wanted) and line.endswith(b"\n"):
            _, offset, size = line.split()
            return int(offset), int(size)
    return None


def _read_keys(keys: int) -> bytes:
    os.lseek(keys, 0, os.SEEK_SET)
    return _read_rest(keys)


def _read_rest(descriptor: int) -> bytes:
    with open(descriptor, "rb", closefd=False, buffering=0) as file:
        return file.read()


def _size(target: Path) -> int:
    try:
        return target.stat().st_size
    except FileNotFoundError:
        return 0


def _beside(target: Path, what: str) -> Path:
    return target.with_name(f".{target.name}.perdure-{what}")
