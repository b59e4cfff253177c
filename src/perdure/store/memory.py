"""The executable specification of the port: plain dictionaries and one lock. Nothing outlives the process."""

from __future__ import annotations

import contextlib
import math
import os
import threading
from typing import TYPE_CHECKING

import msgspec

from perdure import clock
from perdure.errors import LeaseLost, PerdureError, StoreUnavailable
from perdure.records import (
    DEFAULT_QUEUE,
    FINISHED,
    Append,
    Debounce,
    Loss,
    Mail,
    Queue,
    Record,
    Run,
    RunState,
    Schedule,
    Worker,
    is_whole_row,
    mail_digest,
)
from perdure.settings import Settings, current_settings
from perdure.store import blobs as large
from perdure.store.chain import (
    Prefix,
    deaf,
    finding_of,
    heard_of,
    irreparable,
    is_whole,
    needs_repair,
    rebuilt,
    repaired,
    schedule_finding,
    sound_prefix,
    taken_mail,
    trusted_prefix,
    unknown_run,
    verified,
    verified_mail,
    verified_run,
    walked,
)
from perdure.store.debounce import Start, decide, is_untaken, landed
from perdure.store.lease import MOVED_DETAIL, Presence, claim, held, refuse_other_worker
from perdure.store.moving import (
    Reception,
    arriving,
    departed,
    joined,
    reception,
    refuse_departure,
    refuse_moving,
    released,
)
from perdure.store.pinning import pinned
from perdure.store.protocol import (
    MOST_DEATHS,
    Arrival,
    Compacted,
    Crowd,
    Departure,
    Finding,
    Old,
    Outcome,
    Prunable,
    Pruned,
    Terms,
    Which,
    Whole,
)
from perdure.store.prune import REFERRING, addresses, in_order, is_old, is_old_failure, is_old_named, mentions, needed
from perdure.store.queues import (
    PAUSED,
    Asked,
    Line,
    Load,
    asked,
    bucket_of,
    crowds,
    drawn,
    fitting,
    full_queues,
    is_ready,
    line_of,
    merged,
    nanoseconds,
    needs_place,
    needs_token,
    readied,
    refuse_crowd,
    refuse_haste,
    rooms_of,
    token_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence


class Shelf:
    """What stores in one process share, each of them a worker of its own."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.runs: dict[str, Run] = {}
        self.journals: dict[str, list[Record]] = {}
        self.set_aside: dict[str, list[Record]] = {}
        self.blobs: dict[bytes, bytes] = {}
        self.mail: dict[int, Mail] = {}
        self.workers: dict[str, Worker] = {}
        self.queues: dict[str, Queue] = {DEFAULT_QUEUE: Queue(DEFAULT_QUEUE)}
        self.buckets: dict[str, int] = {}
        self.schedules: dict[str, Schedule] = {}
        self.debounces: dict[tuple[str, str], Debounce] = {}


class MemoryStore:
    """A store that forgets everything with its process; for trials, and as the model of the others."""

    location = "memory:"
    created = False
    noticed = 0
    lanes = 1
    lease_seconds = 0.0

    def __init__(self, shelf: Shelf | None = None) -> None:
        self._shelf = shelf or Shelf()
        self._worker: Worker | None = None
        self._is_closed = False

    def join(self) -> Worker:
        with self._open() as shelf:
            if self._worker is None:
                self._worker = Worker(
                    worker_id=clock.new_token(12),
                    pid=os.getpid(),
                    host=clock.host_name(),
                    boot_id=clock.boot_id(),
                    lock_inode=0,
                    beat_at=clock.wall_seconds(),
                    beat_boot=clock.boot_seconds(),
                    version=current_settings().version,
                )
                self._forget_deaths(shelf)
                shelf.workers[self._worker.worker_id] = self._worker
            return self._worker

    def _forget_deaths(self, shelf: Shelf) -> None:
        dead = sorted((worker for worker in shelf.workers.values() if worker.died_at), key=lambda each: each.died_at)
        named = {run.holder for run in shelf.runs.values() if run.state == RunState.RUNNING}
        for worker in dead[:-MOST_DEATHS]:
            if worker.worker_id not in named:
                del shelf.workers[worker.worker_id]

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

    def _admit(self, run: Run) -> None:
        """Let the run into its queue, or raise."""
        shelf = self._shelf
        queue = shelf.queues.get(run.queue, Queue(run.queue))
        refuse_crowd(run, queue, running=self._running(queue))
        if needs_token(run, queue):
            bucket, now = bucket_of(queue), nanoseconds(clock.wall_seconds())
            after, seconds = drawn(shelf.buckets.get(bucket, 0), 1, now=now, rate=queue.rate, burst=queue.burst)
            refuse_haste(run, queue, seconds=seconds)
            shelf.buckets[bucket] = after

    def _running(self, queue: Queue) -> int:
        return sum(run.state == RunState.RUNNING and run.queue == queue.name for run in self._shelf.runs.values())

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

    def beat(self, worker_id: str) -> None:
        with self._open() as shelf:
            worker = shelf.workers.get(worker_id)
            if worker is not None:
                shelf.workers[worker_id] = msgspec.structs.replace(
                    worker, beat_at=clock.wall_seconds(), beat_boot=clock.boot_seconds()
                )

    def read_worker(self, worker_id: str) -> Worker | None:
        with self._open() as shelf:
            return shelf.workers.get(worker_id)

    def is_alive(self, worker_id: str, *, stall_seconds: float) -> bool:
        with self._open():
            return self._presence_of(worker_id, stall_seconds)[1] is Presence.ALIVE

    def is_running(self, run: Run, *, stall_seconds: float) -> bool:
        return self.is_alive(run.holder, stall_seconds=stall_seconds)

    def _presence(self, run: Run, stall_seconds: float) -> tuple[Worker | None, Presence]:
        return self._presence_of(run.holder, stall_seconds)

    def _presence_of(self, worker_id: str, stall_seconds: float) -> tuple[Worker | None, Presence]:
        if not worker_id:
            return None, Presence.NONE
        holder = self._shelf.workers.get(worker_id)
        if holder is None or holder.died_at:
            return holder, Presence.DEAD
        silence = clock.boot_seconds() - holder.beat_boot
        return holder, Presence.STALLED if silence > stall_seconds else Presence.ALIVE

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

    def list_due(self, *, now: float, limit: int = 1000) -> list[Run]:
        with self._open():
            mailed = self._mailed()
            due = [run for run in self._in_order() if _is_due(run, now) or run.run_id in mailed]
        return [verified_run(run) for run in due[:limit]]

    def _mailed(self, *, stirring: bool = False) -> set[str]:
        """The waiting runs that have mail they had not heard of; `stirring` a paused one does only what lets it go."""
        shelf = self._shelf
        unheard = [(mail, shelf.runs[mail.run_id]) for mail in shelf.mail.values() if not mail.taken]
        return {
            run.run_id
            for mail, run in unheard
            if run.state == RunState.WAITING and mail.kind != "refused" and mail.mail_id > run.heard
            if not stirring or _stirs(mail, run)
        }

    def _in_order(self) -> list[Run]:
        """Every run, soonest first."""
        return sorted(self._shelf.runs.values(), key=lambda run: run.wake_at)

    def list_ready(
        self,
        *,
        agents: Sequence[str],
        queues: Sequence[str] = (),
        version: str = "",
        now: float,
        stall_seconds: float,
        limit: int = 100,
    ) -> list[Run]:
        wanted = asked(agents, queues, version)
        with self._open() as shelf:
            rooms = rooms_of(map(self._load, shelf.queues.values()), now=nanoseconds(clock.wall_seconds()))
            full = full_queues(rooms)
            lost = self._lost(wanted, stall_seconds)[:limit]
            due = self._due(wanted, full, now=now, limit=limit)
            heads = {line: runs[:limit] for line, runs in self._lines(wanted).items() if line.queue not in full}
            going = fitting(due, rooms, limit=limit)
            queued = fitting(merged(heads, now=now), rooms, limit=limit)
        return [*lost, *going, *queued]

    def _load(self, queue: Queue) -> Load:
        return Load(queue, self._running(queue), self._shelf.buckets.get(bucket_of(queue), 0))

    def _lost(self, wanted: Asked, stall_seconds: float) -> list[Run]:
        held = [run for run in self._meant_by(wanted) if run.state == RunState.RUNNING]
        lost = [run for run in held if self._presence(run, stall_seconds)[1] is not Presence.ALIVE]
        return sorted(lost, key=lambda run: run.created_at)

    def _due(self, wanted: Asked, full: list[str], *, now: float, limit: int) -> list[Run]:
        """The soonest of each line, and of those that have mail."""
        open_runs = [run for run in self._in_order() if wanted.means(line_of(run)) and run.queue not in full]
        mailed = self._mailed(stirring=True)
        soonest: dict[Line, list[Run]] = {}
        for run in open_runs:
            if _is_due(run, now) and not run.detail.startswith(PAUSED):
                soonest.setdefault(line_of(run), []).append(run)
        found = {run.run_id for runs in soonest.values() for run in runs[:limit]}
        found |= {run.run_id for run in [run for run in open_runs if run.run_id in mailed][:limit]}
        return [run for run in open_runs if run.run_id in found]

    def _lines(self, wanted: Asked) -> dict[Line, list[Run]]:
        found: dict[Line, list[Run]] = {}
        for run in sorted(self._meant_by(wanted), key=lambda run: (-run.priority, run.turn, run.created_at)):
            if is_ready(run):
                found.setdefault(line_of(run), []).append(run)
        return found

    def _meant_by(self, wanted: Asked) -> list[Run]:
        return [run for run in self._shelf.runs.values() if wanted.means(line_of(run))]

    def _readied(self, run: Run) -> Run:
        """The run with its turn among those that are ready now."""
        place = (line_of(run), run.priority)
        runs = [other for other in self._shelf.runs.values() if is_ready(other) and not other.epoch]
        beside = [other for other in runs if (line_of(other), other.priority) == place]
        own = [other.turn for other in beside if other.tenant == run.tenant]
        return readied(run, first=min((other.turn for other in beside), default=None), own=max(own, default=None))

    def wake_due(self, *, now: float, limit: int = 100) -> int:
        with self._open() as shelf:
            delayed = [run for run in self._in_order() if run.state == RunState.QUEUED and 0 < run.wake_at <= now]
            due = list(filter(is_whole, delayed[:limit]))
            for run in due:
                shelf.runs[run.run_id] = self._readied(msgspec.structs.replace(run, updated_at=now))
            return len(due)

    def declare_queue(self, queue: Queue) -> None:
        with self._open() as shelf:
            shelf.queues[queue.name] = queue

    def list_queues(self) -> list[Queue]:
        with self._open() as shelf:
            return sorted(shelf.queues.values(), key=lambda queue: queue.name)

    def count_queues(self) -> list[Crowd]:
        with self._open() as shelf:
            now = nanoseconds(clock.wall_seconds())
            seconds = {
                queue.name: token_seconds(queue, shelf.buckets.get(bucket_of(queue), 0), now=now)
                for queue in shelf.queues.values()
            }
            counts = []
            for name in {run.queue for run in shelf.runs.values()}:
                mine = [run for run in shelf.runs.values() if run.queue == name]
                ready = [run.created_at for run in mine if is_ready(run)]
                queued = sum(run.state == RunState.QUEUED for run in mine)
                counts += [
                    (name, "ready", len(ready), min(ready, default=0.0)),
                    (name, "delayed", queued - len(ready), 0.0),
                    (name, "running", sum(run.state == RunState.RUNNING for run in mine), 0.0),
                ]
            return crowds(shelf.queues.values(), counts, seconds)

    def take_tokens(self, bucket: str, tokens: int = 1, *, rate: float, burst: int) -> float:
        with self._open() as shelf:
            if not rate:
                return 0.0
            now = nanoseconds(clock.wall_seconds())
            after, seconds = drawn(shelf.buckets.get(bucket, 0), tokens, now=now, rate=rate, burst=burst)
            shelf.buckets[bucket] = after
            return seconds

    def now(self) -> float:
        with self._open():
            return clock.wall_seconds()

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

    def list_workers(self) -> list[Worker]:
        with self._open() as shelf:
            return list(shelf.workers.values())

    def ask_to_drain(self, worker_id: str) -> None:
        with self._open() as shelf:
            worker = shelf.workers.get(worker_id)
            if worker is not None:
                shelf.workers[worker_id] = msgspec.structs.replace(worker, drain_at=clock.wall_seconds())

    def record_death(self, worker_id: str, cause: str) -> None:
        with self._open() as shelf:
            worker = shelf.workers.get(worker_id)
            if worker is not None and not worker.died_at:
                died = msgspec.structs.replace(worker, death=cause, died_at=clock.wall_seconds())
                shelf.workers[worker_id] = died

    def load_journal(self, run_id: str) -> list[Record]:
        with self._open() as shelf:
            return verified(verified_run(self._known(run_id)), map(msgspec.structs.astuple, shelf.journals[run_id]))

    def load_blob(self, digest: bytes) -> bytes:
        with self._open() as shelf:
            return large.unpack(digest, shelf.blobs.get(digest))

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

    def wait_for_news(self, seconds: float) -> frozenset[str]:
        """Nobody tells; whoever waits looks now and then."""
        clock.sleep(seconds)
        return frozenset()

    def read_mail(self, run_id: str) -> list[Mail]:
        with self._open() as shelf:
            return [verified_mail(mail) for mail in shelf.mail.values() if mail.run_id == run_id]

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

    def repair_run(self, run_id: str) -> int:
        self.join()
        with self._open() as shelf:
            run, journal = self._known(run_id), shelf.journals[run_id]
            prefix = self._prefix(run)
            if is_whole(run):
                if not needs_repair(run, prefix):
                    return 0
                holder, presence = self._presence(run, Settings().stall_seconds)
                if presence is Presence.ALIVE:
                    raise held(run, holder)
            if not prefix.records:
                raise irreparable(run.name if is_whole(run) else run_id, prefix)
            kept = len(prefix.records)
            bare = run if is_whole(run) else rebuilt(run_id, run.name, prefix)
            after, record = repaired(bare, prefix, total=len(journal))
            shelf.set_aside.setdefault(run_id, []).extend(journal[kept:])
            shelf.runs[run_id], shelf.journals[run_id] = after, [*prefix.records, record]
            return len(journal) - kept

    def find_prunable(self, old: Old) -> Prunable:
        with self._open() as shelf:
            going, staying, referred = self._survey(old)
            mail = [mail for mail in shelf.mail.values() if mail.run_id in {run.run_id for run in going}]
            blobs = [stored for digest, stored in shelf.blobs.items() if digest not in referred]
            return Prunable(
                runs=tuple(going),
                failed=sum(is_old_failure(run, old) for run in shelf.runs.values()),
                named=sum(is_old_named(run, old) for run in shelf.runs.values()),
                needed=staying,
                records=sum(run.length for run in going),
                mail=len(mail),
                blobs=len(blobs),
                size=sum(self._size(run) for run in going) + sum(map(len, blobs)),
            )

    def prune(self, old: Old) -> Iterator[Pruned]:
        self.join()
        with self._open() as shelf:
            would = self.find_prunable(old)
            _, _, referred = self._survey(old)
            for run in would.runs:
                for of_runs in (shelf.runs, shelf.journals, shelf.set_aside):
                    of_runs.pop(run.run_id, None)
            shelf.mail = {number: mail for number, mail in shelf.mail.items() if mail.run_id in shelf.runs}
            shelf.blobs = {digest: stored for digest, stored in shelf.blobs.items() if digest in referred}
        yield Pruned(len(would.runs), would.records, would.mail, would.blobs, would.size)

    def _survey(self, old: Old) -> tuple[list[Run], int, set[bytes]]:
        """What may go, how many must stay for the sake of others, and the large values that others refer to."""
        shelf = self._shelf
        runs = [verified_run(run) for run in shelf.runs.values()]
        going = {run.run_id for run in runs if is_old(run, old)}
        unfinished = [run.run_id for run in runs if run.run_id not in going and run.state not in FINISHED]
        referring = [record for run_id in unfinished for record in shelf.journals[run_id] if record.kind in REFERRING]
        mentioned = set().union(*(mentions(record.body) for record in referring))
        staying = needed(runs, going, mentioned)
        kept = [run_id for run_id in shelf.runs if run_id not in going - staying]
        bodies = [record.body for run_id in kept for record in self._every_record(run_id)]
        referred = set().union(*(addresses(body, self.load_blob) for body in bodies)) if shelf.blobs else set()
        return in_order(run for run in runs if run.run_id in going - staying), len(staying), referred

    def _every_record(self, run_id: str) -> list[Record]:
        return self._shelf.journals[run_id] + self._shelf.set_aside.get(run_id, [])

    def _size(self, run: Run) -> int:
        mail = [mail.body for mail in self._shelf.mail.values() if mail.run_id == run.run_id]
        return sum(len(body.encode()) for body in [record.body for record in self._shelf.journals[run.run_id]] + mail)

    def compact(self) -> Compacted:
        with self._open():
            return Compacted()

    def pin_run(self, run_id: str, version: str, *, by: str) -> Run:
        self.join()
        with self._open() as shelf:
            run = verified_run(self._known(run_id))
            after, records = pinned(run, version, *self._presence(run, Settings().stall_seconds), by=by)
            shelf.runs[run_id] = after
            shelf.journals[run_id].extend(records)
            return after

    def load_whole(self, run_id: str) -> Whole:
        with self._open():
            run, records = verified_run(self._known(run_id)), self.load_journal(run_id)
            return Whole(run, tuple(records), tuple(self.read_mail(run_id)))

    def load_wholes(self, run_ids: Sequence[str]) -> dict[str, Whole | PerdureError]:
        found: dict[str, Whole | PerdureError] = {}
        with self._open() as shelf:
            for run_id in run_ids:
                try:
                    if run_id in shelf.runs:
                        found[run_id] = self.load_whole(run_id)
                except PerdureError as error:
                    found[run_id] = error
        return found

    def import_run(self, whole: Whole, blobs: Iterable[tuple[bytes, bytes]] = ()) -> Run:
        self.join()
        with self._open() as shelf:
            run = whole.run
            if run.run_id in shelf.runs:
                return verified_run(shelf.runs[run.run_id])
            stored = dict(blobs)
            for mail in whole.mail:
                mail_id = self._next_mail()
                shelf.mail[mail_id] = msgspec.structs.replace(mail, mail_id=mail_id)
                run = heard_of(run, mail_id)
            shelf.queues.setdefault(run.queue, Queue(run.queue))
            shelf.runs[run.run_id] = run
            shelf.journals[run.run_id] = list(whole.records)
            shelf.blobs.update(stored)
            return run

    def receive_runs(self, arrivals: Sequence[Arrival], load_blob: Callable[[bytes], bytes]) -> list[Outcome]:
        self.join()
        with self._open():
            return [self._received(arrival, load_blob) for arrival in arrivals]

    def _received(self, arrival: Arrival, load_blob: Callable[[bytes], bytes]) -> Outcome:
        shelf, whole = self._shelf, arrival.whole
        run_id = whole.run.run_id
        known, here = shelf.runs.get(run_id), self.read_mail(run_id)
        try:
            if reception(known, arrival) is Reception.SAME:
                return None
            if known is not None:
                joined(known, shelf.journals[run_id], here, arrival)
        except PerdureError as error:
            return error
        numbers = [mail.mail_id for mail in here]
        for number, mail in enumerate(whole.mail):
            if number == len(numbers):
                numbers.append(self._next_mail())
            shelf.mail[numbers[number]] = msgspec.structs.replace(mail, mail_id=numbers[number])
        shelf.queues.setdefault(whole.run.queue, Queue(whole.run.queue))
        shelf.runs[run_id] = arriving(arrival, numbers, known=known)
        shelf.journals[run_id] = list(whole.records)
        shelf.blobs.update(large.pack(load_blob(address)) for address in arrival.blobs)
        return None

    def close_runs(self, families: Sequence[Sequence[Departure]]) -> list[Outcome]:
        self.join()
        with self._open():
            return [self._closed(family) for family in families]

    def _closed(self, family: Sequence[Departure]) -> Outcome:
        shelf, still_open = self._shelf, []
        try:
            for departure in family:
                run_id = departure.run.run_id
                mail, look = self.read_mail(run_id), self._presence(departure.run, math.inf)
                if not refuse_departure(shelf.runs.get(run_id), mail, departure, *look):
                    still_open.append((departure, max((each.mail_id for each in mail), default=0)))
        except PerdureError as error:
            return error
        for departure, heard in still_open:
            run, records = departed(departure, heard=heard)
            shelf.runs[run.run_id] = run
            shelf.journals[run.run_id].extend(records)
        return None

    def release_runs(self, moves: Sequence[tuple[str, str]]) -> list[Outcome]:
        self.join()
        with self._open() as shelf:
            for run_id, token in moves:
                run = released(shelf.runs.get(run_id), token)
                if run is not None:
                    shelf.runs[run_id] = run
            return [None] * len(moves)

    def _next_mail(self) -> int:
        return max(self._shelf.mail, default=0) + 1

    def close(self) -> None:
        with self._shelf.lock:
            self._is_closed = True
            if self._worker is not None:
                self._shelf.workers.pop(self._worker.worker_id, None)

    def _prefix(self, run: Run) -> Prefix:
        rows = map(msgspec.structs.astuple, self._shelf.journals[run.run_id])
        prefix = trusted_prefix(run, rows) if is_whole(run) else walked(run.run_id, rows)
        return sound_prefix(prefix, lambda digest: large.unpack(digest, self._shelf.blobs.get(digest)))

    def _known(self, run_id: str) -> Run:
        if run_id not in self._shelf.runs:
            raise unknown_run(run_id, self.location)
        return self._shelf.runs[run_id]

    @contextlib.contextmanager
    def _open(self) -> Iterator[Shelf]:
        """One verb at a time, and none after the store was closed."""
        with self._shelf.lock:
            if self._is_closed:
                raise StoreUnavailable(
                    "The store was closed.", safe="what it acknowledged stands.", hint="open it again"
                )
            yield self._shelf


def _stirs(mail: Mail, run: Run) -> bool:
    return mail.kind == "unpause" or not run.detail.startswith(PAUSED)


def _is_due(run: Run, now: float) -> bool:
    return run.state == RunState.WAITING and 0 < run.wake_at <= now


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
