"""Sees everything that lands in the store and outside, and says at once what breaks a promise.

It keeps journals of its own, made of what it saw, and knows who wrote what: the simulated world has no secrets from it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.bodies import Done, Doubt, Ended, Intended, Note, Opened, Settled, read_body
from perdure.engine.whereabouts import whole_id
from perdure.errors import DeliveriesExhausted
from perdure.records import COMPLETIONS, Append, Kind, Mail, Record, Run, RunState
from perdure.store.protocol import Outcome, Terms

if TYPE_CHECKING:
    from tests.simulation.outside import Request
    from tests.simulation.plan import Op
    from tests.simulation.play import Play
    from tests.simulation.process import Process

_CLOSINGS: Final = frozenset({Kind.RECEIPT, Kind.VERDICT, Kind.ATTEMPT})
_KEEPS_TIME_SECONDS: Final = 0.000001


class Story:
    """What was seen of one run."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.epoch = 0
        self.owners: dict[int, Process] = {}
        self.is_held = False
        self.completed: dict[str, int] = {}
        """The epoch in which a call was completed."""
        self.waits: dict[str, Opened] = {}
        self.intents: set[str] = set()
        """Calls with an intent, and nothing that says what became of it."""
        self.spent = 0
        """Deliveries in a row without a newly completed step."""


class Witness:
    """Looks after every write."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.stories: dict[str, Story] = {}
        self.counts: Counter[str] = Counter()
        self.mails: dict[int, Mail] = {}
        self.numbered: dict[int, str] = {}
        """The id of each run, by its number in the plan."""
        self.begun: defaultdict[str, list[float]] = defaultdict(list)
        """When workers took runs of a queue for the first time."""
        self.promised: dict[tuple[str, str], str] = {}
        """What people were told counts as the answer, by run and question."""
        self.answered: dict[tuple[str, str], str] = {}
        """What runs took for the answer."""
        self._taken: set[int] = set()
        self._signals: set[tuple[str, bytes]] = set()
        """What was consumed by a run, or by one that goes on in its place; no two that are sent are equal."""

    def row(self, run_id: str) -> Run | None:
        """The run's row as it is."""
        return self._play.truth.row(run_id)

    def look(self, process: Process, run_id: str, *, terms: Terms | None = None) -> None:
        """Somebody wrote to this run's journal, or may have."""
        story = self.stories.setdefault(run_id, Story())
        for record in self._play.truth.records(run_id, since=len(story.records)):
            if record.seq != len(story.records):
                self.fail("P4", run_id, f"record {record.seq} stands where {len(story.records)} belongs")
            story.records.append(record)
            self._judge(process, run_id, story, record, terms)

    def claimed(self, process: Process, run_id: str, terms: Terms, before: Run | None) -> None:
        """Somebody reached for a run."""
        self.look(process, run_id, terms=terms)
        after = self.row(run_id)
        if before is not None and after is not None and after.epoch > before.epoch:
            self._judge_place(before, after, terms)
            if not before.epoch and terms.gated and not terms.pardon:
                self.begun[after.queue].append(self._play.scheduler.now)

    def appended(self, process: Process, batch: Sequence[Append], outcomes: Sequence[Outcome]) -> None:
        """A batch was answered."""
        for append, outcome in zip(batch, outcomes, strict=True):
            if outcome is not None:
                self.counts["writes refused"] += 1
                continue
            for mail_id in append.taken:
                if mail_id in self._taken:
                    self.fail("P6", append.run.run_id, f"mail {mail_id} was consumed twice")
                self._taken.add(mail_id)
            self.look(process, append.run.run_id)

    def posted(self, mail: Mail) -> None:
        """Somebody wrote to a run's mailbox."""
        self.mails[mail.mail_id] = mail
        answers = [
            other
            for other in self.mails.values()
            if (other.run_id, other.kind, other.key) == (mail.run_id, "answer", mail.key)
        ]
        if mail.kind == "answer" and len(answers) > 1:
            self.fail("P6", mail.run_id, f"{len(answers)} answers to one question were accepted")

    def told(self, run_id: str, op: Op, word: str) -> None:
        """Somebody answered, and was told that the answer counts."""
        place = (whole_id(run_id), asked(op))
        if self.promised.setdefault(place, word) != word:
            self.fail("P6", run_id, f"{self.promised[place]} and {word} were both told that theirs counts")

    def is_asked(self, run_id: str, op: Op) -> bool:
        """Whether this question was ever asked; a signal may be sent before anybody waits for it."""
        text = asked(op)
        family = [story for each, story in self.stories.items() if whole_id(each) == run_id]
        return op.kind == "signal" or any(
            record.kind == Kind.WAIT and text in record.body for story in family for record in story.records
        )

    def begins(self, run_id: str, step_key: str, epoch: int) -> None:
        """The body of a step or an effect begins."""
        self.counts["bodies"] += 1
        committed = self.stories[run_id].completed.get(step_key)
        if committed is not None and epoch >= committed:
            self.fail("P1", run_id, f"{step_key}, committed in epoch {committed}, runs again in epoch {epoch}")

    def sends(self, request: Request, earlier: list[Request]) -> None:
        """The body of an effect is about to send."""
        row = self.row(request.run_id)
        if row is None or row.epoch != request.epoch:
            self.counts["sent by a fenced worker"] += 1
            return
        for other in earlier:
            if other.counts and not (request.keyed and request.key == other.key):
                state = "done" if other.is_done else "under way"
                self.fail(
                    "P2",
                    request.run_id,
                    f"attempt {request.attempt} of {request.place} begins, attempt {other.attempt} is {state}",
                )

    def done(self, request: Request, all_of_it: list[Request]) -> None:
        """The outside did something."""
        self.counts["effects"] += 1
        if any(other.is_done for other in all_of_it):
            self.fail("P2", request.run_id, f"{request.place} was done twice")

    def fail(self, promise: str, run_id: str, what: str) -> None:
        """A promise was broken."""
        self._play.fail(f"{promise}: {run_id}: {what}")

    def _judge(self, process: Process, run_id: str, story: Story, record: Record, terms: Terms | None) -> None:
        if record.kind == Kind.STARTED:
            number = msgspec.json.decode(read_body(record).arguments)["number"]
            self.numbered.setdefault(number, run_id)
            return
        body: Any = read_body(record) if record.kind != Kind.PATCHED else None
        if record.kind == Kind.DELIVERY:
            self._judge_delivery(process, run_id, record, pardon=terms is not None and terms.pardon)
            return
        is_parking = record.kind == Kind.ENDED and body.code == DeliveriesExhausted.code
        if is_parking and record.epoch == story.epoch + 1:
            story.epoch = record.epoch
            self.counts["parked"] += 1
        elif record.epoch != story.epoch or story.owners.get(record.epoch) is not process:
            owner = story.owners.get(story.epoch)
            self.fail(
                "P4",
                run_id,
                f"record {record.seq} ({record.kind}) of epoch {record.epoch} by {process.name}; "
                f"epoch {story.epoch} is {owner.name if owner else 'nobody'}'s",
            )
        self._judge_body(run_id, story, record, body)
        if _is_progress(record, body):
            story.spent = 0
            process.recovers = False

    def _judge_delivery(self, process: Process, run_id: str, record: Record, *, pardon: bool) -> None:
        story, body = self.stories[run_id], read_body(record)
        before = story.owners.get(story.epoch) if story.is_held else None
        if record.epoch != story.epoch + 1 or self._play.workers.get(body.worker) is not process:
            self.fail("P4", run_id, f"delivery {record.epoch} to {process.name} after epoch {story.epoch}")
        story.epoch, story.is_held = record.epoch, True
        story.owners[record.epoch] = process
        story.spent = 1 if pardon else story.spent + 1
        self.counts["deliveries"] += 1
        self.counts["in doubt"] += len(story.intents)
        limit = self._play.settings.deliveries
        if story.spent > limit:
            self.fail("P9", run_id, f"delivery {story.spent} in a row without a completed step, {limit} are allowed")
        if before is not None and before is not process:
            self._judge_takeover(run_id, process, before)

    def _judge_takeover(self, run_id: str, process: Process, before: Process) -> None:
        self.counts["takeovers"] += 1
        process.recovers = True
        now, stall = self._play.scheduler.now, self._play.settings.stall_seconds
        is_well = not (before.is_dead or before.is_frozen or before.has_left) and now - before.trouble_at > stall
        if is_well:
            self.fail("P4", run_id, f"{process.name} robbed {before.name}, which was alive and well")

    def _judge_place(self, before: Run, after: Run, terms: Terms) -> None:
        """A worker that took a run found a place for it in its queue."""
        limit = self._play.plan.concurrency.get(after.queue, 0)
        if not limit or not terms.gated or terms.pardon or before.state == RunState.RUNNING:
            return
        running = sum(run.state == RunState.RUNNING for run in self._play.truth.rows() if run.queue == after.queue)
        if after.state == RunState.RUNNING and running > limit:
            self.fail("queues", after.run_id, f"{running} runs of {after.queue} move at once, {limit} are allowed")

    def _judge_body(self, run_id: str, story: Story, record: Record, body: Any) -> None:
        match body:
            case Opened():
                story.waits[record.key] = body
            case Ended():
                story.is_held = False
                for key in body.reopened:
                    story.completed.pop(key, None)
            case Settled():
                self.counts["verdicts"] += 1
                self._judge_verdict(run_id, record, body)
            case Done():
                self._judge_completion(run_id, story, record, body)
            case Intended():
                self.counts["intents"] += 1
                story.intents.add(record.key)
            case Doubt():
                self.counts["in doubt"] += 1
        if record.kind in _CLOSINGS:
            story.intents.discard(record.key)

    def _judge_completion(self, run_id: str, story: Story, record: Record, body: Done) -> None:
        if record.key in story.completed:
            self.fail("P1", run_id, f"{record.key} ({record.name}) was completed twice")
        story.completed[record.key] = record.epoch
        if record.kind == Kind.ANSWER:
            self._judge_answer(run_id, story, record, body)
        elif record.kind == Kind.RECEIPT:
            requests = self._play.outside.by_step[run_id, record.key]
            receipts = {f'"{request.receipt}"' for request in requests if request.is_done}
            if body.failure is None and bytes(body.value).decode() not in receipts:
                self.fail("P2", run_id, f"receipt {bytes(body.value).decode()} of {record.key}, outside: {receipts}")
            if body.failure is not None and any(request.counts for request in requests):
                self.fail("P2", run_id, f"{record.key} failed on record, but the outside did it")

    def _judge_answer(self, run_id: str, story: Story, record: Record, body: Done) -> None:
        opened = story.waits.pop(record.key, None)
        if opened is not None and opened.question is not None:
            place = (whole_id(run_id), opened.question.text)
            self.answered[place] = msgspec.json.decode(body.value, type=dict[str, Any])["choice"]
        if opened is not None and opened.reason == "signal":
            heard = (whole_id(run_id), bytes(body.value))
            if heard in self._signals:
                self.fail("P6", run_id, f"the signal {bytes(body.value).decode()} was consumed twice")
            self._signals.add(heard)
        if opened is None:
            self.fail("P6", run_id, f"{record.key} was consumed, but nobody waited")
        elif opened.reason == "time" and record.at < opened.due_at - _KEEPS_TIME_SECONDS:
            self.fail("P6", run_id, f"{record.key} slept until {record.at:.3f} instead of {opened.due_at:.3f}")

    def _judge_verdict(self, run_id: str, record: Record, body: Settled) -> None:
        requests = self._play.outside.by_step[run_id, record.key]
        if body.outcome == "happened":
            self.stories[run_id].completed[record.key] = record.epoch
            if not any(request.is_done for request in requests):
                self.fail("P2", run_id, f"{record.key} was settled as happened by {body.by}, but did not")
        if body.outcome == "did_not_happen" and any(
            request.counts and request.attempt <= body.attempt for request in requests
        ):
            self.fail("P2", run_id, f"{record.key} was settled as not happened by {body.by}, but did")


def asked(op: Op) -> str:
    """The question of a call that asks."""
    return f"What about {op.place}?"


def _is_progress(record: Record, body: Any) -> bool:
    """Whether this takes the deliveries of a run back."""
    if record.kind in COMPLETIONS or isinstance(body, Ended):
        return True
    if isinstance(body, Note):
        return body.about == "children"
    return isinstance(body, Settled) and body.outcome == "happened"
