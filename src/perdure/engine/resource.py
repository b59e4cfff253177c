"""`track`, `artifact` and `artifacts`: what a run says of things outside, recorded with the step that touched them.

Called in the agent, each is a recorded call of its own. Called in the body of a step or an effect, it becomes part of
that step's record: the step may have changed the thing.
"""

from __future__ import annotations

import contextvars
import hashlib
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure import codec
from perdure.bodies import Batch, Done, Kept, read_body
from perdure.engine.ledger import Terms, note_seen
from perdure.engine.scope import Frame, current_frame
from perdure.engine.session import session
from perdure.engine.signature import is_storable_text
from perdure.engine.step import step
from perdure.errors import ResourceMissing, UnknownRun, UnstorableValue, UsageError
from perdure.records import Kind
from perdure.resources.kinds import RECREATABLE, SIZE_LIMIT, Fingerprint, Resource
from perdure.resources.registry import known
from perdure.store import blobs

if TYPE_CHECKING:
    from perdure.engine.active import Active
    from perdure.resources.look import Look, Seen
    from perdure.store.protocol import Store

DEFAULT_SECONDS: Final = 5.0
_POLICIES: Final = ("park", "accept", "recreate")
_NAME_CHARACTERS: Final = 200
_asked: contextvars.ContextVar[Any] = contextvars.ContextVar("perdure_resource")


def track(
    resource: Resource,
    *,
    on_change: str = "park",
    snapshot: bool = False,
    timeout: float = DEFAULT_SECONDS,
    missing_ok: bool = False,
    size_limit: int = SIZE_LIMIT,
) -> Fingerprint:
    """Record what a resource looks like now; before this run is resumed it is looked at again.

    Where it is missing, changed, or cannot be looked at within `timeout` seconds: `on_change="park"` stops the run with
    the difference in words, `"accept"` goes on with what is there, `"recreate"` puts back what was. `snapshot=True`
    keeps the content of a file or directory, up to `size_limit` bytes. `missing_ok=True` records that the thing is
    not there, and that it must stay so. The last look at a resource is the one that counts.
    """
    terms = _checked(Terms(resource, on_change, timeout, snapshot, missing_ok, size_limit))
    frame = current_frame()
    if frame is None or frame.body:
        return _track_here(frame, terms)
    repository = resource.options.get("repository")
    token = _asked.set(terms)
    try:
        return _track(f"{resource.words} of {repository}" if repository else resource.words)
    finally:
        _asked.reset(token)


@step(name="perdure.track")
def _track(resource: str) -> Fingerprint:  # noqa: ARG001 - the recorded argument is what a replay compares
    return _track_here(current_frame(), _asked.get())


def _track_here(frame: Frame | None, terms: Terms) -> Fingerprint:
    """Look, and leave what was seen to the record of the step that this is called in."""
    from perdure.resources.look import see_all  # only runs with resources pay for it

    active = None if frame is None else frame.active
    look = 0 if active is None else active.resources.next_look()
    (seen,) = see_all([look_on(terms, active)])
    _refuse_unseen(terms, seen)
    if frame is not None and active is not None:
        note_seen(active.resources.touch(frame.step_key), terms, seen, look=look)
    return seen.fingerprint


def look_on(terms: Terms, active: Active | None) -> Look:
    """The look that these terms ask for."""
    from perdure.resources.folder import Keep
    from perdure.resources.look import Look

    keep = Keep(terms.size_limit, active.resources.stored) if terms.snapshot and active is not None else None
    return Look(terms.resource, terms.timeout, keep, active.resources.memory if active is not None else None)


class Artifact(Struct, frozen=True):
    """A file whose content a run keeps."""

    name: str
    digest: str
    size: int

    def read(self) -> bytes:
        """The content, proved to be what was kept."""
        return _store().load_blob(bytes.fromhex(self.digest))

    def save(self, to: str | os.PathLike[str]) -> Path:
        """Write the content to a path, or under its own name into a directory; the file appears whole or not at all."""
        path = Path(to)
        path = path / self.name if path.is_dir() else path
        unfinished = path.with_name(f".{self.digest[:16]}.perdure-new")
        unfinished.write_bytes(self.read())
        return unfinished.replace(path)


def artifact(path: str | os.PathLike[str], *, name: str | None = None, size_limit: int = SIZE_LIMIT) -> Artifact:
    """Keep the content of a file with this run, as it is now; `perdure.artifacts` finds it again."""
    where = Path(path)
    named = _checked_name(where.name if name is None else name)
    if not isinstance(size_limit, int) or size_limit <= 0:
        raise UsageError(f"artifact: size_limit={size_limit!r}.", hint="a number of bytes above 0")
    frame = current_frame()
    if frame is None or frame.body:
        return _keep_here(frame, where, named, size_limit)
    token = _asked.set(size_limit)
    try:
        return _artifact(str(where), named)
    finally:
        _asked.reset(token)


@step(name="perdure.artifact")
def _artifact(path: str, name: str) -> Artifact:
    return _keep_here(current_frame(), Path(path), name, _asked.get())


def _keep_here(frame: Frame | None, path: Path, name: str, size_limit: int) -> Artifact:
    try:
        if not path.is_file():
            raise ResourceMissing(
                f"artifact: {path} {'is no file' if path.exists() else 'does not exist'}.",
                safe="nothing was kept.",
                hint="write the file first; pack a directory into one file, or track it with snapshot=True",
            )
        with path.open("rb") as opened:
            content = opened.read(size_limit + 1)
    except OSError as error:
        raise ResourceMissing(
            f"artifact: {path} cannot be read: {error.strerror}.", safe="nothing was kept."
        ) from error
    if len(content) > size_limit:
        from perdure.resources.folder import too_large

        refused = too_large(max(len(content), path.stat().st_size), size_limit)
        raise UnstorableValue(f"artifact {path}: {refused.message}.", safe=refused.safe, hint="raise size_limit=")
    kept = Kept(name, hashlib.sha256(content).hexdigest(), len(content))
    if frame is not None and frame.active is not None:
        touched = frame.active.resources.touch(frame.step_key)
        touched.artifacts.append(kept)
        touched.blobs.update([blobs.pack(content)])
    return Artifact(kept.name, kept.digest, kept.size)


def artifacts(run_id: str) -> list[Artifact]:
    """The artifacts of a run, oldest first; found by its id or its name."""
    store = _store()
    run = store.read_run(run_id) or next(iter(store.list_runs(name=run_id, limit=1)), None)
    if run is None:
        raise UnknownRun(f"There is no run {run_id!r} in {store.location}.", hint="perdure ls lists them")
    found = []
    for record in store.load_journal(run.run_id):
        if record.kind in {Kind.STEP, Kind.RECEIPT, Kind.BATCH} and '"artifacts":[' in record.body:
            body: Done | Batch = read_body(record)
            found += [Artifact(kept.name, kept.digest, kept.size) for kept in body.artifacts]
    return found


def _store() -> Store:
    frame = current_frame()
    return frame.active.store if frame is not None and frame.active is not None else session().store


def _checked(terms: Terms) -> Terms:
    resource, policy = terms.resource, terms.on_change
    if not isinstance(resource, Resource):
        raise UsageError(
            f"track({codec.describe(resource)}) needs a resource.",
            safe="nothing was recorded.",
            hint='perdure.track(perdure.resources.file("report.txt"))',
        )
    if policy not in _POLICIES:
        raise UsageError(f"track({resource.words}): on_change={policy!r}.", hint=f"one of {', '.join(_POLICIES)}")
    if not _is_number(terms.timeout) or not 0 < terms.timeout < math.inf:
        raise UsageError(f"track({resource.words}): timeout={terms.timeout!r}.", hint="seconds above 0")
    if not isinstance(terms.size_limit, int) or terms.size_limit <= 0:
        raise UsageError(f"track({resource.words}): size_limit={terms.size_limit!r}.", hint="a number of bytes above 0")
    if terms.snapshot and resource.kind not in RECREATABLE:
        raise UsageError(
            f"track({resource.words}): there is no content to keep.", hint="snapshot=True is for files and directories"
        )
    if policy == "recreate" and not _can_recreate(terms):
        raise UsageError(
            f"track({resource.words}): perdure does not know how to recreate it.",
            safe="nothing was recorded.",
            hint="files and directories need snapshot=True; for anything else, resources.custom(…, recreate=function)",
        )
    return terms


def _can_recreate(terms: Terms) -> bool:
    if terms.resource.kind == "custom":
        behind = known(terms.resource.identity)
        return behind is not None and behind.recreate is not None
    return terms.snapshot and terms.resource.kind in RECREATABLE


def _refuse_unseen(terms: Terms, seen: Seen) -> None:
    name, fingerprint = terms.resource.words, seen.fingerprint
    if seen.too_large is not None:
        raise UnstorableValue(
            f"{name} cannot be kept: {seen.too_large.message}.", safe=seen.too_large.safe, hint=seen.too_large.hint
        )
    if fingerprint.state == "unreachable":
        raise ResourceMissing(
            f"{name} could not be looked at: {fingerprint.words}.",
            safe="nothing was recorded for it.",
            hint="make it reachable, or give it more time with timeout=",
        )
    if fingerprint.state == "absent" and not terms.missing_ok:
        looked = f" ({fingerprint.words})" if fingerprint.words else ""
        raise ResourceMissing(
            f"{name} does not exist{looked}.",
            safe="nothing was recorded for it.",
            hint="make it first, or say that it must stay away: missing_ok=True",
        )
    if fingerprint.words in {"a directory", "no directory", "no regular file"}:
        raise UsageError(
            f"{name} is {fingerprint.words}.",
            safe="nothing was recorded for it.",
            hint="resources.directory for a directory, resources.file for a file",
        )


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _checked_name(name: str) -> str:
    if not is_storable_text(name, _NAME_CHARACTERS) or not name.isprintable() or "/" in name or name in {".", ".."}:
        raise UsageError(f"artifact: name={codec.describe(name)}.", hint="the name of a file, without a directory")
    return name
