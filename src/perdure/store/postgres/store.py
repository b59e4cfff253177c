"""Records in PostgreSQL: every verb of the port as one transaction, fenced by (run, epoch), timed by the database.

A write whose answer was lost is sent again. If it had landed it is refused, and the head of the journal tells why.
"""

from __future__ import annotations

import contextlib
import math
import threading
from typing import TYPE_CHECKING, Any, Final

import msgspec
import psycopg

from perdure.errors import InvalidSettings, PerdureError
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
from perdure.store.chain import deaf, unknown_run, verified, verified_mail, verified_run
from perdure.store.lease import Presence, claim, held, refuse_other_worker
from perdure.store.moving import refuse_moving
from perdure.store.pinning import pinned
from perdure.store.postgres import check, moving, prune, repair, schedules
from perdure.store.postgres.append import create, rounds_of, write
from perdure.store.postgres.connect import Line, fetch
from perdure.store.postgres.lanes import LANES, Lanes
from perdure.store.postgres.location import read_location
from perdure.store.postgres.migrate import check_schema, migrate
from perdure.store.postgres.narrow import narrowed
from perdure.store.postgres.news import News
from perdure.store.postgres.presence import Absences, Life, Seen, heed_time, look, worker_of
from perdure.store.postgres.queues import (
    admit,
    counted,
    gone_holders,
    in_line,
    is_upkeep_due,
    queues_of,
    ready,
    take,
    wake,
)
from perdure.store.postgres.refusal import BROKEN, plain
from perdure.store.postgres.whole import read_whole, read_wholes, write_whole
from perdure.store.protocol import (
    ANYTHING,
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

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from perdure.store.debounce import Start
    from perdure.store.postgres.connect import Connection

_RUNNING: Final = str(RunState.RUNNING)


class PostgresStore:
    """The store on a server. Safe to use from any thread; not from a forked child. Without `create` it is only read."""

    noticed = 0
    lanes = LANES

    def __init__(
        self,
        url: str,
        *,
        create: bool = True,
        seconds: float = 10.0,
        lease_seconds: float = 30.0,
        away_seconds: float = 120.0,
    ) -> None:
        where = read_location(url)
        self.location = where.shown
        self.created = False
        self._where = where
        self.lease_seconds = lease_seconds
        self._away_seconds = away_seconds
        self._joining = threading.Lock()
        self._absences = Absences()
        self._life: Life | None = None
        self._worker: Worker | None = None
        self._queues = {DEFAULT_QUEUE}
        opening = Line(where, seconds=seconds)
        with contextlib.closing(opening):
            _check_durability(opening)
            if create:
                self.created = migrate(opening)
            check_schema(opening)
            opening.again(heed_time)
        self._reader = Line(where, seconds=away_seconds)
        self._writer = Line(where, seconds=away_seconds)
        self._unsynced = Line(where, seconds=away_seconds, synchronous=False)
        self._news = News(where)
        self._lanes = Lanes(where, first=self._writer, unsynced=self._unsynced, seconds=away_seconds)

    def join(self) -> Worker:
        """Make this process known, with a lock that ends with its session."""
        with self._joining:
            if self._worker is None:
                self._writer.refuse_fork()
                self._life = Life(self._where, seconds=self._away_seconds, lease_seconds=self.lease_seconds)
                self._worker = self._life.begin()
            return self._worker

    def beat(self, worker_id: str) -> None:
        """Renew every lease of this worker."""
        life = self._life
        if life is not None and worker_id == life.worker_id:
            life.beat()
        else:
            self._unsynced.fetch("beat", (worker_id,))

    def read_worker(self, worker_id: str) -> Worker | None:
        """The worker as it last made itself known."""
        rows = self._line_of(worker_id).fetch("read_worker", (worker_id,))
        return worker_of(rows[0])[0] if rows else None

    def _line_of(self, worker_id: str) -> Line:
        """Our own row is asked for on the line that holds our lock: one that broke is opened, and holds it, anew."""
        life = self._life
        return life.line if life is not None and worker_id == life.worker_id else self._unsynced

    def is_alive(self, worker_id: str, *, stall_seconds: float) -> bool:
        """Whether this worker is there."""
        return self._reader.again(lambda line: self._look(line, worker_id, stall_seconds)).presence is Presence.ALIVE

    def is_running(self, run: Run, *, stall_seconds: float) -> bool:
        """Whether a live process holds this run."""
        return self.is_alive(run.holder, stall_seconds=stall_seconds)

    def _look(self, connection: psycopg.Connection[Any], worker_id: str, stall_seconds: float) -> Seen:
        return look(
            connection,
            worker_id,
            stall_seconds=stall_seconds,
            lease_seconds=min(self.lease_seconds, stall_seconds),
            portable=self._where.portable,
        )

    def create_run(
        self, run: Run, first: Record, blobs: Sequence[tuple[bytes, bytes]] = (), *, claimed: Sequence[Record] = ()
    ) -> Run:
        """Accept a run; an id that is known returns the row that is there."""
        worker = self.join()

        def create_held(connection: Connection) -> Run:
            if create(connection, run, (first, *claimed), worker.worker_id):
                return run
            return verified_run(_run_of(fetch(connection, "read_run", (run.run_id,))[0]))

        def create_placed(connection: psycopg.Connection[Any]) -> Run:
            with connection.transaction():
                placed = in_line(connection, [run])[0] if is_ready(run) else run
                inserted = fetch(connection, "insert_run", msgspec.structs.astuple(placed))
                if not inserted:
                    return verified_run(_run_of(fetch(connection, "read_run", (run.run_id,))[0]))
                if run.queue not in self._queues:
                    fetch(connection, "meet_queue", (run.queue,))
                for blob in blobs:
                    fetch(connection, "insert_blob", blob)
                for record in (first, *claimed):
                    fetch(connection, "insert_record", (inserted[0][0], *msgspec.structs.astuple(record)))
                if claimed:
                    fetch(connection, "beat", (worker.worker_id,))
            self._queues.add(run.queue)
            return placed

        at_once = claimed and not blobs and run.queue in self._queues and not is_ready(run)
        created = self._writer.again(create_held if at_once else create_placed)
        if not claimed:
            self._news.tell([created.run_id])
        return created

    def claim_run(self, run_id: str, worker_id: str, terms: Terms) -> Run:
        """Give the run to this worker, fenced by a new epoch."""
        claimant = self.join()
        refuse_other_worker(claimant, worker_id)

        def attempt(connection: Connection) -> tuple[Run, PerdureError | None]:
            with connection.transaction():
                rows = fetch(connection, "lock_run", (run_id,))
                if not rows:
                    raise unknown_run(run_id, self.location)
                run = verified_run(_run_of(rows[0]))
                seen = self._look(connection, run.holder, terms.stall_seconds)
                presence = Presence.NONE if run.holder == worker_id else seen.presence
                claimed = claim(run, claimant, seen.worker, presence, terms, unproven_seconds=seen.unproven_seconds)
                if claimed.refusal is None and needs_place(run, terms):
                    admit(connection, run)
                if claimed.records:
                    fetch(connection, "beat", (worker_id,))
                    (extensions,) = rounds_of([Append(claimed.run, claimed.records)], epoch=run.epoch)
                    write(connection, extensions)
            return claimed.run, claimed.refusal

        run, refusal = self._writer.again(attempt)
        if refusal is not None:
            raise refusal
        return run

    def append_all(self, batch: Sequence[Append], *, power: bool) -> list[Outcome]:
        """Extend journals in one transaction; each append is fenced by epoch and length."""
        outcomes = self._lanes.append_all(batch, power=power)
        for append in batch:
            if append.run.state != _RUNNING:
                self._news.tell((append.run.run_id,))
        return outcomes

    def holds(self, run_id: str, epoch: int) -> bool:
        """Whether this epoch is still the run's newest."""
        rows = self._reader.fetch("read_epoch", (run_id,))
        return bool(rows) and rows[0][0] == epoch

    def read_run(self, run_id: str) -> Run | None:
        """The run's row, verified."""
        rows = self._reader.fetch("read_run", (run_id,))
        return verified_run(_run_of(rows[0])) if rows else None

    def list_runs(self, *, agent: str = "", arguments: bytes = b"", name: str = "", limit: int = 1000) -> list[Run]:
        """Runs, newest first, verified."""
        if agent:
            rows = self._reader.fetch("list_runs_by_call", (agent, arguments, limit))
        elif name:
            rows = self._reader.fetch("list_runs_by_name", (name, limit))
        else:
            rows = self._reader.fetch("list_runs", (limit,))
        return [verified_run(_run_of(row)) for row in rows]

    def find_runs(self, which: Which, *, limit: int = 1000, skip: int = 0) -> list[Run]:
        """The runs that are meant, newest first, verified."""
        return [verified_run(_run_of(row)) for row in self._find("find_runs", which, limit, skip)]

    def count_runs(self, which: Which) -> int:
        """How many runs are meant."""
        ((count,),) = self._find("count_runs", which)
        return int(count)

    def _find(self, query: str, which: Which, *more: int) -> list[tuple[Any, ...]]:
        statement, values = narrowed(query, which)
        return self._reader.again(lambda line: line.execute(statement, (*values, *more)).fetchall())

    def list_due(self, *, now: float, limit: int = 1000) -> list[Run]:
        """Waiting runs whose time has come, or that have mail they had not heard of."""
        return [verified_run(_run_of(row)) for row in self._reader.fetch("list_due", (now, limit))]

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
        portable = self._where.portable
        silence = min(self.lease_seconds, stall_seconds) if portable else stall_seconds

        def look_at_all(connection: psycopg.Connection[Any]) -> list[Run]:
            def is_gone(holder: str) -> bool:
                seen = self._look(connection, holder, stall_seconds)
                return self._absences.are_over(holder, seen, returned_at=self._reader.returned_at)

            held = gone_holders(connection, is_gone, silence_seconds=silence, portable=portable)
            return ready(connection, asked(agents, queues, version), held, now=now, limit=limit)

        return self._reader.again(look_at_all)

    def wake_due(self, *, now: float, limit: int = 100) -> int:
        """Let delayed runs whose time has come be ready."""

        def wake_some(connection: psycopg.Connection[Any]) -> int:
            if not is_upkeep_due(connection, now=now):
                return 0
            with connection.transaction():
                return wake(connection, now=now, limit=limit)

        return self._unsynced.again(wake_some)

    def declare_queue(self, queue: Queue) -> None:
        """Say what limits a queue has."""
        self._writer.fetch("declare_queue", msgspec.structs.astuple(queue))

    def list_queues(self) -> list[Queue]:
        """Every queue that is known, by name."""
        return self._reader.again(queues_of)

    def count_queues(self) -> list[Crowd]:
        """How many runs stand where in each queue."""
        return self._reader.again(counted)

    def take_tokens(self, bucket: str, tokens: int = 1, *, rate: float, burst: int) -> float:
        """Take tokens out of a shared bucket, all of them or none, by the clock of the server."""

        def take_some(connection: psycopg.Connection[Any]) -> float:
            with connection.transaction():
                return take(connection, bucket, tokens, rate=rate, burst=burst)

        return self._unsynced.again(take_some) if rate else 0.0

    def now(self) -> float:
        """The server's time."""
        ((now,),) = self._reader.fetch("read_clock")
        return float(now)

    def list_schedules(self) -> list[Schedule]:
        """Every schedule, by name."""
        return self._reader.again(schedules.schedules_of)

    def change_schedule(self, before: Schedule | None, after: Schedule | None) -> bool:
        """Put a schedule in place of another, if that is still what is kept."""
        return self._writer.again(lambda connection: schedules.change_schedule(connection, before, after))

    def debounce_run(self, start: Start) -> Run:
        """Accept a start of a key, in the run of its key that nobody has taken, or as a new one."""
        self.join()
        run = self._writer.again(lambda connection: schedules.debounce(connection, start))
        self._news.tell([run.run_id])
        return run

    def list_debounces(self, *, after: tuple[str, str] = ("", ""), limit: int = 1000) -> list[Debounce]:
        """So many of the keys of debounced starts, those after this one."""
        return self._reader.again(lambda connection: schedules.debounces_of(connection, after=after, limit=limit))

    def keep_debounce(self, debounce: Debounce) -> bool:
        """Keep a key that comes from another store, unless a newer start is known."""
        return self._writer.again(lambda connection: schedules.keep_debounce(connection, debounce))

    def list_workers(self) -> list[Worker]:
        """Every worker that is known."""
        return [worker_of(row)[0] for row in self._reader.fetch("list_workers")]

    def ask_to_drain(self, worker_id: str) -> None:
        """Ask a worker to take nothing more."""
        self._unsynced.fetch("ask_to_drain", (worker_id,))
        self._news.tell(ANYTHING)

    def record_death(self, worker_id: str, cause: str) -> None:
        """Keep how a worker's process ended."""
        self._unsynced.fetch("record_death", (cause, worker_id))

    def load_journal(self, run_id: str) -> list[Record]:
        """Every record of the run, verified; row and records are of one statement, and so of one moment."""
        rows = self._reader.fetch("load_run", (run_id,))
        if not rows:
            raise unknown_run(run_id, self.location)
        columns = 1 + len(Run.__struct_fields__)
        return verified(verified_run(_run_of(rows[0][:columns])), [row[columns:] for row in rows[1:]])

    def load_blob(self, digest: bytes) -> bytes:
        """A large value, verified against its address."""
        rows = self._reader.fetch("load_blob", (digest,))
        return blobs.unpack(digest, rows[0][0] if rows else None)

    def post(self, mail: Mail, *, once: bool = False, heard: bool = False) -> Mail:
        """Put mail into a run's mailbox; its row is locked, so that mail of a run is numbered as it is committed."""
        self.join()

        def deliver(connection: psycopg.Connection[Any]) -> Mail:
            with connection.transaction():
                states = fetch(connection, "lock_state", (mail.run_id,))
                if not states:
                    raise unknown_run(mail.run_id, self.location)
                if heard and states[0][0] in FINISHED:
                    raise deaf(mail.run_id)
                if states[0][1]:
                    refuse_moving(_run_of(fetch(connection, "read_run", (mail.run_id,))[0]))
                is_second = once and fetch(connection, "find_mail", (mail.run_id, mail.kind, mail.key))
                fresh = msgspec.structs.replace(mail, kind="refused" if is_second else mail.kind, taken=0)
                digest = mail_digest(fresh)
                row = (fresh.run_id, fresh.kind, fresh.key, fresh.body, fresh.by, fresh.at, digest)
                ((mail_id,),) = fetch(connection, "insert_mail", row)
            return msgspec.structs.replace(fresh, mail_id=mail_id, digest=digest)

        posted = self._writer.again(deliver)
        self._news.tell([mail.run_id])
        return posted

    def wait_for_news(self, seconds: float) -> frozenset[str]:
        """Wait until somebody tells of a run or of mail, for so long at most."""
        return self._news.wait(seconds)

    def read_mail(self, run_id: str) -> list[Mail]:
        """All mail of the run, oldest first, verified."""
        return [verified_mail(Mail(*row)) for row in self._reader.fetch("read_mail", (run_id,))]

    def losses(self) -> list[Loss]:
        """None: the server itself keeps what it acknowledged, and an older copy of it cannot be noticed here."""
        self._reader.fetch("read_clock")
        return []

    def check(self) -> Iterator[Finding | Run]:
        """Walk over everything kept, as it was at one moment."""
        yield from self._reader.again(lambda connection: list(check.findings(connection)))

    def repair_run(self, run_id: str) -> int:
        """Set everything after the trusted prefix aside, so that the run can go on."""
        self.join()
        return self._writer.again(
            lambda connection: repair.repair(connection, run_id, self._refuse_held, self.location)
        )

    def _refuse_held(self, connection: psycopg.Connection[Any], run: Run) -> None:
        seen = self._look(connection, run.holder, Settings().stall_seconds)
        if seen.presence is Presence.ALIVE:
            raise held(run, seen.worker)

    def find_prunable(self, old: Old) -> Prunable:
        """What `prune` would remove."""
        return self._reader.again(lambda connection: prune.prunable(connection, old))

    def prune(self, old: Old) -> Iterator[Pruned]:
        """Remove what nobody needs any more, a few runs in each transaction."""
        self.join()
        yield from prune.prune(self._writer, self.find_prunable(old))

    def compact(self) -> Compacted:
        """Nothing: the server reuses room by itself."""
        return Compacted()

    def pin_run(self, run_id: str, version: str, *, by: str) -> Run:
        """Let only workers of this version take the run; any where it is empty."""
        self.join()

        def pin(connection: psycopg.Connection[Any]) -> Run:
            with connection.transaction():
                rows = fetch(connection, "lock_run", (run_id,))
                if not rows:
                    raise unknown_run(run_id, self.location)
                run = verified_run(_run_of(rows[0]))
                seen = self._look(connection, run.holder, Settings().stall_seconds)
                after, records = pinned(run, version, seen.worker, seen.presence, by=by)
                fetch(connection, "replace_run", (*msgspec.structs.astuple(after), rows[0][0]))
                moving.insert_records(connection, [(rows[0][0], *msgspec.structs.astuple(each)) for each in records])
            return after

        return self._writer.again(pin)

    def load_whole(self, run_id: str) -> Whole:
        """The run, its journal and its mail, all of one moment."""
        return self._reader.again(lambda connection: read_whole(connection, run_id, location=self.location))

    def load_wholes(self, run_ids: Sequence[str]) -> dict[str, Whole | PerdureError]:
        """The same for several runs at once."""
        return self._reader.again(lambda connection: read_wholes(connection, run_ids))

    def import_run(self, whole: Whole, blobs: Iterable[tuple[bytes, bytes]] = ()) -> Run:
        """Take in a run that was kept elsewhere, all or nothing; tried once, as its large values come but once."""
        self.join()
        try:
            with self._writer.transaction() as connection:
                return write_whole(connection, whole, blobs)
        except BROKEN as error:
            raise plain(error, self._where) from error

    def receive_runs(self, arrivals: Sequence[Arrival], load_blob: Callable[[bytes], bytes]) -> list[Outcome]:
        """Take in runs that move here, parked until they are released."""
        self.join()

        def receive(connection: psycopg.Connection[Any]) -> list[Outcome]:
            with connection.transaction():
                return moving.receive(connection, arrivals, load_blob)

        return self._writer.again(receive)

    def close_runs(self, families: Sequence[Sequence[Departure]]) -> list[Outcome]:
        """Close runs that came in elsewhere, each family as a whole."""
        self.join()

        def close(connection: psycopg.Connection[Any]) -> list[Outcome]:
            def seen(run: Run) -> Seen:
                return self._look(connection, run.holder, math.inf)

            with connection.transaction():
                return moving.close(connection, families, seen)

        return self._writer.again(close)

    def release_runs(self, moves: Sequence[tuple[str, str]]) -> list[Outcome]:
        """Let runs go that are closed where they were."""
        self.join()

        def release(connection: psycopg.Connection[Any]) -> list[Outcome]:
            with connection.transaction():
                return moving.release(connection, moves)

        return self._writer.again(release)

    def close(self) -> None:
        """Let go of the store; what was held is free at once."""
        with self._joining:
            if self._life is not None:
                with contextlib.suppress(PerdureError):
                    self._life.end()
                self._life = None
            self._news.close()
            self._reader.close()
            self._lanes.close()


def _run_of(row: tuple[Any, ...]) -> Run:
    return Run(*row[1:])


def _check_durability(line: Line) -> None:
    """A server that does not wait for its disk would lose what it acknowledged."""
    ((fsync, _),) = line.fetch("read_durability")
    if fsync == "off":
        raise InvalidSettings(
            f"The server of {line.location.shown} runs with fsync=off: it may lose what it acknowledged.",
            safe="nothing was started.",
            hint="set fsync=on in its configuration",
        )
