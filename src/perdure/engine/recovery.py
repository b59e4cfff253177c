"""Before a resumed run goes on, everything it tracked is looked at again, all at once.

What is missing, changed or cannot be looked at parks the run with the difference in words, unless it was tracked with
another policy or a person accepted it. What was accepted or recreated is recorded first: a crash at any point of this
ends in the same state.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from perdure import clock, events, typed
from perdure.bodies import Observed, Tracked
from perdure.engine.active import Stop
from perdure.engine.drive import Commit, Operation, drive
from perdure.engine.ledger import Terms, Touched, note_seen, place_of, resource_of, terms_of
from perdure.errors import (
    CheckpointCorrupt,
    PerdureError,
    ResourceChanged,
    ResourceMissing,
    Signal,
    UnstorableValue,
    UsageError,
    saved_steps,
)
from perdure.records import Kind, Mail, RunState, WaitReason
from perdure.resources.difference import Difference, difference
from perdure.resources.folder import Keep, unpacked
from perdure.resources.kinds import RECREATABLE, Resource
from perdure.resources.look import Look, Seen, see_all
from perdure.resources.registry import known
from perdure.resources.restore import Restoration, beside
from perdure.store.lease import read_park

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from perdure.bodies import Listing
    from perdure.engine.active import Active
    from perdure.records import Run

T = TypeVar("T")
_restoring: Final = threading.Lock()
"""A cancelled task leaves its restoration behind in a thread; the next must not meet it half-way."""


class Finding(Struct, frozen=True):
    """A resource that is not as it was."""

    tracked: Tracked
    seen: Seen
    difference: Difference
    before: Listing | None


class Letter(Struct, frozen=True):
    """The body of an accept in the mailbox: the differences that were shown to the person who accepts them."""

    shown: str


class Settled(Struct):
    """What became of the findings: what is recorded, and what stops the run."""

    touched: Touched
    words: list[str] = []
    outcomes: list[tuple[str, str]] = []
    parked: list[Finding] = []
    problems: list[str] = []


class Offload(Generic[T]):
    """Work that belongs to no step, done beside the event loop and outside the context of the run."""

    __slots__ = ("_work",)

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work

    def now(self) -> T:
        return contextvars.Context().run(self._work)

    async def later(self) -> T:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[T] = loop.create_future()

        def deliver(finish: Callable[[], None]) -> None:
            if not done.done():
                finish()

        def work() -> None:
            try:
                value = self._work()
            except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
                failure = error
                loop.call_soon_threadsafe(deliver, lambda: done.set_exception(failure))
            else:
                loop.call_soon_threadsafe(deliver, lambda: done.set_result(value))

        thread = threading.Thread(target=work, name="perdure-resources", daemon=True)
        contextvars.Context().run(thread.start)
        return await done


def validated_all(active: Active) -> Generator[Operation, Any, None]:
    """Look again at everything this run has tracked; what only its code can look at, before its first new call."""
    ledger = active.resources
    tracked = dict(ledger.known)
    ledger.deferred = {key: each for key, each in tracked.items() if _is_unknown(each)}
    ledger.validate_deferred = lambda: _validate_deferred(active)
    yield from validated(active, [each for key, each in tracked.items() if key not in ledger.deferred])


def _is_unknown(tracked: Tracked) -> bool:
    return tracked.kind == "custom" and known(tracked.identity) is None


def _validate_deferred(active: Active) -> None:
    """The code has come to its first new call: what only it can look at is looked at now, or the run parks."""
    ledger = active.resources
    with ledger.lock:
        deferred, ledger.deferred = ledger.deferred, {}
        unknown = [resource_of(tracked).words for tracked in deferred.values() if _is_unknown(tracked)]
        if unknown:
            raise active.halt(
                _stop(
                    active,
                    [f"{name} could not be checked: nothing in this process defines it" for name in unknown],
                    is_change=False,
                    hint="define it with resources.custom where the module is loaded, and start again",
                )
            )
        drive(validated(active, list(deferred.values())))


def validated(active: Active, tracked: list[Tracked]) -> Generator[Operation, Any, None]:
    """Look at these resources in parallel, settle every difference, and go on or park."""
    if active.signal is not None:
        raise active.signal
    if not tracked:
        return
    listings = [_listing_of(active, each) for each in tracked]
    looks = [Look(place_of(active, each), each.timeout) for each in tracked]
    seen = yield Offload(lambda: see_all(looks))
    findings = []
    for each, look, before in zip(tracked, seen, listings, strict=True):
        found = difference(resource_of(each), each, look, before=before)
        if found is not None:
            findings.append(Finding(each, look, found, before))
    letters = [mail for mail in active.read(active.mail) if mail.kind == "accept"]
    differing = {id(finding.tracked) for finding in findings}
    restored = [each for each in tracked if id(each) not in differing and _was_restored(active, each)]
    if not findings and not letters and not restored:
        return
    shown = "\n".join(_shown_in(mail) for mail in letters)
    settled: Settled = yield Offload(lambda: _settle(active, findings, shown))
    for each in restored:
        _note_recreated(active, settled, each, f"{resource_of(each).words}; {_kept_in(_aside_of(active, each))}")
    # What only the code itself can look at is looked at later, and may be what was accepted.
    yield from _record(active, settled, letters, taken=not active.resources.deferred)
    if settled.parked:
        raise active.halt(
            _stop(
                active,
                [*settled.problems, *(finding.difference.words for finding in settled.parked)],
                is_change=any(finding.difference.what == "changed" for finding in settled.parked),
            )
        )


def acceptance(run: Run, *, by: str) -> Mail:
    """The mail with which a person accepts the differences that a parked run shows."""
    park = read_park(run)
    if run.state != RunState.WAITING or park.code not in {ResourceMissing.code, ResourceChanged.code}:
        raise UsageError(
            f"Run {run.name} is not parked because of a resource.",
            safe="nothing was accepted.",
            hint=f"perdure show {run.name} tells where it stands",
        )
    body = msgspec.json.encode(Letter(park.message)).decode()
    return Mail(0, run.run_id, "accept", "", body, by, clock.wall_seconds())


def _listing_of(active: Active, tracked: Tracked) -> Listing | None:
    if not tracked.listing:
        return None
    try:
        listing = unpacked(active.read(active.store.load_blob, bytes.fromhex(tracked.listing)))
    except ValueError as error:
        raise active.fenced(
            CheckpointCorrupt(
                f"Run {active.row.name}: what is kept of {resource_of(tracked).words} cannot be used: {error}.",
                safe="nothing was written.",
                hint="perdure verify; or put back a copy of the store",
            )
        ) from error
    if tracked.kept:
        active.resources.stored.update(entry.content for entry in listing.entries if entry.kind == "file")
    return listing


def _shown_in(mail: Mail) -> str:
    try:
        return typed.read(mail.body, Letter).shown
    except msgspec.DecodeError:
        return ""


def _settle(active: Active, findings: list[Finding], shown: str) -> Settled:
    """What each finding means: recreated, accepted, or for a person."""
    settled = Settled(Touched())
    for finding in findings:
        _settle_one(active, finding, shown, settled)
    return settled


def _settle_one(active: Active, finding: Finding, shown: str, settled: Settled) -> None:
    tracked, words = finding.tracked, finding.difference.words
    terms = terms_of(tracked)
    is_accepted = tracked.on_change == "accept" or _is_accepted(finding, shown)
    problem = ""
    if tracked.on_change == "recreate" and finding.difference.what != "unreachable":
        problem, aside = _recreate(active, finding)
        if not problem:
            _note_recreated(active, settled, tracked, f"{words}{aside}")
            return
    if is_accepted:
        problem = _accept(active, settled, finding, terms) or problem
        if not problem or terms.resource.key in settled.touched.resources:
            settled.words.append(f"accepted: {words}")
            settled.outcomes.append((words, "accepted"))
            return
    settled.parked.append(finding)
    settled.problems += [problem] if problem else []


def _is_accepted(finding: Finding, shown: str) -> bool:
    """Whether this very difference was shown to a person who accepted it; a thing that changed again was not."""
    if not shown:
        return False
    if finding.difference.what == "unreachable":
        return f"{resource_of(finding.tracked).words} could not be checked" in shown
    return finding.difference.words in shown


def _accept(active: Active, settled: Settled, finding: Finding, terms: Terms) -> str:
    """Take what is there as the truth from here on; why not, where its content cannot be kept."""
    look = active.resources.next_look()
    if finding.difference.what == "unreachable":
        unreachable = msgspec.structs.replace(finding.tracked, look=look, state="unreachable")
        settled.touched.resources[terms.resource.key] = unreachable
        return ""
    seen = finding.seen
    if terms.snapshot and seen.fingerprint.state == "present":
        keep = Keep(terms.size_limit, active.resources.stored)
        (seen,) = see_all([Look(place_of(active, terms), terms.timeout, keep)])
        if seen.too_large is not None:
            return f"{terms.resource.words} cannot be kept: {seen.too_large.message}"
        if seen.fingerprint != finding.seen.fingerprint:
            return f"{terms.resource.words} is changing while it is looked at"
    note_seen(settled.touched, terms, seen, look=look)
    return ""


def _recreate(active: Active, finding: Finding) -> tuple[str, str]:
    """Put back what was; why that failed, or what was put aside for it."""
    tracked = finding.tracked
    name = resource_of(tracked).words
    place = place_of(active, tracked)
    restoration = Restoration(lambda digest: active.store.load_blob(bytes.fromhex(digest)), tracked.look)
    try:
        _put_back(place, finding, restoration)
    except Signal:
        raise
    except Exception as error:  # noqa: BLE001 - whatever failed, a person must look
        said = error.message if isinstance(error, PerdureError) else f"{type(error).__name__}: {error}"
        return f"{name} could not be recreated: {said}", ""
    (seen,) = see_all([Look(place, tracked.timeout)])
    left = difference(resource_of(tracked), tracked, seen, before=finding.before)
    if left is not None:
        return f"{name} was recreated and still differs: {left.words}", ""
    return "", f"; {_kept_in(_aside_of(active, tracked))}" if restoration.aside else ""


def _note_recreated(active: Active, settled: Settled, tracked: Tracked, words: str) -> None:
    """It is as it was; the next restoration has another number, and another place for what is in its way."""
    again = msgspec.structs.replace(tracked, look=active.resources.next_look())
    settled.touched.resources[resource_of(tracked).key] = again
    settled.words.append(f"recreated: {words}")
    settled.outcomes.append((words, "recreated"))


def _was_restored(active: Active, tracked: Tracked) -> bool:
    """Whether it was recreated by a process that was killed before it could say so, with something put aside."""
    is_candidate = tracked.on_change == "recreate" and tracked.kind in RECREATABLE
    return is_candidate and os.path.lexists(_aside_of(active, tracked))


def _aside_of(active: Active, tracked: Tracked) -> Path:
    return beside(Path(place_of(active, tracked).identity), tracked.look)


def _kept_in(aside: Path) -> str:
    return f"what was there is kept in {aside}"


def _put_back(place: Resource, finding: Finding, restoration: Restoration) -> None:
    tracked, path = finding.tracked, Path(place.identity)
    if place.kind == "custom":
        behind = known(place.identity)
        if behind is None or behind.recreate is None:
            raise ResourceMissing("nothing in this process knows how")
        behind.recreate()
        return
    with _restoring:
        if tracked.state == "absent":
            restoration.absence(path)
        elif not tracked.kept or finding.before is None:
            raise ResourceMissing("its content was not kept")
        elif place.kind == "file":
            restoration.file(path, finding.before)
        else:
            restoration.directory(path, finding.before, place.options.get("ignore", ()))


def _record(active: Active, settled: Settled, letters: list[Mail], *, taken: bool) -> Generator[Operation, Any, None]:
    """One record for everything that was accepted or recreated, and the mail that asked for it is taken with it."""
    touched = settled.touched
    mail_ids = tuple(mail.mail_id for mail in letters) if taken else ()
    if not touched.resources and not mail_ids:
        return
    by = ", ".join(sorted({mail.by for mail in letters}))
    yield from observed(active, touched, words=settled.words, by=by, taken=mail_ids)
    for words, outcome in settled.outcomes:
        events.publish(events.ResourceSettled(active.row.run_id, active.row.name, words, outcome))


def observed(
    active: Active, touched: Touched, *, words: Iterable[str], by: str = "", taken: tuple[int, ...] = ()
) -> Generator[Operation, Any, None]:
    """Commit what was seen outside of any step."""
    resources, _, contents = touched.said
    body = Observed(resources, tuple(words), by)
    ticket, _ = active.submit(Kind.OBSERVED, None, body, stored=contents, taken=taken, power=True)
    yield Commit(active, ticket)
    active.resources.commit(touched)


def touched_by(active: Active, step_key: str, kind: Kind) -> Generator[Operation, Any, Touched]:
    """What the record of a completed step says of resources: what its body tracked, and the working directories.

    Nothing is awaited between an effect and its receipt: a cancelled task would leave it in doubt.
    """
    ledger = active.resources
    touched = ledger.take(step_key)
    if ledger.workdirs and kind is Kind.RECEIPT:
        drive(look_at_workdirs(active, touched))
    elif ledger.workdirs:
        yield from look_at_workdirs(active, touched)
    return touched


def look_at_workdirs(active: Active, touched: Touched) -> Generator[Operation, Any, None]:
    """Add every working directory that has changed since its last checkpoint."""
    ledger = active.resources
    terms = list(ledger.workdirs.values())
    numbers = [ledger.next_look() for _ in terms]
    keeps = [Keep(each.size_limit, frozenset(ledger.stored)) for each in terms]
    looks = [
        Look(place_of(active, each), each.timeout, keep, ledger.memory) for each, keep in zip(terms, keeps, strict=True)
    ]
    seen = yield Offload(lambda: see_all(looks))
    for each, look, number in zip(terms, seen, numbers, strict=True):
        before = ledger.known.get(each.resource.key)
        if look.too_large is not None:
            touched.problem = UnstorableValue(
                f"Run {active.row.name}: the {each.resource.words} cannot be kept: {look.too_large.message}.",
                safe=f"{saved_steps(active.row.steps)}; the files are where they were.",
                hint=look.too_large.hint,
            )
        elif look.fingerprint.state == "unreachable":
            touched.problem = ResourceMissing(
                f"Run {active.row.name}: the {each.resource.words} could not be looked at: {look.fingerprint.words}.",
                safe=f"{saved_steps(active.row.steps)}.",
                hint="make its files readable, or raise timeout=, and start again",
            )
            if before is not None:  # what a resume finds there may be the work of this step: a person decides
                unseen = msgspec.structs.replace(before, state="unreachable", on_change="park", look=number)
                touched.resources[each.resource.key] = unseen
            continue
        if before is None or before.digest != look.fingerprint.digest or not before.kept or before.state != "present":
            note_seen(touched, each, look, look=number)


def _stop(active: Active, words: list[str], *, is_change: bool, hint: str = "") -> Stop:
    """The park that lists every difference."""
    name = active.row.name
    kind = ResourceChanged if is_change else ResourceMissing
    if len(words) == 1:
        message = f"Run {name}: {words[0]}."
    else:
        message = f"Run {name}: {len(words)} things are not as they were." + "".join(f"\n  {line}" for line in words)
    error = kind(
        message,
        safe=f"{saved_steps(active.row.steps)}; nothing was performed.",
        hint=hint or f"put it back and start again; or go on with what is there now: perdure resume {name} --accept",
    )
    return Stop(RunState.WAITING, WaitReason.PARKED, error)
