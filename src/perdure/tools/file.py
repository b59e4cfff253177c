"""`write_file`: a file has its old content or its new, whatever dies in between, and its content tells which."""

from __future__ import annotations

import contextlib
import os
import stat
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from perdure import clock
from perdure.engine.effect import effect
from perdure.engine.settle import Intent, Verdict, cannot_tell, did_not_happen, happened
from perdure.errors import UsageError
from perdure.tools.disk import Unsynced, checked_path, opened, resolved, sync, try_lock, write_all

_MODE_BITS: Final = 0o7777


@dataclass(frozen=True, slots=True)
class Written:
    """What a file holds now."""

    path: str
    size_bytes: int
    sha256: str


def write_file(path: str | os.PathLike[str], content: str | bytes, *, mode: int | None = None) -> Written:
    """Make a file hold exactly this content.

    `path` names the file; its folder must exist, links are followed. `content` is text (stored as UTF-8) or bytes.
    `mode` sets the permissions (such as 0o600); otherwise those of an existing file are kept.

    Guaranteed: readers see the old content or the new, never a mixture, whenever the process is killed; when this
    returns, the content is on the device; a file that already holds it is left alone; what a killed write left beside
    the file is removed by the next. After a crash the content itself tells whether the write happened. A person is
    asked only where somebody else changed the file after this write began, because repeating it would undo that.

    Not guaranteed: hard links and extended attributes of a replaced file are lost. A file that somebody deleted after
    the write is written anew by the resume. Somebody else's change is noticed by the file system's clock, if it agrees
    with this machine's.
    """
    place = checked_path(path, tool="write_file")
    if not isinstance(content, (str, bytes)):
        raise UsageError(
            f"write_file: content is a {type(content).__name__}.",
            safe="nothing was written.",
            hint="pass text or bytes; json.dumps(…) makes text of data",
        )
    if mode is not None and (type(mode) is not int or not 0 <= mode <= _MODE_BITS):
        raise UsageError(
            f"write_file: mode={mode!r} is no set of permissions.", safe="nothing was written.", hint="mode=0o644"
        )
    return _write_file(place, content, mode=mode)


@effect(name="write_file", in_flight_seconds=0, certain=(OSError, UsageError), ambiguous=(Unsynced,))
def _write_file(path: str, content: str | bytes, *, mode: int | None) -> Written:
    target, wanted = resolved(path, tool="write_file"), _as_bytes(content)
    before = _status(target)
    _remove_leftovers(target)
    if before is None or not _holds(target, wanted, before):
        _replace(target, wanted, before=before, mode=mode)
    elif mode is not None and not _has_mode(before, mode):
        target.chmod(mode)
    return _confirmed(target, wanted)


@_write_file.check
def _was_written(intent: Intent) -> Verdict:
    target, wanted = resolved(intent.arguments["path"], tool="write_file"), _as_bytes(intent.arguments["content"])
    found = _status(target)
    if found is None:
        return did_not_happen()
    if _holds(target, wanted, found):
        whole = _has_mode(found, intent.arguments["mode"])
        return happened(_confirmed(target, wanted)) if whole else did_not_happen()
    if found.st_ctime > intent.at.timestamp():
        return cannot_tell(f"{target} was changed by somebody else after this write began")
    return did_not_happen()


def _replace(target: Path, content: bytes, *, before: os.stat_result | None, mode: int | None) -> None:
    """Write beside the file and put it in its place in one act."""
    beside, descriptor = _temporary(target, private=before is not None or mode is not None)
    try:
        try:
            write_all(descriptor, content)
            if before is not None:
                _keep_owner(descriptor, before)
            if mode is not None:
                os.fchmod(descriptor, mode)
            elif before is not None:
                os.fchmod(descriptor, stat.S_IMODE(before.st_mode))
            os.fsync(descriptor)
            beside.replace(target)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
    finally:
        os.close(descriptor)


def _confirmed(target: Path, content: bytes) -> Written:
    """The result, once file and name are on the device: a killed writer may have got no further than renaming."""
    try:
        sync(target)
        sync(target.parent)
    except OSError as error:
        raise Unsynced(error.errno, f"{target} holds its new content, but it could not be synced: {error}") from error
    return Written(str(target), len(content), sha256(content).hexdigest())


def _temporary(target: Path, *, private: bool) -> tuple[Path, int]:
    """A new file beside the target, locked for as long as its writer lives, so that nobody takes it for a leftover."""
    while True:
        beside = target.with_name(f"{_prefix(target)}{clock.new_token(8)}")
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
        try:
            if try_lock(descriptor) and os.fstat(descriptor).st_nlink:
                return beside, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)  # a cleaner came between the creation and the lock: it removes the file


def _remove_leftovers(target: Path) -> None:
    """Remove what dead writers left beside the file; a living one holds the lock on its own."""
    for leftover in target.parent.glob(f"{_escaped(_prefix(target))}*"):
        with contextlib.suppress(OSError), opened(leftover, os.O_RDONLY) as descriptor:
            if try_lock(descriptor):
                leftover.unlink()


def _prefix(target: Path) -> str:
    return f".{target.name}.perdure-new-"


def _escaped(text: str) -> str:
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in text)


def _keep_owner(descriptor: int, before: os.stat_result) -> None:
    made = os.fstat(descriptor)
    if (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, before.st_uid, before.st_gid)


def _status(target: Path) -> os.stat_result | None:
    try:
        return target.stat()
    except FileNotFoundError:
        return None


def _holds(target: Path, content: bytes, found: os.stat_result) -> bool:
    return found.st_size == len(content) and target.read_bytes() == content


def _has_mode(found: os.stat_result, mode: int | None) -> bool:
    return mode is None or stat.S_IMODE(found.st_mode) == mode


def _as_bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content
