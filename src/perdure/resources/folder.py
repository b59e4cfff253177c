"""Looking at a directory: everything in it as one listing, and the contents of files where they are to be kept.

Links are recorded as links and never followed. What is neither file, directory nor link (a socket, a pipe) is left out.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from perdure import clock, typed
from perdure.bodies import Listed, Listing
from perdure.errors import UnstorableValue

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Sequence

UNFINISHED: Final = ".perdure-new-"
"""Begins the name of a file that is being written back; whoever finds one was there when that was interrupted."""

_OWN: Final = rf"{re.escape(UNFINISHED)}|[^/]*\.perdure-\d+(-\d+)?\Z"
"""What a restoration is writing, or has put aside, is no part of a directory."""

_MODE: Final = 0o777
_SETTLED_SECONDS: Final = 2.0
"""A file modified later than this before it was read may change again without its time showing it."""

_MEGABYTE: Final = 1024 * 1024
_encode: Final = msgspec.json.Encoder().encode


class Keep(Struct, frozen=True):
    """Contents are wanted too: at most so many bytes in all, without those that are kept already."""

    size_limit: int
    stored: Container[str]


class Memory:
    """What files were found to hold when they were last read, so that unchanged ones are not read again."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[tuple[int, ...], str]] = {}

    def recall(self, path: str, status: os.stat_result) -> str:
        """The digest of this file's content; empty where it must be read."""
        known = self._known.get(path)
        return known[1] if known is not None and known[0] == _signs(status) else ""

    def note(self, path: str, status: os.stat_result, digest: str, *, at: float) -> None:
        """The file held this; not worth remembering where it changed a moment ago, for it may do so again unseen."""
        if max(status.st_mtime, status.st_ctime) < at - _SETTLED_SECONDS:
            self._known[path] = (_signs(status), digest)
        else:
            self._known.pop(path, None)


class Scan:
    """One look at a directory or a file: its listing, and the contents that were not kept before."""

    def __init__(self, keep: Keep | None = None, memory: Memory | None = None) -> None:
        self.contents: dict[str, bytes] = {}
        self._keep = keep
        self._memory = memory or Memory()
        self._size = 0

    def directory(self, root: Path, ignore: Sequence[str]) -> Listing:
        """Everything below `root`, in the order of the paths."""
        entries = []
        for path, found in _walk(root, ignore):
            with_content = self._entry(path, found)
            if with_content is not None:
                entries.append(with_content)
        return Listing(tuple(sorted(entries, key=lambda entry: entry.path)))

    def file(self, path: Path) -> Listing:
        """A lone file."""
        status = path.stat()
        digest, size = self._content(str(path), status)
        return Listing((Listed("", "file", status.st_mode & _MODE, digest, size),))

    def _entry(self, path: str, found: os.DirEntry[str]) -> Listed | None:
        try:
            status = found.stat(follow_symlinks=False)
            mode = status.st_mode
            if stat.S_ISLNK(mode):
                return Listed(path, "link", content=_storable(os.readlink(found.path)))  # noqa: PTH115
            if stat.S_ISDIR(mode):
                return Listed(path, "dir", mode & _MODE)
            if stat.S_ISREG(mode):
                digest, size = self._content(found.path, status)
                return Listed(path, "file", mode & _MODE, digest, size)
        except FileNotFoundError:
            return None  # it went away while we looked
        return None

    def _content(self, path: str, status: os.stat_result) -> tuple[str, int]:
        """The digest and the size of what the file holds; read once, so that both are of one moment."""
        self._weigh(status.st_size)
        recalled = self._memory.recall(path, status)
        if recalled and (self._keep is None or recalled in self._keep.stored or recalled in self.contents):
            return recalled, status.st_size
        at = clock.wall_seconds()
        with Path(path).open("rb") as opened:
            if self._keep is None:
                digest = hashlib.file_digest(opened, "sha256").hexdigest()
                size = opened.tell()
            else:
                content = opened.read(self._keep.size_limit + 1)
                digest, size = hashlib.sha256(content).hexdigest(), len(content)
                self._weigh(size - status.st_size)
                if digest not in self._keep.stored:
                    self.contents[digest] = content
        self._memory.note(path, status, digest, at=at)
        return digest, size

    def _weigh(self, size: int) -> None:
        self._size += size
        if self._keep is not None and self._size > self._keep.size_limit:
            raise too_large(self._size, self._keep.size_limit)


def too_large(size: int, limit: int) -> UnstorableValue:
    """The refusal to keep more than was agreed."""
    return UnstorableValue(
        f"its content is {size / _MEGABYTE:.1f} MB or more, the limit is {limit / _MEGABYTE:g} MB",
        safe="every step before is saved.",
        hint="raise size_limit= (in bytes), or leave files out with ignore=",
    )


def packed(listing: Listing) -> bytes:
    """A listing as it is stored; its digest is the fingerprint of the directory."""
    return _encode(listing)


def unpacked(content: bytes) -> Listing:
    """The listing in a stored one; `ValueError` where it is none, or would lead out of its directory."""
    listing = typed.read(content, Listing)
    folders = {""}
    for entry in listing.entries:
        parent, _, name = entry.path.rpartition("/")
        is_lone = entry.path == "" and len(listing.entries) == 1 and entry.kind == "file"
        if not is_lone and (name in {"", ".", ".."} or "\0" in name or parent not in folders):
            raise ValueError(f"a listing that leads out of its directory: {entry.path!r}")
        if entry.kind == "dir":
            folders.add(entry.path)
    return listing


def listing_words(listing: Listing, digest: str) -> str:
    """A directory in words."""
    files = [entry for entry in listing.entries if entry.kind != "dir"]
    size = sum(entry.size for entry in files)
    return f"{len(files):,} file{'' if len(files) == 1 else 's'}, {size:,} bytes, digest {digest[:8]}"


def _walk(root: Path, ignore: Sequence[str]) -> Iterator[tuple[str, os.DirEntry[str]]]:
    is_ignored = re.compile("|".join([_OWN, *map(fnmatch.translate, ignore)])).match
    pending: list[tuple[str, str]] = [("", str(root))]
    while pending:
        inside, folder = pending.pop()
        try:
            with os.scandir(folder) as found:
                entries = list(found)
        except FileNotFoundError:
            if not inside:
                raise
            continue
        for entry in entries:
            path = _storable(f"{inside}/{entry.name}" if inside else entry.name)
            if is_ignored(entry.name) or (inside and is_ignored(path)):
                continue
            yield path, entry
            if entry.is_dir(follow_symlinks=False):
                pending.append((path, entry.path))


def _storable(path: str) -> str:
    try:
        path.encode()
    except UnicodeEncodeError:
        raise OSError(f"the name {path!r} is not text") from None
    return path


def _signs(status: os.stat_result) -> tuple[int, ...]:
    """What changes when a file does; short of reading it."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def listing_changes(before: Listing, after: Listing) -> list[str]:
    """What differs between two listings, entry by entry, in words."""
    was: dict[str, Any] = {entry.path: entry for entry in before.entries}
    now: dict[str, Any] = {entry.path: entry for entry in after.entries}
    changes = []
    for path in sorted(was.keys() | now.keys()):
        if path not in now:
            changes.append(f"{path} is gone")
        elif path not in was:
            changes.append(f"{path} is new")
        elif (was[path].kind, was[path].content) != (now[path].kind, now[path].content):
            changes.append(f"{path} has changed")
        elif was[path] != now[path]:
            changes.append(f"{path} has other permissions")
    return changes
