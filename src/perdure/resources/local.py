"""Looking at what this process can see for itself: a file, a variable, the working directory."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

from perdure.resources.kinds import Fingerprint, Resource

_SHORT = 8


def look_file(resource: Resource) -> Fingerprint:
    """A file by its content; a link is followed."""
    path = Path(resource.identity)
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            return Fingerprint("present", f"mode {stat.S_IFMT(mode):o}", what_it_is(mode))
        with path.open("rb") as opened:
            digest = hashlib.file_digest(opened, "sha256").hexdigest()
            size = opened.tell()
    except (FileNotFoundError, NotADirectoryError):
        return Fingerprint("absent", words=looked_at(path))
    return Fingerprint("present", digest, file_words(size, digest))


def look_env(resource: Resource) -> Fingerprint:
    """A variable by a digest of its value: half of one, so that it tells nothing but whether the value changed."""
    value = os.environb.get(os.fsencode(resource.identity))
    if value is None:
        return Fingerprint("absent")
    digest = hashlib.sha256(b"\0".join((b"perdure env", os.fsencode(resource.identity), value))).hexdigest()[:32]
    return Fingerprint("present", digest, f"set to a value with digest {digest[:_SHORT]}")


def look_cwd(_resource: Resource) -> Fingerprint:
    """The working directory; it is gone when somebody deleted it."""
    try:
        path = str(Path.cwd())
    except FileNotFoundError:
        return Fingerprint("absent")
    return Fingerprint("present", hashlib.sha256(os.fsencode(path)).hexdigest(), ascii(path)[1:-1])


def looked_at(path: Path) -> str:
    """Where a relative path led, for a person who wonders why nothing is there."""
    return "" if path.is_absolute() else f"looked at {path.absolute()}"


def file_words(size: int, digest: str) -> str:
    """A file's content in words."""
    return f"{size:,} bytes, digest {digest[:_SHORT]}"


def what_it_is(mode: int) -> str:
    """What stands where a file was expected."""
    return "a directory" if stat.S_ISDIR(mode) else "no regular file"
