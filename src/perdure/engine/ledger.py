"""What a held run knows of its resources: what was last seen of each, and what its steps have touched since."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure.bodies import Kept, Tracked, read_body
from perdure.records import Record
from perdure.resources.kinds import Resource
from perdure.store import blobs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from perdure.engine.active import Active
    from perdure.errors import PerdureError
    from perdure.resources.folder import Memory
    from perdure.resources.look import Seen

WORK: Final = "work"
"""The folder beside the store in which runs have their working directories."""

_MENTION: Final = '"resources":['
"""How a body that names resources is told from the many that do not, before it is decoded."""


class Terms(Struct, frozen=True):
    """How a resource is tracked."""

    resource: Resource
    on_change: str = "park"
    timeout: float = 5.0
    snapshot: bool = False
    missing_ok: bool = False
    size_limit: int = 0


class Touched(Struct):
    """What one step says of resources, and the content that goes into the store with its record."""

    resources: dict[str, Tracked] = {}
    artifacts: list[Kept] = []
    blobs: dict[bytes, bytes] = {}
    problem: PerdureError | None = None
    """Why something that must be kept could not be: the run stops after this record."""

    @property
    def said(self) -> tuple[tuple[Tracked, ...], tuple[Kept, ...], tuple[tuple[bytes, bytes], ...]]:
        """The resources, the artifacts and the blobs as a record and its append take them."""
        return tuple(self.resources.values()), tuple(self.artifacts), tuple(self.blobs.items())


SILENCE: Final = Touched().said
"""What most steps say of resources."""


class Ledger:
    """The resources of one run. Thread-safe: strands and step bodies share it."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.known: dict[str, Tracked] = last_seen(records)
        self.workdirs: dict[str, Terms] = {}
        self.deferred: dict[str, Tracked] = {}
        self.validate_deferred: Callable[[], None] = lambda: None
        self.stored: set[str] = set()
        """The digests of contents that are surely in the store."""
        self.lock = threading.RLock()
        self._looks = max((tracked.look for tracked in self.known.values()), default=0)
        self._touched: dict[str, Touched] = {}

    @functools.cached_property
    def memory(self) -> Memory:
        """What files were found to hold; most runs never look at one."""
        from perdure.resources.folder import Memory

        return Memory()

    @property
    def is_busy(self) -> bool:
        """Whether the record of a completed step has anything to say of resources."""
        return bool(self._touched or self.workdirs)

    def next_look(self) -> int:
        """The number of a look that begins now."""
        with self.lock:
            self._looks += 1
            return self._looks

    def touch(self, step_key: str) -> Touched:
        """What the step with this key says of resources, to be added to."""
        with self.lock:
            return self._touched.setdefault(step_key, Touched())

    def take(self, step_key: str) -> Touched:
        """The same, to be recorded now."""
        with self.lock:
            return self._touched.pop(step_key, None) or Touched()

    def commit(self, touched: Touched) -> None:
        """What a step said of resources is on record."""
        with self.lock:
            for key, tracked in touched.resources.items():
                if key not in self.known or self.known[key].look <= tracked.look:
                    self.known[key] = tracked
            self.stored.update(digest.hex() for digest in touched.blobs)


def last_seen(records: Iterable[Record]) -> dict[str, Tracked]:
    """The last look at each resource that the journal tells of."""
    found: dict[str, Tracked] = {}
    for record in records:
        if _MENTION in record.body:
            for tracked in getattr(read_body(record), "resources", ()):
                key = resource_of(tracked).key
                if key not in found or found[key].look <= tracked.look:
                    found[key] = tracked
    return found


def resource_of(tracked: Tracked) -> Resource:
    """The resource that was tracked."""
    return Resource(tracked.kind, tracked.identity, tracked.options)


def terms_of(tracked: Tracked) -> Terms:
    """The terms on which it was."""
    return Terms(
        resource_of(tracked),
        on_change=tracked.on_change,
        timeout=tracked.timeout,
        snapshot=bool(tracked.kept),
        size_limit=tracked.size_limit,
    )


def place_of(active: Active, tracked: Tracked | Terms) -> Resource:
    """Where to look for a resource: a run's own working directory is found below the store, wherever that is now."""
    resource = tracked.resource if isinstance(tracked, Terms) else resource_of(tracked)
    if resource.kind != "workdir":
        return resource
    return Resource("directory", str(own_folder(active) / resource.identity), resource.options)


def own_folder(active: Active) -> Path:
    """The folder below which the working directories of this run's store are."""
    location = active.store.location
    if location.startswith("memory:") or "://" in location:
        import tempfile

        return Path(tempfile.gettempdir()) / "perdure"
    return Path(location).expanduser().absolute().parent / WORK


def note_seen(touched: Touched, terms: Terms, seen: Seen, *, look: int) -> Tracked:
    """Add what a look saw to what a record will say."""
    from perdure.resources.folder import packed

    listing = b"" if seen.listing is None else packed(seen.listing)
    address = ""
    if listing:
        digest, stored = blobs.pack(listing)
        touched.blobs[digest] = stored
        address = digest.hex()
    for content in seen.contents.values():
        touched.blobs.update([blobs.pack(content)])
    fingerprint = seen.fingerprint
    tracked = Tracked(
        terms.resource.kind,
        terms.resource.identity,
        look,
        state=fingerprint.state,
        digest=fingerprint.digest,
        words=fingerprint.words,
        options=terms.resource.options,
        on_change=terms.on_change,  # type: ignore[arg-type]
        timeout=terms.timeout,
        listing=address,
        kept=terms.snapshot and seen.listing is not None and seen.too_large is None,
        size_limit=terms.size_limit,
    )
    touched.resources[terms.resource.key] = tracked
    return tracked
