"""Records in one SQLite file: every verb of the port as one transaction through one connection."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import msgspec

from perdure import clock
from perdure.errors import InternalError, LeaseLost, PerdureError
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
    mail_digest,
)
from perdure.settings import Settings
from perdure.store import blobs
from perdure.store.chain import deaf, taken_mail, unknown_run, verified, verified_mail, verified_run
from perdure.store.health import refuse_full
from perdure.store.lease import Presence, claim, held, refuse_other_worker
from perdure.store.moving import refuse_moving
from perdure.store.pinning import pinned
from perdure.store.protocol import (
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
from perdure.store.queues import asked, is_ready, needs_place
from perdure.store.sql import changeable, only_grows
from perdure.store.sqlite import seldom
from perdure.store.sqlite.connect import plain_errors
from perdure.store.sqlite.file import SqliteFile
from perdure.store.sqlite.loss import verified_losses
from perdure.store.sqlite.narrow import narrowed
from perdure.store.sqlite.presence import exclusive, read_mark
from perdure.store.sqlite.queues import admit, counted, in_line, is_upkeep_due, queues_of, ready, take, wake
from perdure.store.sqlite.schedules import change_schedule, debounce, debounces_of, keep_debounce, schedules_of
from perdure.store.sqlite.statements import Q, fetch, insert_record, journal_rows, replace_run, run_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from perdure.store.debounce import Start


class SqliteStore(SqliteFile):
    """The store in one file. Safe to use from any thread; not from a forked child. Without `create` it is only read."""

    lease_seconds = 0.0
    lanes = 1

    def __init__(self, path: str | Path, *, create: bool = True, seconds: float = 10.0, room_bytes: int = 0) -> None:
        super().__init__(path, create=create, seconds=seconds)
        self._room_bytes = room_bytes
        self._rows: dict[str, int] = {}
        """The numbers of the runs that this process holds."""
        self._queues = {DEFAULT_QUEUE}

    def create_run(
        self, run: Run, first: Record, blobs: Sequence[tuple[bytes, bytes]] = (), *, claimed: Sequence[Record] = ()
    ) -> Run:
        """Accept a run; an id that is known returns the row that is there."""
        refuse_full(self.path, room_bytes=self._room_bytes)
        worker = self.join()
        with self._transaction() as connection:
            rows = fetch(connection, "read_run", (run.run_id,))
            if rows:
                return verified_run(run_of(rows[0]))
            if is_ready(run):
                run = in_line(connection, run)
            if run.queue not in self._queues:
                connection.execute(Q["meet_queue"], (run.queue,))
            connection.execute(Q["insert_run"], msgspec.structs.astuple(run))
            number = connection.last_insert_rowid()
            self._insert(number, (first, *claimed), blobs)
            if claimed:
                self._rows[run.run_id] = number
                self._beat(connection, worker.worker_id)
        self._queues.add(run.queue)
        return run

    def claim_run(self, run_id: str, worker_id: str, terms: Terms) -> Run:
        """Give the run to this worker, fenced by a new epoch."""
        refuse_full(self.path, room_bytes=self._room_bytes)
        claimant = self.join()
        refuse_other_worker(claimant, worker_id)
        with self._transaction() as connection:
            rows = fetch(connection, "read_run", (run_id,))
            if not rows:
                raise unknown_run(run_id, self.location)
            run = verified_run(run_of(rows[0]))
            holder, presence = self._presence(run, terms.stall_seconds)
            if run.holder == worker_id:
                presence = Presence.NONE
            claimed = claim(run, claimant, holder, presence, terms)
            if claimed.refusal is None and needs_place(run, terms):
                admit(connection, run)
            if claimed.records:
                self._rows[run_id] = rows[0][0]
                self._beat(connection, worker_id)
                self._extend(Append(claimed.run, claimed.records), epoch=run.epoch)
        if claimed.refusal is not None:
            raise claimed.refusal
        return claimed.run

    def append_all(self, batch: Sequence[Append], *, power: bool) -> list[Outcome]:
        """Extend journals in one transaction; each append is fenced by epoch and length."""
        try:
            with self._transaction(power=power):
                return [self._extend(append, epoch=append.run.epoch) for append in batch]
        except PerdureError as error:
            if not isinstance(error.__cause__, apsw.ConstraintError):
                return [error] * len(batch)
            if len(batch) > 1:
                return [self.append_all([append], power=power)[0] for append in batch]
            return [
                InternalError(
                    f"Run {batch[0].run.name}: {error.__cause__}.", safe="nothing was written.", hint="perdure verify"
                )
            ]

    def _extend(self, append: Append, *, epoch: int) -> Outcome:
        run = append.run
        number = self._number(run.run_id)
        fence = (number, run.run_id, epoch, run.length - len(append.records))
        if not (only_grows(run, append.records) and self._lengthen(run, fence)):
            self._connection.execute(Q["update_run"], (*changeable(run), *fence))
            is_fenced = self._connection.changes() != 1
            if is_fenced or run.state != RunState.RUNNING:
                self._rows.pop(run.run_id, None)  # a worker lives for months, and a run with it only for a while
            if is_fenced:
                return LeaseLost(f"Run {run.name} is held by another worker now.")
        self._insert(number, append.records, append.blobs)
        if append.records:
            self._pen.newest = self._connection.last_insert_rowid()
        for mail_id in append.taken:
            self._take(mail_id, run)
        return None

    def _lengthen(self, run: Run, fence: tuple[int, str, int, int]) -> bool:
        """Change only what grows with a journal, so that a step writes no index; False where that is not all."""
        progress = (run.updated_at, run.deliveries, run.steps, run.suspects, run.length)
        values = (*progress, run.tokens, run.dollars, run.head, run.digest, *fence)
        self._pen.cursor.execute(Q["extend_run"], values)
        return self._connection.changes() == 1

    def _number(self, run_id: str) -> int:
        """The run's number in this file; 0, which no run has, where there is none."""
        if run_id not in self._rows:
            for (number,) in fetch(self._connection, "find_run", (run_id,)):
                self._rows[run_id] = number
        return self._rows.get(run_id, 0)

    def _take(self, mail_id: int, run: Run) -> None:
        for row in fetch(self._connection, "read_untaken", (mail_id, run.run_id)):
            taken = taken_mail(verified_mail(Mail(*row)), at_length=run.length)
            self._connection.execute(Q["take_mail"], (taken.taken, taken.digest, mail_id))

    def _insert(self, number: int, records: Sequence[Record], stored: Sequence[tuple[bytes, bytes]]) -> None:
        for blob in stored:
            self._connection.execute(Q["insert_blob"], blob)
        for record in records:
            insert_record(self._pen.cursor, number, record)

    def holds(self, run_id: str, epoch: int) -> bool:
        """Whether this epoch is still the run's newest."""
        rows = self._read("read_epoch", (run_id,))
        return bool(rows) and rows[0][0] == epoch

    def read_run(self, run_id: str) -> Run | None:
        """The run's row, verified."""
        rows = self._read("read_run", (run_id,))
        return verified_run(run_of(rows[0])) if rows else None

    def list_runs(self, *, agent: str = "", arguments: bytes = b"", name: str = "", limit: int = 1000) -> list[Run]:
        """Runs, newest first, verified."""
        if agent:
            rows = self._read("list_runs_by_call", (agent, arguments, limit))
        elif name:
            rows = self._read("list_runs_by_name", (name, limit))
        else:
            rows = self._read("list_runs", (limit,))
        return [verified_run(run_of(row)) for row in rows]

    def find_runs(self, which: Which, *, limit: int = 1000, skip: int = 0) -> list[Run]:
        """The runs that are meant, newest first, verified."""
        return [verified_run(run_of(row)) for row in self._find("find_runs", which, limit, skip)]

    def count_runs(self, which: Which) -> int:
        """How many runs are meant."""
        ((count,),) = self._find("count_runs", which)
        return int(count)

    def _find(self, query: str, which: Which, *more: int) -> list[tuple[Any, ...]]:
        self._fork.refuse()
        statement, values = narrowed(query, which)
        with self._reading, plain_errors(self.path):
            return self._reader.execute(statement, (*values, *more)).fetchall()

    def list_due(self, *, now: float, limit: int = 1000) -> list[Run]:
        """Waiting runs whose time has come, or that have mail they had not heard of."""
        return [verified_run(run_of(row)) for row in self._read("list_due", (now, limit))]

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
        """Runs of these agents that may go on now: abandoned, due, queued."""
        holders = {holder for _, holder in self._read("list_holders", ())}
        gone = {holder for holder in holders if not self.is_alive(holder, stall_seconds=stall_seconds)}
        with self._snapshot() as reader:
            return ready(reader, asked(agents, queues, version), gone, now=now, limit=limit)

    def wake_due(self, *, now: float, limit: int = 100) -> int:
        """Let delayed runs whose time has come be ready; whoever finds none writes nothing."""
        with self._snapshot() as reader:
            if not is_upkeep_due(reader, now=now):
                return 0
        with self._transaction(power=False, counted=False) as connection:
            return wake(connection, now=now, limit=limit)

    def declare_queue(self, queue: Queue) -> None:
        """Say what limits a queue has."""
        with self._transaction(counted=False) as connection:
            connection.execute(Q["declare_queue"], msgspec.structs.astuple(queue))

    def list_queues(self) -> list[Queue]:
        """Every queue that is known, by name."""
        with self._snapshot() as reader:
            return queues_of(reader)

    def count_queues(self) -> list[Crowd]:
        """How many runs stand where in each queue, all of one moment."""
        with self._snapshot() as reader:
            return counted(reader)

    def take_tokens(self, bucket: str, tokens: int = 1, *, rate: float, burst: int) -> float:
        """Take tokens out of a shared bucket, all of them or none."""
        if not rate:
            return 0.0
        with self._transaction(power=False, counted=False) as connection:
            return take(connection, bucket, tokens, rate=rate, burst=burst)

    def now(self) -> float:
        """The time that everybody on this machine goes by."""
        return clock.wall_seconds()

    def list_schedules(self) -> list[Schedule]:
        """Every schedule, by name."""
        with self._snapshot() as reader:
            return schedules_of(reader)

    def change_schedule(self, before: Schedule | None, after: Schedule | None) -> bool:
        """Put a schedule in place of another, if that is still what is kept."""
        with self._transaction(counted=False) as connection:
            return change_schedule(connection, before, after)

    def debounce_run(self, start: Start) -> Run:
        """Accept a start of a key, in the run of its key that nobody has taken, or as a new one."""
        self.join()
        with self._transaction() as connection:
            return debounce(connection, start, now=clock.wall_seconds())

    def list_debounces(self, *, after: tuple[str, str] = ("", ""), limit: int = 1000) -> list[Debounce]:
        """So many of the keys of debounced starts, those after this one."""
        with self._snapshot() as reader:
            return debounces_of(reader, after=after, limit=limit)

    def keep_debounce(self, debounce: Debounce) -> bool:
        """Keep a key that comes from another store, unless a newer start is known."""
        with self._transaction(counted=False) as connection:
            return keep_debounce(connection, debounce)

    def load_journal(self, run_id: str) -> list[Record]:
        """Every record of the run, verified."""
        with self._snapshot() as reader:
            rows = fetch(reader, "read_run", (run_id,))
            if not rows:
                raise unknown_run(run_id, self.location)
            run = verified_run(run_of(rows[0]))
            return verified(run, journal_rows(reader, rows[0][0]))

    def load_blob(self, digest: bytes) -> bytes:
        """A large value, verified against its address."""
        rows = self._read("load_blob", (digest,))
        return blobs.unpack(digest, rows[0][0] if rows else None)

    def post(self, mail: Mail, *, once: bool = False, heard: bool = False) -> Mail:
        """Put mail into a run's mailbox; with `once`, a second one of its kind and key is kept as refused."""
        self.join()
        with self._transaction() as connection:
            states = fetch(connection, "read_state", (mail.run_id,))
            if not states:
                raise unknown_run(mail.run_id, self.location)
            if heard and states[0][0] in FINISHED:
                raise deaf(mail.run_id)
            if states[0][1]:
                refuse_moving(run_of(fetch(connection, "read_run", (mail.run_id,))[0]))
            is_second = once and fetch(connection, "find_mail", (mail.run_id, mail.kind, mail.key))
            fresh = msgspec.structs.replace(mail, kind="refused" if is_second else mail.kind, taken=0)
            digest = mail_digest(fresh)
            connection.execute(
                Q["insert_mail"], (fresh.run_id, fresh.kind, fresh.key, fresh.body, fresh.by, fresh.at, digest)
            )
            mail_id = connection.last_insert_rowid()
            connection.execute(Q["raise_base"], (1,))
        return msgspec.structs.replace(fresh, mail_id=mail_id, digest=digest)

    def wait_for_news(self, seconds: float) -> frozenset[str]:
        """Nobody tells; whoever waits looks now and then."""
        clock.sleep(seconds)
        return frozenset()

    def read_mail(self, run_id: str) -> list[Mail]:
        """All mail of the run, oldest first, verified."""
        return [verified_mail(Mail(*row)) for row in self._read("read_mail", (run_id,))]

    def losses(self) -> list[Loss]:
        """Every loss of acknowledged commits that was ever noticed here."""
        with self._snapshot() as reader:
            return verified_losses(reader)

    def check(self) -> Iterator[Finding | Run]:
        """Walk over everything kept, as it was at one moment."""
        slots = read_mark(self._beside("mark"))
        with self._snapshot() as reader:
            found = list(seldom.check.findings(reader, slots, path=self.path, mark=self._beside("mark")))
        yield from found

    def repair_run(self, run_id: str) -> int:
        """Set everything after the trusted prefix aside, so that the run can go on."""
        with self._writing:
            self._enter()
            number = seldom.repair.find_run(self._connection, run_id)
            self._rebuild_indexes()
            with self._transaction() as connection:
                number = number or seldom.repair.find_run(connection, run_id)
                if number is None:
                    raise unknown_run(run_id, self.location)
                return seldom.repair.repair(connection, run_id, number, self._refuse_held)

    def _rebuild_indexes(self) -> None:
        """Best effort: what the rows say decides, and a table too damaged for this is judged row by row."""
        with contextlib.suppress(PerdureError), self._transaction(counted=False) as connection:
            connection.execute(Q["reindex"])

    def _refuse_held(self, run: Run) -> None:
        holder, presence = self._presence(run, Settings().stall_seconds)
        if presence is Presence.ALIVE:
            raise held(run, holder)

    def find_prunable(self, old: Old) -> Prunable:
        """What `prune` would remove."""
        with self._snapshot() as reader:
            return seldom.prune.prunable(reader, old)

    def prune(self, old: Old) -> Iterator[Pruned]:
        """Remove what nobody needs any more, a few runs in each transaction."""
        self.join()
        with self._snapshot() as reader:
            survey = seldom.prune.Survey(reader, old)
        yield from seldom.prune.prune(survey, self._transaction, lambda run_id: self._rows.pop(run_id, None))

    def compact(self) -> Compacted:
        """Give free room back, where nobody would have to wait for that; nobody opens the store meanwhile."""
        worker = self.join()
        with self._writing, plain_errors(self.path), exclusive(self._beside("lock"), seconds=self._seconds):
            self._fork.refuse()
            return seldom.prune.compact(self._connection, self.path, self._beside("life"), own_id=worker.worker_id)

    def pin_run(self, run_id: str, version: str, *, by: str) -> Run:
        """Let only workers of this version take the run; any where it is empty."""
        self.join()
        with self._transaction() as connection:
            rows = fetch(connection, "read_run", (run_id,))
            if not rows:
                raise unknown_run(run_id, self.location)
            run = verified_run(run_of(rows[0]))
            after, records = pinned(run, version, *self._presence(run, Settings().stall_seconds), by=by)
            replace_run(connection, after, rows[0][0])
            self._insert(rows[0][0], records, ())
        return after

    def load_whole(self, run_id: str) -> Whole:
        """The run, its journal and its mail, all of one moment."""
        with self._snapshot() as reader:
            return seldom.whole.read_whole(reader, run_id, location=self.location)

    def load_wholes(self, run_ids: Sequence[str]) -> dict[str, Whole | PerdureError]:
        """The same for several runs at once."""
        with self._snapshot() as reader:
            return seldom.moving.read_wholes(reader, run_ids, location=self.location)

    def import_run(self, whole: Whole, blobs: Iterable[tuple[bytes, bytes]] = ()) -> Run:
        """Take in a run that was kept elsewhere, all of it or nothing."""
        self.join()
        with self._transaction() as connection:
            return seldom.whole.write_whole(connection, whole, blobs)

    def receive_runs(self, arrivals: Sequence[Arrival], load_blob: Callable[[bytes], bytes]) -> list[Outcome]:
        """Take in runs that move here, parked until they are released."""
        self.join()
        with self._transaction() as connection:
            return [seldom.moving.receive(connection, arrival, load_blob) for arrival in arrivals]

    def close_runs(self, families: Sequence[Sequence[Departure]]) -> list[Outcome]:
        """Close runs that came in elsewhere, each family as a whole."""
        self.join()
        with self._transaction() as connection:
            return [seldom.moving.close(connection, family, self._look_for_good) for family in families]

    def _look_for_good(self, run: Run) -> tuple[Worker | None, Presence]:
        """Who holds the run; a process that is silent but there still counts."""
        return self._presence(run, math.inf)

    def release_runs(self, moves: Sequence[tuple[str, str]]) -> list[Outcome]:
        """Let runs go that are closed where they were."""
        self.join()
        with self._transaction() as connection:
            return [seldom.moving.release(connection, run_id, token) for run_id, token in moves]
