"""The checkpoint document: one JSON object with all that is needed to act on a run, as of now or of an earlier step.

Its fields are a contract, documented in docs/reference/checkpoint.md and checked against
docs/reference/checkpoint.schema.json. It is made from the store alone: nothing is changed, and no code of the user's is
loaded.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from perdure import clock
from perdure.engine.ledger import resource_of
from perdure.engine.prefix import completes, cut, steps_in, working_state
from perdure.engine.whereabouts import CONTINUED, continuation, of_one_moment
from perdure.records import (
    Attempt,
    Delivery,
    Done,
    Failure,
    Intended,
    Kept,
    Kind,
    Note,
    Opened,
    Record,
    Run,
    RunState,
    Settled,
    Tracked,
    WaitReason,
    read_body,
)
from perdure.replay import Entry, Journal
from perdure.settings import current_settings
from perdure.status import (
    Commands,
    OpenWait,
    Status,
    newest,
    numbers_of,
    open_effects,
    parent_of,
    status_of,
    tags_of,
    waits_in,
)
from perdure.store.lease import read_park

if TYPE_CHECKING:
    from perdure.store.protocol import Store

FORMAT: Final = 1
"""Raised when a field is removed, renamed or changes its meaning; not when one is added."""

SMALL_BYTES: Final = 1000
"""Up to this size a recorded result is part of the document; of a larger one its digest is."""


class Ref(Struct, frozen=True):
    """Another run."""

    run_id: str
    name: str
    agent: str
    state: RunState
    reason: WaitReason | None


class RunPart(Struct, frozen=True):
    """Which run this is, and where it stands."""

    run_id: str
    name: str
    agent: str
    state: RunState
    reason: WaitReason | None
    cause: str | None
    created_at: float
    updated_at: float
    deadline_at: float | None
    deliveries: int
    durability: str
    tags: dict[str, str]
    parent: Ref | None
    continued_as: Ref | None


class ProgressPart(Struct, frozen=True):
    """How far the agent itself says it is."""

    done: float
    total: float | None
    text: str
    at: float


class StepPart(Struct, frozen=True):
    """One step, by its place in the run."""

    number: int
    key: str
    name: str
    kind: Literal["step", "effect", "wait"]
    call: str


class LastPart(StepPart, frozen=True):
    """The step that completed last."""

    at: float
    failed: bool


class Position(Struct, frozen=True):
    """Between which steps the run stands."""

    last: LastPart | None
    next: StepPart | None


class ResourcePart(Struct, frozen=True):
    """Something outside that the run relies on, as it was when last looked at."""

    kind: str
    identity: str
    words: str
    state: str
    digest: str
    options: dict[str, Any]
    on_change: str
    kept: bool
    seen_at: float


class PendingPart(StepPart, frozen=True):
    """A call that began and has not completed."""

    status: Literal["performing", "retrying", "advancing", "again"]
    attempt: int
    next_at: float | None
    items_done: int | None
    error: str | None


class ResultPart(Struct, frozen=True):
    """A recorded value: itself where it is small, and always its digest."""

    digest: str
    value: Raw | UnsetType = UNSET


class EffectPart(StepPart, frozen=True):
    """An effect that is over: performed, settled, or proved not to have happened."""

    effect_key: str | None
    attempt: int
    at: float
    result: ResultPart | None
    error: str | None
    verdict_by: str | None


class DoubtPart(StepPart, frozen=True):
    """An effect that was started and never confirmed."""

    effect_key: str | None
    attempt: int
    started_at: float
    why: str
    verdict: str | None
    verdict_by: str | None
    settle: str


class EffectsPart(Struct, frozen=True):
    """What the run did to the world, and what it may have done."""

    done: list[EffectPart]
    in_doubt: list[DoubtPart]


class QuestionPart(Struct, frozen=True):
    """What a person is asked."""

    number: int
    text: str
    options: list[str]
    form: Raw
    show: Raw
    assignee: str | None
    remind_at: list[float]
    escalate_at: float | None
    escalate_to: str | None
    approves: str | None


class WaitPart(StepPart, frozen=True):
    """A durable pause that has not ended."""

    reason: Literal["human", "time", "signal", "child"]
    since_at: float
    due_at: float | None
    question: QuestionPart | None
    signal: str | None
    child: Ref | None
    came_by: str | None
    command: str | None


class HolderPart(Struct, frozen=True):
    """The process that has the run."""

    worker: str
    pid: int | None
    host: str | None
    beat_at: float | None
    alive: bool | None


class ErrorPart(Struct, frozen=True):
    """Why the run stopped, or what an attempt met."""

    code: str
    message: str
    safe: str | None
    hint: str | None
    step: str | None


class Checkpoint(Struct, frozen=True):
    """The document."""

    format: int
    made_at: float
    at_step: int | None
    store: str
    run: RunPart
    goal: str | None
    arguments: Raw
    step: int
    total: float | None
    progress: ProgressPart | None
    position: Position
    working_state: dict[str, Raw]
    resources: list[ResourcePart]
    artifacts: list[Kept]
    pending: list[PendingPart]
    effects: EffectsPart
    waits: list[WaitPart]
    holder: HolderPart | None
    errors: list[ErrorPart]
    next: str | None


def document(store: Store, run: Run, *, commands: Commands | None = None, at_step: int | None = None) -> Checkpoint:
    """The checkpoint of a run as it stands, or as it was right after its N-th completed step (0: as accepted)."""
    commands = commands or Commands()
    run, records = of_one_moment(store, run)
    known = records if at_step is None else records[: cut(records, at_step, of=run.name)]
    view = View(store, run, known, records[len(known) :], commands, is_past=at_step is not None)
    state = working_state(known)
    progress = view.progress()
    arguments = view.journal.started().arguments
    status = view.status
    return Checkpoint(
        format=FORMAT,
        made_at=clock.wall_seconds(),
        at_step=at_step,
        store=store.location,
        run=view.run_part(),
        goal=_goal(state, arguments),
        arguments=arguments,
        step=steps_in(known),
        total=progress.total if progress else None,
        progress=progress,
        position=view.position(),
        working_state=state,
        resources=_resources(known),
        artifacts=_artifacts(known),
        pending=view.pending(),
        effects=EffectsPart(view.done_effects(), view.in_doubt()),
        waits=view.waits(),
        holder=view.holder(),
        errors=view.errors(),
        next=(status.next or None) if status else None,
    )


class View:
    """A journal up to some record, and what it says."""

    def __init__(
        self, store: Store, run: Run, records: list[Record], later: list[Record], commands: Commands, *, is_past: bool
    ) -> None:
        self.store = store
        self.run = run
        self.records = records
        self.later = later
        self.commands = commands
        self.is_past = is_past
        self.journal = Journal(records)
        self.numbers = numbers_of(self.journal)
        self.status: Status | None = None if is_past else status_of(store, run, commands)
        self.is_held = self.status is not None and self.status.state == RunState.RUNNING
        self.intents: dict[str, Intended] = {}
        self.begun: dict[str, Record] = {}
        self.attempts: dict[str, Attempt] = {}
        for record in records:
            if record.kind == Kind.INTENT:
                self.intents[record.key], self.begun[record.key] = read_body(record), record
            elif record.kind == Kind.ATTEMPT:
                self.attempts[record.key] = read_body(record)

    def run_part(self) -> RunPart:
        """The run; of an earlier step, as it was while it was being executed."""
        run, status = self.run, self.status
        following = newest(self.store, run) if continuation(run) and status else None
        parent = parent_of(self.store, self.journal)
        deliveries = sum(record.kind == Kind.DELIVERY for record in self.records)
        past = RunState.RUNNING if deliveries else RunState.QUEUED
        return RunPart(
            run_id=run.run_id,
            name=run.name,
            agent=run.agent,
            state=RunState(status.state) if status else past,
            reason=WaitReason(status.reason) if status and status.reason else None,
            cause=(status.cause or None) if status else None,
            created_at=run.created_at,
            updated_at=run.updated_at if status else self.records[-1].at,
            deadline_at=self.journal.started().deadline_at or None,
            deliveries=deliveries,
            durability=run.durability,
            tags=tags_of(run),
            parent=_ref(parent),
            continued_as=_ref(following),
        )

    def progress(self) -> ProgressPart | None:
        """The newest note of how far the agent is."""
        for record in reversed(self.records):
            if record.kind == Kind.NOTE:
                note: Note = read_body(record)
                if note.about == "progress":
                    return ProgressPart(note.done, note.total or None, note.text, record.at)
        return None

    def position(self) -> Position:
        """The last completed step, and the one that comes next where that is known."""
        last = None
        for record in reversed(self.records):
            if completes(record):
                step = self._step(record.key)
                failed = record.kind != Kind.VERDICT and read_body(record).failure is not None
                last = LastPart(**_fields(step), at=record.at, failed=failed)
                break
        return Position(last, self._next())

    def pending(self) -> list[PendingPart]:
        """Calls that began and neither completed nor wait nor are in doubt."""
        return [
            self._pending(key, entry, "performing")
            for key, entry in self.journal.open_entries()
            if self._is_live(entry)
        ] + [
            self._pending(key, entry, self._how_pending(key, entry))
            for key, entry in self.journal.entries.items()
            if entry.completion is None
            and entry.verdict is None
            and not entry.is_open
            and (entry.wait is None or entry.forgiven)
        ]

    def done_effects(self) -> list[EffectPart]:
        """Effects that are over, oldest first."""
        found = []
        for key, entry in self.journal.entries.items():
            if entry.kind != "effect" or (entry.completion is None and entry.verdict is None):
                continue
            found.append(self._done_effect(key, entry))
        return found

    def in_doubt(self) -> list[DoubtPart]:
        """Effects whose outcome nobody knows."""
        effects = open_effects(self.store, self.run, self.journal)
        found = []
        for effect in effects:
            entry = self.journal.entries[effect.key]
            if self._is_live(entry):
                continue
            intent = self.intents.get(effect.key)
            letter = None if self.is_past else effect.letter
            begun = self.begun.get(effect.key) or entry.intent
            found.append(
                DoubtPart(
                    **_fields(self._step(effect.key)),
                    effect_key=intent.effect_key if intent else None,
                    attempt=effect.attempt,
                    started_at=begun.at if begun else self.records[-1].at,
                    why=effect.why,
                    verdict=letter.outcome if letter else None,
                    verdict_by=effect.by if letter else None,
                    settle=self.commands.settle(self.run, effect, effects),
                )
            )
        return found

    def waits(self) -> list[WaitPart]:
        """What the run waits for."""
        mails = [] if self.is_past else [mail for mail in self.store.read_mail(self.run.run_id) if not mail.taken]
        waits = waits_in(self.journal, mails)
        return [self._wait(wait, waits) for wait in waits]

    def holder(self) -> HolderPart | None:
        """Who has the run; of an earlier step, who had it then."""
        deliveries = [record for record in self.records if record.kind == Kind.DELIVERY]
        if not deliveries or not (self.is_past or self.run.state == RunState.RUNNING):
            return None
        last: Delivery = read_body(deliveries[-1])
        if self.is_past:
            return HolderPart(last.worker, last.pid, last.host, None, None)
        worker = self.store.read_worker(self.run.holder)
        alive = self.store.is_running(self.run, stall_seconds=current_settings().stall_seconds)
        return HolderPart(self.run.holder, last.pid, last.host, worker.beat_at if worker else None, alive)

    def errors(self) -> list[ErrorPart]:
        """Why the run stopped, then what open attempts met."""
        found = []
        park = read_park(self.run)
        if self.status and park.code and park.code != CONTINUED and self.run.state != RunState.RUNNING:
            found.append(ErrorPart(park.code, park.message, park.safe or None, park.hint or None, None))
        return found + [
            ErrorPart("attempt_failed", pending.error, None, None, pending.key)
            for pending in self.pending()
            if pending.error is not None
        ]

    def _is_live(self, entry: Entry) -> bool:
        """Whether an effect without receipt is being performed, as far as the journal and the holder's life tell."""
        return not entry.doubt and (self.is_past or self.is_held)

    def _step(self, key: str) -> StepPart:
        entry = self.journal.entries[key]
        return StepPart(self.numbers[key], key, entry.name, entry.kind, entry.shown_call())

    def _next(self) -> StepPart | None:
        open_keys = [
            key for key, entry in self.journal.entries.items() if entry.completion is None and entry.verdict is None
        ]
        if open_keys:
            return self._step(open_keys[0])
        for record in self.later:
            if record.key and record.key not in self.numbers and record.kind not in (Kind.NOTE, Kind.PATCHED):
                whole = Journal([*self.records, *self.later]).entries[record.key]
                return StepPart(len(self.numbers) + 1, record.key, record.name, whole.kind, whole.shown_call())
        return None

    def _how_pending(self, key: str, entry: Entry) -> Literal["retrying", "advancing", "again"]:
        if key in self.journal.batches:
            return "advancing"
        return "retrying" if entry.not_before else "again"

    def _pending(
        self, key: str, entry: Entry, status: Literal["performing", "retrying", "advancing", "again"]
    ) -> PendingPart:
        batches = [read_body(record) for record in self.journal.batches.get(key, ())]
        attempt = self.attempts.get(key)
        return PendingPart(
            **_fields(self._step(key)),
            status=status,
            attempt=entry.attempts + (status in ("retrying", "again")),
            next_at=entry.not_before or None,
            items_done=max(batch.first + batch.count for batch in batches) if batches else None,
            error=_error_words(attempt.failure) if attempt and status == "retrying" else None,
        )

    def _done_effect(self, key: str, entry: Entry) -> EffectPart:
        intent, verdict, done = self.intents.get(key), entry.verdict, entry.done
        at = entry.completion.at if entry.completion else self._settled_at(key)
        outcome: Done | Settled | None = done or (verdict if verdict and verdict.outcome == "happened" else None)
        error = _error_words(done.failure) if done and done.failure else None
        if verdict and verdict.outcome == "fail":
            error = f"settled as failed by {verdict.by}"
        return EffectPart(
            **_fields(self._step(key)),
            effect_key=intent.effect_key if intent else None,
            attempt=done.attempt if done else entry.attempts,
            at=at,
            result=_result(outcome) if outcome and error is None else None,
            error=error,
            verdict_by=verdict.by if verdict else None,
        )

    def _settled_at(self, key: str) -> float:
        return next(record.at for record in reversed(self.records) if (record.kind, record.key) == (Kind.VERDICT, key))

    def _wait(self, wait: OpenWait, waits: list[OpenWait]) -> WaitPart:
        opened = wait.opened
        child = newest(self.store, self.store.read_run(opened.child)) if opened.child else None
        return WaitPart(
            **_fields(self._step(wait.record.key)),
            reason=opened.reason,
            since_at=wait.record.at,
            due_at=opened.due_at or None,
            question=_question(wait),
            signal=opened.signal or None,
            child=_ref(child),
            came_by=wait.mail.by if wait.mail else None,
            command=self._command(opened, wait, waits, child),
        )

    def _command(self, opened: Opened, wait: OpenWait, waits: list[OpenWait], child: Run | None) -> str | None:
        if opened.question is not None:
            return self.commands.answer(self.run, wait, waits)
        if opened.reason == "signal":
            return self.commands.signal(self.run, wait)
        return self.commands("show", child.name) if child is not None else None


def _goal(state: dict[str, Raw], arguments: Raw) -> str | None:
    """What the run is for: its working state's `goal`, else its first argument that is a text."""
    goal = msgspec.json.decode(bytes(state["goal"])) if "goal" in state else None
    if goal is not None:
        return goal if isinstance(goal, str) else msgspec.json.encode(goal).decode()
    values = msgspec.json.decode(bytes(arguments))
    texts = values.values() if isinstance(values, dict) else ()
    return next((value for value in texts if isinstance(value, str)), None)


def _resources(records: list[Record]) -> list[ResourcePart]:
    """The last look at each resource."""
    seen: dict[str, tuple[Tracked, float]] = {}
    for record in records:
        if '"resources":[' in record.body:
            for tracked in getattr(read_body(record), "resources", ()):
                key = resource_of(tracked).key
                if key not in seen or seen[key][0].look <= tracked.look:
                    seen[key] = (tracked, record.at)
    return [
        ResourcePart(
            tracked.kind,
            tracked.identity,
            resource_of(tracked).words,
            tracked.state,
            tracked.digest,
            tracked.options,
            tracked.on_change,
            tracked.kept,
            at,
        )
        for tracked, at in seen.values()
    ]


def _artifacts(records: list[Record]) -> list[Kept]:
    """The files whose content is kept, oldest first."""
    naming = [record for record in records if '"artifacts":[' in record.body]
    return [kept for record in naming for kept in getattr(read_body(record), "artifacts", ())]


def _question(wait: OpenWait) -> QuestionPart | None:
    question = wait.opened.question
    if question is None:
        return None
    return QuestionPart(
        number=wait.question_number,
        text=question.text,
        options=list(question.options),
        form=question.form,
        show=question.show,
        assignee=question.assignee or None,
        remind_at=list(question.remind_at),
        escalate_at=question.escalate_at or None,
        escalate_to=question.escalate_to or None,
        approves=question.approves or None,
    )


def _result(outcome: Done | Settled) -> ResultPart:
    if outcome.blob:
        return ResultPart(outcome.blob)
    sealed = bytes(outcome.value)
    return ResultPart(hashlib.sha256(sealed).hexdigest(), outcome.value if len(sealed) <= SMALL_BYTES else UNSET)


def _ref(run: Run | None) -> Ref | None:
    if run is None:
        return None
    return Ref(run.run_id, run.name, run.agent, RunState(run.state), WaitReason(run.reason) if run.reason else None)


def _fields(step: StepPart) -> dict[str, Any]:
    return msgspec.structs.asdict(step)


def _error_words(failure: Failure) -> str:
    return f"{failure.type.removeprefix('builtins.')}: {failure.message}"
