"""A journal up to some record, and what it says for each part of the checkpoint document."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import UNSET

from perdure.bodies import Attempt, Delivery, Done, Failure, Intended, Note, Opened, Settled, read_body
from perdure.checkpoint.parts import (
    SMALL_BYTES,
    DoubtPart,
    EffectPart,
    ErrorPart,
    HolderPart,
    LastPart,
    PendingPart,
    Position,
    ProgressPart,
    QuestionPart,
    Ref,
    ResultPart,
    RunPart,
    StepPart,
    WaitPart,
)
from perdure.engine.prefix import completes
from perdure.engine.whereabouts import CONTINUED, continuation, newest, newest_of
from perdure.records import Kind, Record, Run, RunState, WaitReason
from perdure.replay import Entry, Journal
from perdure.settings import current_settings
from perdure.status import (
    Commands,
    OpenWait,
    Status,
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
        following = newest_of(self.store, run) if continuation(run) and status else None
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
        child = newest(self.store, opened.child) if opened.child else None
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
