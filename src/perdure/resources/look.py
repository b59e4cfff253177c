"""Looking at resources, many at once, each within its own time; a look that fails or hangs has seen nothing."""

from __future__ import annotations

import contextvars
import hashlib
import queue
import subprocess
import threading
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure import clock
from perdure.bodies import Listing
from perdure.errors import PerdureError, UnstorableValue
from perdure.resources.folder import Keep, Memory, Scan, listing_words, packed
from perdure.resources.kinds import Fingerprint, Resource
from perdure.resources.local import file_words, look_cwd, look_env, look_file, looked_at
from perdure.resources.registry import look_custom

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_ONCE: Final = 16
_CHEAP: Final = frozenset({"env", "cwd"})
_WORDS_CHARACTERS: Final = 300


class Look(Struct, frozen=True):
    """A look to take: at what, within which time, and whether contents are to be kept."""

    resource: Resource
    timeout: float
    keep: Keep | None = None
    memory: Memory | None = None


class Seen(Struct, frozen=True):
    """What a look saw; `too_large` where the content that should be kept is more than was agreed."""

    fingerprint: Fingerprint
    listing: Listing | None = None
    contents: dict[str, bytes] = {}
    too_large: UnstorableValue | None = None


def see(look: Look) -> Seen:
    """Take one look in this thread, for as long as it takes."""
    try:
        return _see(look)
    except UnstorableValue as error:
        if look.keep is None:
            return _unseen(error)
        seen = see(Look(look.resource, look.timeout))
        return Seen(seen.fingerprint, seen.listing, too_large=error)
    except Exception as error:  # noqa: BLE001 - whatever went wrong, the resource was not seen
        return _unseen(error)


def see_all(looks: Sequence[Look]) -> list[Seen]:
    """Take looks in threads of their own, some at a time; one that exceeds its time is left behind."""
    if len(looks) == 1 and looks[0].resource.kind in _CHEAP:
        return [see(looks[0])]
    seen: dict[int, Seen] = {}
    pending = deque(range(len(looks)))
    deadlines: dict[int, float] = {}
    arrived: queue.SimpleQueue[tuple[int, Seen]] = queue.SimpleQueue()
    while pending or deadlines:
        while pending and len(deadlines) < AT_ONCE:
            number = pending.popleft()
            deadlines[number] = clock.elapsed_seconds() + looks[number].timeout
            _start(number, looks[number], arrived)
        try:
            number, found = arrived.get(timeout=max(0.0, min(deadlines.values()) - clock.elapsed_seconds()))
        except queue.Empty:
            now = clock.elapsed_seconds()
            for number in [number for number, deadline in deadlines.items() if deadline <= now]:
                del deadlines[number]
                seen[number] = _too_slow(looks[number])
        else:
            if deadlines.pop(number, None) is not None:
                seen[number] = found
    return [seen[number] for number in range(len(looks))]


def _start(number: int, look: Look, arrived: queue.SimpleQueue[tuple[int, Seen]]) -> None:
    """A daemon, so that a look that hangs does not keep the process; without the context of any run."""

    def take() -> None:
        arrived.put((number, see(look)))

    thread = threading.Thread(target=take, name=f"perdure-look-{number}", daemon=True)
    contextvars.Context().run(thread.start)


def _see(look: Look) -> Seen:
    resource = look.resource
    match resource.kind:
        case "file":
            return _see_file(look)
        case "directory":
            return _see_directory(look)
        case "git_branch" | "git_commit":
            from perdure.resources.git import look_git

            return Seen(look_git(resource, timeout=look.timeout))
        case "url":
            from perdure.resources.web import look_url

            return Seen(look_url(resource, timeout=look.timeout))
        case "env":
            return Seen(look_env(resource))
        case "cwd":
            return Seen(look_cwd(resource))
        case "custom":
            return Seen(look_custom(resource))
        case _:
            return Seen(Fingerprint("unreachable", words=f"this perdure knows no resources of kind {resource.kind!r}"))


def _see_file(look: Look) -> Seen:
    fingerprint = look_file(look.resource)
    if look.keep is None or fingerprint.state != "present" or fingerprint.digest.startswith("mode"):
        return Seen(fingerprint)
    scan = Scan(look.keep, look.memory)
    listing = scan.file(Path(look.resource.identity))
    entry = listing.entries[0]
    return Seen(Fingerprint("present", entry.content, file_words(entry.size, entry.content)), listing, scan.contents)


def _see_directory(look: Look) -> Seen:
    root = Path(look.resource.identity)
    scan = Scan(look.keep, look.memory)
    try:
        listing = scan.directory(root, look.resource.options.get("ignore", ()))
    except FileNotFoundError:
        return Seen(Fingerprint("absent", words=looked_at(root)))
    except NotADirectoryError:
        return Seen(Fingerprint("present", "no directory", "no directory"))
    digest = hashlib.sha256(packed(listing)).hexdigest()
    return Seen(Fingerprint("present", digest, listing_words(listing, digest)), listing, scan.contents)


def _unseen(error: Exception) -> Seen:
    return Seen(Fingerprint("unreachable", words=_why(error)))


def _too_slow(look: Look) -> Seen:
    return Seen(Fingerprint("unreachable", words=f"it took longer than its time of {look.timeout:g} s"))


def _why(error: Exception) -> str:
    """Why a look failed, in words without addresses of memory or lines of code."""
    if isinstance(error, subprocess.TimeoutExpired):
        return f"it took longer than its time of {error.timeout:g} s"
    reason = getattr(error, "reason", None)
    if isinstance(reason, OSError):
        error = reason
    if isinstance(error, TimeoutError):
        return "it did not answer in time"
    if isinstance(error, OSError) and error.strerror:
        where = f": {error.filename}" if error.filename else ""
        return f"{error.strerror}{where}"[:_WORDS_CHARACTERS]
    said = error.message if isinstance(error, PerdureError) else str(error)
    return f"{type(error).__name__}: {said}"[:_WORDS_CHARACTERS].encode("utf-8", "replace").decode()
