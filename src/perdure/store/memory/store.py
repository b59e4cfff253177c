"""The verbs of the port that extend journals and look at runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure import clock
from perdure.errors import LeaseLost, PerdureError
from perdure.records import (
    FINISHED,
    Append,
    Debounce,
    Loss,
    Mail,
    Queue,
    Record,
    Run,
    Schedule,
    is_whole_row,
    mail_digest,
)
from perdure.settings import Settings
from perdure.store.chain import deaf, finding_of, schedule_finding, taken_mail, verified_run
from perdure.store.debounce import Start, decide, is_untaken, landed
from perdure.store.lease import MOVED_DETAIL, Presence, claim, refuse_other_worker
from perdure.store.memory.queues import QueuesOnShelf
from perdure.store.memory.whole import WholesOnShelf
from perdure.store.moving import refuse_moving
from perdure.store.pinning import pinned
from perdure.store.protocol import Finding, Outcome, Terms, Which
from perdure.store.queues import is_ready, needs_place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class MemoryStore(QueuesOnShelf, WholesOnShelf):
    """A store that forgets everything with its process; for trials, and as the model of the others."""

    def create_run(
        self, run: Run, first: Record, blobs: Sequence[tuple[bytes, bytes]] = (), *, claimed: Sequence[Record] = ()
    ) -> Run:
        worker = self.join()
        with self._open() as shelf:
            if run.run_id in shelf.runs:
                return verified_run(shelf.runs[run.run_id])
            if is_ready(run):
                run = self._readied(run)
            shelf.queues.setdefault(run.queue, Queue(run.queue))
            shelf.runs[run.run_id] = run
            shelf.journals[run.run_id] = [first, *claimed]
            if claimed:
                self.beat(worker.worker_id)
            shelf.blobs.update(blobs)
            return run

    def claim_run(self, run_id: str, worker_id: str, terms: Terms) -> Run:
        claimant = self.join()
        refuse_other_worker(claimant, worker_id)
        with self._open() as shelf:
            run = verified_run(self._known(run_id))
            holder, presence = self._presence(run, terms.stall_seconds)
            if run.holder == worker_id:
                presence = Presence.NONE
            claimed = claim(run, claimant, holder, presence, terms)
            if claimed.refusal is None and needs_place(run, terms):
                self._admit(run)
            if claimed.records:
                self.beat(worker_id)
                shelf.runs[run_id] = claimed.run
                shelf.journals[run_id].extend(claimed.records)
            if claimed.refusal is not None:
                raise claimed.refusal
            return claimed.run

    def append_all(self, batch: Sequence[Append], *, power: bool) -> list[Outcome]:  # noqa: ARG002 - memory cannot sync
        try:
            with self._open():
                return [self._extend(append) for append in batch]
        except PerdureError as error:
            return [error] * len(batch)

    def _extend(self, append: Append) -> Outcome:
        shelf, after = self._shelf, append.run
        before = shelf.runs.get(after.run_id)
        if before is None or (before.epoch, before.length) != (after.epoch, after.length - len(append.records)):
            return LeaseLost(f"Run {after.name} is held by another worker now.")
        shelf.runs[after.run_id] = after
        shelf.journals[after.run_id].extend(append.records)
        shelf.blobs.update(append.blobs)
        for mail_id in append.taken:
            mail = shelf.mail.get(mail_id)
            if mail is not None and mail.run_id == after.run_id and not mail.taken:
                shelf.mail[mail_id] = taken_mail(mail, at_length=after.length)
        return None

    def holds(self, run_id: str, epoch: int) -> bool:
        with self._open() as shelf:
            return run_id in shelf.runs and shelf.runs[run_id].epoch == epoch

    def read_run(self, run_id: str) -> Run | None:
        with self._open() as shelf:
            return verified_run(shelf.runs[run_id]) if run_id in shelf.runs else None

    def list_runs(self, *, agent: str = "", arguments: bytes = b"", name: str = "", limit: int = 1000) -> list[Run]:
        with self._open() as shelf:
            runs = list(reversed(shelf.runs.values()))
        if agent:
            runs = [run for run in runs if (run.agent, run.arguments) == (agent, arguments)]
        elif name:
            runs = [run for run in runs if run.name == name]
        runs.sort(key=lambda run: run.created_at, reverse=True)
        return [verified_run(run) for run in runs[:limit]]

    def find_runs(self, which: Which, *, limit: int = 1000, skip: int = 0) -> list[Run]:
        return [verified_run(run) for run in self._meant(which)[skip : skip + limit]]

    def count_runs(self, which: Which) -> int:
        return len(self._meant(which))

    def _meant(self, which: Which) -> list[Run]:
        with self._open() as shelf:
            runs = [run for run in reversed(shelf.runs.values()) if is_meant(run, which)]
        runs.sort(key=lambda run: run.created_at, reverse=True)
        return runs

    def list_schedules(self) -> list[Schedule]:
        with self._open() as shelf:
            return sorted(shelf.schedules.values(), key=lambda schedule: schedule.name)

    def change_schedule(self, before: Schedule | None, after: Schedule | None) -> bool:
        with self._open() as shelf:
            for schedule in filter(None, (before, after)):
                known = shelf.schedules.get(schedule.name)
                if (known.digest if known else None) != (before.digest if before else None):
                    return False
            if before is not None:
                del shelf.schedules[before.name]
            if after is not None:
                shelf.schedules[after.name] = after
            return True

    def debounce_run(self, start: Start) -> Run:
        self.join()
        with self._open() as shelf:
            place = (start.run.agent, start.key)
            known = shelf.debounces.get(place)
            if (again := landed(known, start)) in shelf.runs:
                return verified_run(shelf.runs[again])
            before = shelf.runs.get(known.run_id) if known else None
            if before is not None and (not is_untaken(before) or self.read_mail(before.run_id)):
                before = None
            decided = decide(known, before, start, now=clock.wall_seconds())
            shelf.debounces[place] = decided.debounce
            if not decided.replaces:
                return self.create_run(decided.run, decided.first)
            shelf.queues.setdefault(decided.run.queue, Queue(decided.run.queue))
            shelf.runs[decided.run.run_id] = decided.run
            shelf.journals[decided.run.run_id] = [decided.first]
            return decided.run

    def list_debounces(self, *, after: tuple[str, str] = ("", ""), limit: int = 1000) -> list[Debounce]:
        with self._open() as shelf:
            return [debounce for place, debounce in sorted(shelf.debounces.items()) if place > after][:limit]

    def keep_debounce(self, debounce: Debounce) -> bool:
        with self._open() as shelf:
            place = (debounce.agent, debounce.key)
            known = shelf.debounces.get(place)
            is_newer = known is None or known.newest_at < debounce.newest_at
            if is_newer:
                shelf.debounces[place] = debounce
            return is_newer

    def post(self, mail: Mail, *, once: bool = False, heard: bool = False) -> Mail:
        self.join()
        with self._open() as shelf:
            if self._known(mail.run_id).state in FINISHED and heard:
                raise deaf(mail.run_id)
            refuse_moving(self._known(mail.run_id))
            same = [other for other in shelf.mail.values() if (other.run_id, other.key) == (mail.run_id, mail.key)]
            is_second = once and any(other.kind == mail.kind for other in same)
            kind = "refused" if is_second else mail.kind
            fresh = msgspec.structs.replace(mail, mail_id=self._next_mail(), kind=kind, taken=0)
            posted = msgspec.structs.replace(fresh, digest=mail_digest(fresh))
            shelf.mail[posted.mail_id] = posted
            return posted

    def losses(self) -> list[Loss]:
        with self._open():
            return []

    def check(self) -> Iterator[Finding | Run]:
        with self._open() as shelf:
            runs, mails = list(shelf.runs.values()), list(shelf.mail.values())
            found = [self._finding(run) for run in runs] + [_mail_finding(mail) for mail in mails]
            found += [schedule_finding(schedule) for schedule in shelf.schedules.values() if not is_whole_row(schedule)]
        yield from (item for item in found if item is not None)

    def _finding(self, run: Run) -> Finding | Run:
        return finding_of(run, self._prefix(run))

    def pin_run(self, run_id: str, version: str, *, by: str) -> Run:
        self.join()
        with self._open() as shelf:
            run = verified_run(self._known(run_id))
            after, records = pinned(run, version, *self._presence(run, Settings().stall_seconds), by=by)
            shelf.runs[run_id] = after
            shelf.journals[run_id].extend(records)
            return after


def is_meant(run: Run, which: Which) -> bool:
    """Whether a run is one of those that are asked for."""
    tags = msgspec.json.decode(run.tags, type=dict[str, str]) if run.tags else {}
    return all(
        (
            not which.unfinished or run.state not in FINISHED,
            not which.states or run.state in which.states,
            not which.reasons or run.reason in which.reasons,
            not which.agent or f".{run.agent}".endswith(f".{which.agent}"),
            run.name.startswith(which.beginning) or run.run_id.startswith(which.beginning),
            run.created_at >= which.since_at,
            not which.until_at or run.created_at < which.until_at,
            which.tags.items() <= tags.items(),
            which.queue in ("", run.queue),
            which.tenant in ("", run.tenant),
            which.moved in (None, run.detail.startswith(MOVED_DETAIL)),
        )
    )


def _mail_finding(mail: Mail) -> Finding | None:
    if mail.digest == mail_digest(mail):
        return None
    return Finding(where=f"mail {mail.mail_id} of run {mail.run_id}", what="is damaged (its digest does not match)")
