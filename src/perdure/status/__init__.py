"""Where a run really stands, derived from its row, its holder's life, its journal and its mailbox; and what to do.

A row may still say `running` when its process is long dead; here it is `queued`, with the cause. Nothing is changed and
no code of the user's is loaded.
"""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from perdure import clock
from perdure.bodies import Ended, Note, Opened, Repaired, read_body
from perdure.engine.whereabouts import newest, newest_of
from perdure.errors import (
    CommitsLost,
    DeadlineExceeded,
    DeliveriesExhausted,
    JournalDiverged,
    PerdureError,
    ResourceChanged,
    ResourceMissing,
    RunPaused,
    StepFailed,
)
from perdure.records import FINISHED, Kind, Run, RunState, WaitReason
from perdure.replay import Journal, doubt_words
from perdure.settings import current_settings
from perdure.status.commands import DEMO_AGENT, Commands, answer_words, is_demo, likely_app
from perdure.status.open_calls import (
    OpenEffect,
    OpenWait,
    needs_person,
    numbers_of,
    open_effects,
    open_waits,
    waits_in,
)
from perdure.status.related import origin_of, origin_words, parent_of, resumable, undone_words
from perdure.store.lease import Park, Presence, read_park, with_death
from perdure.store.moving import has_left, is_arriving
from perdure.telemetry.text import age, counted, utc

if TYPE_CHECKING:
    from perdure.records import Record, Worker
    from perdure.store.protocol import Store

__all__ = [
    "DEMO_AGENT",
    "Commands",
    "OpenEffect",
    "OpenWait",
    "Status",
    "answer_words",
    "holder_words",
    "is_demo",
    "is_paused",
    "known_deaths",
    "likely_app",
    "needs_person",
    "numbers_of",
    "open_effects",
    "open_waits",
    "origin_of",
    "origin_words",
    "parent_of",
    "progress_of",
    "resumable",
    "status_of",
    "tags_of",
    "undone_words",
    "wait_words",
    "waits_in",
]

_WAITS: Final = frozenset({WaitReason.HUMAN, WaitReason.TIME, WaitReason.SIGNAL, WaitReason.CHILD})
_MISSED_BEATS: Final = 3


class Status(Struct, frozen=True):
    """Where a run stands, why, since when, and what to do next."""

    state: str
    at: float
    reason: str = ""
    cause: str = ""
    hint: str = ""
    next: str = ""
    progress: Note | None = None
    brief: str = ""
    """Why, in a word or two, for a table; empty where the reason says it."""

    @property
    def words(self) -> str:
        """The state, with the reason of one that waits."""
        return f"{self.state}: {self.reason.replace('_', ' ')}" if self.reason else self.state


def status_of(
    store: Store,
    run: Run,
    commands: Commands,
    *,
    records: list[Record] | None = None,
    journal: Journal | None = None,
) -> Status:
    """Where this run stands; `records`, and the `journal` made of them, are given where they are at hand."""
    commands = commands.among(store)
    park = read_park(run)
    if run.state in FINISHED:
        return _finished(store, run, commands)
    repair = commands("repair", commands.named(run))
    if park.code == CommitsLost.code:
        return _parked(run, park, next_command=repair)
    if has_left(run) or is_arriving(run):
        return _moving(run, park)
    try:
        known = store.load_journal(run.run_id) if records is None else records
    except PerdureError as error:
        return _damaged(store, run, error, repair)
    journal = journal or Journal(known, suspects=run.suspects)
    status = _for_its_version(store, run, _unfinished(store, run, journal, known[-1], commands), commands)
    if park.code == JournalDiverged.code and (earlier := _earlier_version(known)) and _has_worker(store, earlier):
        status = msgspec.structs.replace(status, next=commands("pin", commands.named(run), earlier))
    if park.code == DeliveriesExhausted.code:
        status = _with_deaths(status, store, run, known)
    if run.state == RunState.RUNNING and status.state != RunState.RUNNING:
        now = store.read_run(run.run_id)
        if now is not None and now.digest != run.digest:  # it went on after that look, and ended before this one
            return status_of(store, now, commands)
    return msgspec.structs.replace(status, progress=progress_of(journal))


def _for_its_version(store: Store, run: Run, status: Status, commands: Commands) -> Status:
    """What a run that could go on waits for, where only workers of one version may take it."""
    if not run.version or status.state != RunState.QUEUED:
        return status
    if _has_worker(store, run.version):
        words, brief, following = f"pinned to version {run.version}", status.brief, status.next
    else:
        words = f"waits for a worker of version {run.version}, and none is alive"
        brief, following = f"needs version {run.version}", _with_version(run, commands)
    cause = f"{status.cause}; {words}" if status.cause else words
    return msgspec.structs.replace(status, cause=cause, brief=brief, next=following)


def _has_worker(store: Store, version: str) -> bool:
    """Whether a process with this version of the code is alive."""
    able = [worker.worker_id for worker in store.list_workers() if worker.version == version]
    return any(store.is_alive(worker_id, stall_seconds=current_settings().stall_seconds) for worker_id in able)


def _earlier_version(records: list[Record]) -> str:
    """The version that had the run before the one whose code it no longer matched; empty where there is none."""
    versions = [read_body(record).version for record in records if record.kind == Kind.DELIVERY]
    return next((version for version in reversed(versions[:-1]) if version and version != versions[-1]), "")


def _with_version(run: Run, commands: Commands) -> str:
    """How a run gets a worker that may take it; both ways are a person's to choose between."""
    worker = commands("worker", likely_app(run.agent) or "FILE", "--version", run.version)
    return f"{worker} (or: {commands('unpin', commands.named(run))})"


def _damaged(store: Store, run: Run, error: PerdureError, repair: str) -> Status:
    """A journal that cannot be read says nothing; who holds the run is known all the same."""
    state = _held(store, run, repair).state if run.state == RunState.RUNNING else run.state
    return Status(state, run.updated_at, run.reason, error.message, error.hint, repair, brief="damaged")


def _unfinished(store: Store, run: Run, journal: Journal, last: Record, commands: Commands) -> Status:
    park = read_park(run)
    going_on = commands.resume(resumable(store, run, journal))
    if run.state == RunState.RUNNING:
        return _with_what_is_open(_held(store, run, going_on), store, run, journal)
    if run.state == RunState.FAILED:
        taken_back, undo = undone_words(store, run, commands)
        cause = f"{taken_back}; {park.message}" if taken_back else park.message
        following = commands("fork", commands.named(run)) if _fails_for_good(journal, park) else going_on
        return Status(run.state, run.updated_at, cause=cause, next=undo if taken_back else following)
    if run.state == RunState.QUEUED:
        origin = origin_of(journal)
        is_new = origin is not None and run.length == origin.records
        cause = f"{origin_words(origin)}, not begun" if origin and is_new else _pause(last)
        if run.wake_at:
            cause = f"{cause}; delayed until {utc(run.wake_at)}"
        return Status(run.state, run.updated_at, cause=cause, next=going_on, brief="delayed" if run.wake_at else "")
    if park.code == RunPaused.code or is_paused(store, run):
        return _paused(store, run, park, commands, going_on)
    if run.reason == WaitReason.IN_DOUBT:
        return _in_doubt(run, open_effects(store, run, journal), park, commands, going_on)
    if run.reason in _WAITS:
        return _waiting(store, run, journal, commands, going_on)
    accept = ("--accept",) if park.code in (ResourceChanged.code, ResourceMissing.code) else ()
    return _parked(run, park, next_command=commands.resume(run, *accept))  # only one that is named is forgiven


def _fails_for_good(journal: Journal, park: Park) -> bool:
    """Whether a resume can only fail like before: a fork begins anew where the run stands."""
    is_settled_so = any(
        entry.verdict is not None and entry.verdict.outcome == "fail" for entry in journal.entries.values()
    )
    was_settled_so = is_settled_so and park.message.startswith(StepFailed.__name__)
    return was_settled_so or park.code == DeadlineExceeded.code


def progress_of(journal: Journal) -> Note | None:
    """The newest note of how far the agent is."""
    return next((note for _, note in reversed(journal.notes) if note.about == "progress"), None)


def is_paused(store: Store, run: Run) -> bool:
    """Whether the last word from outside on whether this run may go on was to pause it."""
    words = [mail for mail in store.read_mail(run.run_id) if mail.kind in ("pause", "unpause")]
    if read_park(run).code == RunPaused.code:
        return not any(mail.kind == "unpause" and mail.mail_id > run.heard for mail in words)
    untaken = [mail for mail in words if not mail.taken]
    return bool(untaken) and untaken[-1].kind == "pause"


def tags_of(run: Run) -> dict[str, str]:
    """The run's tags."""
    return msgspec.json.decode(run.tags, type=dict[str, str]) if run.tags else {}


def holder_words(holder: Worker | None) -> str:
    """Who holds a run."""
    return f"pid {holder.pid} on {holder.host}" if holder else "a process that is not known any more"


def known_deaths(store: Store) -> dict[str, str]:
    """How workers died, by their ids, as far as somebody was told; also what was told after their runs went on."""
    return {worker.worker_id: worker.death for worker in store.list_workers() if worker.death}


def _with_deaths(status: Status, store: Store, run: Run, records: list[Record]) -> Status:
    """Of a run that ended its workers: how each of the last of them died, a line each."""
    deaths = known_deaths(store)
    last = [read_body(record) for record in records if record.kind == Kind.DELIVERY][-run.deliveries :]
    lines = [
        f"pid {each.pid} on {each.host}: {deaths.get(each.worker, 'it is not known how it died')}" for each in last
    ]
    return msgspec.structs.replace(status, cause="\n".join((status.cause, *lines)))


def _finished(store: Store, run: Run, commands: Commands) -> Status:
    following = newest_of(store, run)
    if following is None or following.run_id == run.run_id:
        taken_back, undo = undone_words(store, run, commands)
        doubt, settle = _doubt_left(store, run, commands)
        cause = "; ".join(filter(None, (taken_back, doubt, _copied(run))))
        return Status(run.state, run.updated_at, cause=cause, next=undo or settle)
    cause = f"goes on as {following.name}"
    return Status(run.state, run.updated_at, cause=cause, next=commands("show", commands.named(following)))


def _copied(run: Run) -> str:
    """Where a finished run is kept as well, and can be taken back."""
    move = read_park(run).move
    return f"copied to {move.target}" if move is not None else ""


def _moving(run: Run, park: Park) -> Status:
    """A run that was moved away, or is on its way here."""
    brief = "moved away" if has_left(run) else "on its way here"
    return Status(run.state, run.updated_at, run.reason, park.message, park.hint, park.hint, brief=brief)


def _doubt_left(store: Store, run: Run, commands: Commands) -> tuple[str, str]:
    """What a cancelled run left in doubt, and the command that says what became of it; empty where nothing."""
    if run.state != RunState.CANCELLED:
        return "", ""
    with contextlib.suppress(PerdureError):  # what is damaged says nothing, and `perdure verify` says that
        effects = open_effects(store, run, Journal(store.load_journal(run.run_id)))
        unsettled = [effect for effect in effects if effect.letter is None]
        if unsettled:
            more = f", and {len(unsettled) - 1} more" if len(unsettled) > 1 else ""
            return f"{unsettled[0].shown}{more} is in doubt: it may have happened", commands.settle(
                run, unsettled[0], effects
            )
    return "", ""


def _held(store: Store, run: Run, going_on: str) -> Status:
    stall_seconds = current_settings().stall_seconds
    holder = store.read_worker(run.holder)
    at = max(run.updated_at, holder.beat_at if holder else 0.0)
    if store.is_running(run, stall_seconds=stall_seconds):
        brief = f"pid {holder.pid}@{holder.host}" if holder else ""
        return Status(RunState.RUNNING, at, cause=f"held by {holder_words(holder)}{_silence(holder)}", brief=brief)
    is_stalled = store.is_running(run, stall_seconds=math.inf)
    presence = Presence.STALLED if is_stalled else Presence.DEAD
    brief = presence.value.removeprefix("its ")
    cause = with_death(f"{presence.value} ({holder_words(holder)})", holder.death if holder else "")
    return Status(RunState.QUEUED, at, cause=cause, next=going_on, brief=brief)


def _silence(holder: Worker | None) -> str:
    """When a process that lives last gave a sign of it, where it should have given another since."""
    silence = clock.wall_seconds() - holder.beat_at if holder else 0.0
    return (
        f", last sign of life {age(silence)} ago" if silence > _MISSED_BEATS * current_settings().renew_seconds else ""
    )


def _with_what_is_open(status: Status, store: Store, run: Run, journal: Journal) -> Status:
    """Of a run whose process is dead: what a resume will come to first, where that may need a person."""
    effect, wait = needs_person(store, run, journal) if status.state == RunState.QUEUED else (None, None)
    if effect is not None:
        cause = f"{status.cause}; {effect.name} was begun and may have happened"
        return msgspec.structs.replace(status, cause=cause, brief=f"died in {effect.name}")
    if wait is not None and wait.opened.question is not None:
        cause = f"{status.cause}; it will ask: {wait.opened.question.text}"
        return msgspec.structs.replace(status, cause=cause, brief="died asking")
    return status


def _paused(store: Store, run: Run, park: Park, commands: Commands, going_on: str) -> Status:
    if not is_paused(store, run):
        return Status(
            run.state, run.updated_at, run.reason, "unpaused; a resume takes it up", next=going_on, brief="unpaused"
        )
    by = next((mail.by for mail in reversed(store.read_mail(run.run_id)) if mail.kind == "pause"), "somebody")
    cause = park.message if park.code == RunPaused.code else f"paused by {by}"
    unpause = commands("unpause", commands.named(run))
    return Status(run.state, run.updated_at, run.reason, cause, next=unpause, brief="paused")


def _in_doubt(run: Run, effects: list[OpenEffect], park: Park, commands: Commands, going_on: str) -> Status:
    unsettled = [effect for effect in effects if effect.letter is None]
    if not effects:
        return _parked(run, park, next_command=going_on)
    if not unsettled:
        cause = f"settled by {effects[0].by}; a resume takes it up"
        return Status(run.state, run.updated_at, run.reason, cause, next=going_on, brief="settled")
    first = unsettled[0]
    more = f", and {len(unsettled) - 1} more" if len(unsettled) > 1 else ""
    cause = park.message or f"{doubt_words(first.shown, first.why)}{more}"
    return Status(run.state, run.updated_at, run.reason, cause, next=commands.settle(run, first, effects))


def _waiting(store: Store, run: Run, journal: Journal, commands: Commands, going_on: str) -> Status:
    """For what it waits; once that has come, it only needs to be resumed."""
    waits = open_waits(store, run, journal)
    come = next((wait for wait in waits if wait.has_come), None)
    if come is not None:
        words = _come_words(come)
        cause = f"{words}; a resume takes it up"
        return Status(run.state, run.updated_at, run.reason, cause, next=going_on, brief=words)
    first = next((wait for wait in waits if wait.opened.reason == run.reason), None)
    if first is None:
        return _parked(run, read_park(run), next_command=going_on)
    more = f" (and {len(waits) - 1} more)" if len(waits) > 1 else ""
    next_command = going_on
    if run.reason == WaitReason.HUMAN:
        next_command = commands.answer(run, first, waits)
    elif run.reason == WaitReason.SIGNAL:
        next_command = commands.signal(run, first)
    elif run.reason == WaitReason.CHILD:
        child = newest(store, first.opened.child)
        if child is not None and child.state == RunState.WAITING:
            next_command = status_of(store, child, commands).next
    cause = f"{wait_words(store, first.opened)}{more}"
    left = age(first.opened.due_at - clock.wall_seconds())
    brief = f"time, {left} left" if run.reason == WaitReason.TIME else ""
    return Status(run.state, run.updated_at, run.reason, cause, next=next_command, brief=brief)


def wait_words(store: Store, opened: Opened) -> str:
    """For what a run waits, in words."""
    if opened.question is not None:
        return f"waits for an answer: {opened.question.text}"
    if opened.reason == "signal":
        return f"waits for the signal {opened.signal!r}"
    if opened.reason == "child":
        child = newest(store, opened.child)
        if child is None:
            return "waits for a child run that is not accepted yet"
        reason = f": {child.reason.replace('_', ' ')}" if child.reason else ""
        return f"waits for its child run {child.name} ({child.agent}), {child.state}{reason}"
    return f"sleeps until {utc(opened.due_at)}"


def _come_words(wait: OpenWait) -> str:
    if wait.mail is not None:
        what = "answered" if wait.mail.kind == "answer" else f"signal {wait.opened.signal!r} sent"
        return f"{what} by {wait.mail.by}"
    if wait.opened.question is not None:
        return f"the time to answer {wait.opened.question.text!r} is over"
    return "its time has come" if wait.opened.reason == "time" else "its time to wait is over"


def _parked(run: Run, park: Park, *, next_command: str) -> Status:
    brief = f"{run.reason}: {park.code.replace('_', ' ')}" if run.reason == WaitReason.PARKED and park.code else ""
    return Status(run.state, run.updated_at, run.reason, park.message, park.hint, next_command, brief=brief)


def _pause(last: Record) -> str:
    """Why a queued run is not being run, as its last record tells."""
    if last.kind == Kind.STARTED:
        return "accepted, not begun"
    body = read_body(last) if last.kind in (Kind.ENDED, Kind.REPAIRED) else None
    match body:
        case Ended(message=message) if message:
            return str(message)
        case Repaired(set_aside):
            return f"repaired, {counted(set_aside, 'record')} set aside"
        case _:
            return "nobody holds it"
