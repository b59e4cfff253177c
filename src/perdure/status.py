"""Where a run really stands, derived from its row, its holder's life, its journal and its mailbox; and what to do.

A row may still say `running` when its process is long dead; here it is `queued`, with the cause. Nothing is changed and
no code of the user's is loaded.
"""

from __future__ import annotations

import contextlib
import math
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from perdure import clock
from perdure.engine.mailbox import Letter, mail_key
from perdure.engine.whereabouts import UNDO_AGENT, continuation, undoing_of, undone_by
from perdure.errors import (
    CheckpointCorrupt,
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
from perdure.forms import approving
from perdure.records import FINISHED, Ended, Kind, Note, Opened, Repaired, Run, RunState, WaitReason, read_body
from perdure.replay import Journal, doubt_words
from perdure.settings import current_settings
from perdure.store import shown
from perdure.store.lease import Park, Presence, read_park, with_death
from perdure.store.moving import has_left, is_arriving
from perdure.telemetry.text import age, counted, legible, utc

if TYPE_CHECKING:
    from perdure.records import Mail, Origin, Question, Record, Worker
    from perdure.store.protocol import Store

DEMO_AGENT: Final = "perdure.demo"
"""The agent whose code needs no naming, like those whose names begin with it and a dot."""

_WAITS: Final = frozenset({WaitReason.HUMAN, WaitReason.TIME, WaitReason.SIGNAL, WaitReason.CHILD})
_FOREVER: Final = math.inf
_MISSED_BEATS: Final = 3


class OpenEffect(Struct, frozen=True):
    """An effect in doubt, and the verdict on it that the run has not seen yet, if any."""

    number: int
    key: str
    name: str
    attempt: int
    shown: str
    why: str
    letter: Letter | None = None
    by: str = ""


class OpenWait(Struct, frozen=True):
    """A wait without an end on record, and the mail that will end it once the run hears of it, if any."""

    number: int
    """The number of the step."""
    question_number: int
    """The number of the question among the open ones of its run; 0 where it is none."""
    record: Record
    opened: Opened
    shown: str
    mail: Mail | None = None

    @property
    def is_due(self) -> bool:
        """Whether its time is over."""
        return 0 < self.opened.due_at <= clock.wall_seconds()

    @property
    def has_come(self) -> bool:
        """Whether a resume would go on beyond it, as far as mail and time tell."""
        return self.mail is not None or self.is_due


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


class Commands:
    """Commands as a person can paste them; with `store`, they name it."""

    def __init__(self, store: str = "", *, runs: Store | None = None) -> None:
        self._location = store
        self._store = ("--store", shown(store)) if store else ()
        self._runs = runs

    def __call__(self, *words: str) -> str:
        return shlex.join(("perdure", *words, *self._store))

    def among(self, runs: Store) -> Commands:
        """The same for the runs of this store: one that shares its name with another is called by its id."""
        return Commands(self._location, runs=runs)

    def named(self, run: Run) -> str:
        """What to call this run, so that no other is meant."""
        if self._runs is None:
            return run.name
        with contextlib.suppress(CheckpointCorrupt):
            if len(self._runs.list_runs(name=run.name, limit=2)) <= 1:
                return run.name
        return run.run_id

    def resume(self, run: Run, *options: str) -> str:
        """How to resume; the demo's code is known, any other must be named."""
        if run.agent == UNDO_AGENT:
            other = undone_by(self._runs, run) if self._runs is not None else None
            return self.undo(run, of=other or run)
        if is_demo(run.agent):
            return self("resume", self.named(run), *options)
        return self("resume", self.named(run), *options, "--app", likely_app(run.agent) or "FILE")

    def undo(self, run: Run, *, of: Run | None = None) -> str:
        """How to take back what a run did; where this one is to do that, `of` is the run whose code knows how."""
        agent = (of or run).agent
        app = () if is_demo(agent) else ("--app", likely_app(agent) or "FILE")
        return self("undo", self.named(run), *app)

    def settle(self, run: Run, effect: OpenEffect, others: list[OpenEffect]) -> str:
        """How to settle this effect, by its name where that is enough."""
        is_alone = sum(other.name == effect.name for other in others) <= 1 and not effect.name.isdecimal()
        step = effect.name if is_alone else str(effect.number)
        return f"{self('settle', self.named(run), step)} <--happened [JSON] | --did-not-happen>"

    def answer(self, run: Run, wait: OpenWait, others: list[OpenWait]) -> str:
        """How to answer this question; it ends in <> or (), so that no shell takes it before a person has chosen."""
        question = wait.opened.question
        if question is not None and approving(question) is not None:
            return f"{self.reply('approve', run, wait, others)} (or: {self.reply('reject', run, wait, others)})"
        return f"{self.reply('answer', run, wait, others)} {'<text>' if question is None else answer_words(question)}"

    def reply(self, verb: str, run: Run, wait: OpenWait, others: list[OpenWait]) -> str:
        """The command of this verb for this question; its number is named where there are several."""
        questions = sum(bool(other.question_number) for other in others)
        which = ("--question", str(wait.question_number)) if questions > 1 else ()
        return self(verb, self.named(run), *which)

    def signal(self, run: Run, wait: OpenWait) -> str:
        """How to send what this wait is for."""
        return f"{self('signal', self.named(run), wait.opened.signal)} <json>"


def is_demo(agent: str) -> bool:
    """Whether this is an agent of perdure's own."""
    return agent == DEMO_AGENT or agent.startswith(f"{DEMO_AGENT}.")


def answer_words(question: Question) -> str:
    """What a person writes as the answer to this question."""
    if question.options:
        return f"<{'|'.join(legible(shlex.quote(option)) for option in question.options)}>"
    return "<text>" if bytes(question.form) == b"null" else "--value <json>"


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


def open_effects(store: Store, run: Run, journal: Journal) -> list[OpenEffect]:
    """The effects of this run that are in doubt, oldest first."""
    numbers = numbers_of(journal)
    letters: dict[tuple[str, int], tuple[Letter | None, str]] = {}
    for mail in store.read_mail(run.run_id):
        was_refused = run.state == RunState.WAITING and mail.at <= run.updated_at
        if mail.kind == "verdict" and not mail.taken and not was_refused:
            verdict = msgspec.json.decode(mail.body, type=Letter)
            letters[mail.key, verdict.attempt] = (verdict, mail.by)
    found = []
    for key, entry in journal.open_entries():
        letter, by = letters.get((key, entry.attempts), (None, ""))
        why = entry.doubt or "its process died"
        found.append(OpenEffect(numbers[key], key, entry.name, entry.attempts, entry.shown_call(), why, letter, by))
    return found


def open_waits(store: Store, run: Run, journal: Journal) -> list[OpenWait]:
    """What this run waits for, oldest first."""
    return waits_in(journal, [mail for mail in store.read_mail(run.run_id) if not mail.taken])


def waits_in(journal: Journal, mails: list[Mail]) -> list[OpenWait]:
    """The waits of a journal without an end, each with the mail among these that will end it."""
    numbers = numbers_of(journal)
    found: list[OpenWait] = []
    questions = 0
    for key, entry in journal.entries.items():
        if entry.wait is None or entry.completion is not None:
            continue
        opened: Opened = read_body(entry.wait)
        questions += opened.question is not None
        if entry.forgiven:  # it ended the run before: a resume asks anew
            continue
        mail = _mail_for(entry.wait, opened, mails)
        number = questions if opened.question is not None else 0
        found.append(OpenWait(numbers[key], number, entry.wait, opened, entry.shown_call(), mail))
    return found


def progress_of(journal: Journal) -> Note | None:
    """The newest note of how far the agent is."""
    return next((note for _, note in reversed(journal.notes) if note.about == "progress"), None)


def numbers_of(journal: Journal) -> dict[str, int]:
    """The number of each step: its place in the order in which the journal first names it."""
    return {key: number for number, key in enumerate(journal.entries, 1)}


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


def parent_of(store: Store, journal: Journal) -> Run | None:
    """The run that started this one, or goes on in the place of that."""
    lineage = journal.started().lineage
    return newest(store, store.read_run(lineage[-1].run_id)) if lineage else None


def origin_of(journal: Journal) -> Origin | None:
    """Where a fork comes from; None for any other run."""
    return journal.started().forked_from


def origin_words(origin: Origin) -> str:
    """The same in words."""
    return f"fork of {origin.name} at step {origin.at}"


def undone_words(store: Store, run: Run, commands: Commands) -> tuple[str, str]:
    """Whether somebody had the run's effects taken back, and the command that goes on with that; empty where nobody."""
    undoing = undoing_of(store, run.run_id)
    if undoing is None:
        return "", ""
    if undoing.state == RunState.COMPLETED:
        return f"its effects were taken back by {undoing.name}", ""
    following = commands.undo(run)
    if undoing.state == RunState.CANCELLED:
        return f"{undoing.name} was cancelled while it took its effects back", following
    is_dead = undoing.state == RunState.RUNNING and not store.is_running(
        undoing, stall_seconds=current_settings().stall_seconds
    )
    where = "its process died" if is_dead else undoing.reason.replace("_", " ") or undoing.state
    return f"{undoing.name} is to take its effects back ({where})", following


def resumable(store: Store, run: Run, journal: Journal) -> Run:
    """The run to resume so that this one goes on: the outermost of those that started it and still wait for it."""
    for entry in journal.started().lineage:
        ancestor = newest(store, store.read_run(entry.run_id))
        if ancestor is not None and ancestor.state not in FINISHED:
            return ancestor
    return run


def newest(store: Store, run: Run | None) -> Run | None:
    """The run that goes on in place of this one, if any does."""
    while run is not None and (following := continuation(run)):
        run = store.read_run(following)
    return run


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


def _mail_for(wait: Record, opened: Opened, mails: list[Mail]) -> Mail | None:
    """The mail that ends this wait, as its holder would choose it."""
    due_at = opened.due_at or _FOREVER
    for mail in mails:
        is_answer = mail.kind == "answer" and mail.key == mail_key(wait)
        is_signal = mail.kind == "signal" and opened.reason == "signal" and mail.key == opened.signal
        if (is_answer or is_signal) and mail.at < due_at:
            return mail
    return None


def _finished(store: Store, run: Run, commands: Commands) -> Status:
    following = newest(store, run)
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


def needs_person(store: Store, run: Run, journal: Journal) -> tuple[OpenEffect | None, OpenWait | None]:
    """The first effect without an end and without a verdict, and the first question without an answer."""
    effects = [effect for effect in open_effects(store, run, journal) if effect.letter is None]
    asked = [wait for wait in open_waits(store, run, journal) if wait.opened.question is not None]
    questions = [wait for wait in asked if not wait.has_come]
    return (effects[0] if effects else None), (questions[0] if questions else None)


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
        child = newest(store, store.read_run(first.opened.child))
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
        child = newest(store, store.read_run(opened.child))
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


def likely_app(agent: str) -> str:
    """The code to name, where a file here has the name that the agent's module must have; looked for, never opened."""
    parts = agent.split(".")
    if all(part.isidentifier() for part in parts):
        for length in range(len(parts) - 1, 0, -1):
            if Path(*parts[:length]).with_suffix(".py").is_file():
                return f"{parts[0]}.py" if length == 1 else ".".join(parts[:length])
    return ""
