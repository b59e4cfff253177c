"""Records in PostgreSQL: every verb of the port as one transaction, fenced by (run, epoch), timed by the database.

A write whose answer was lost is sent again. If it had landed it is refused, and the head of the journal tells why.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, Final

import msgspec
import psycopg
from psycopg import errors as server

from perdure.errors import InternalError, InvalidSettings, PerdureError
from perdure.records import FINISHED, Append, Loss, Mail, Record, Run, Worker, mail_digest
from perdure.settings import Settings
from perdure.store import blobs
from perdure.store.chain import deaf, unknown_run, verified, verified_mail, verified_run
from perdure.store.lease import Presence, claim, held, refuse_other_worker
from perdure.store.postgres import check, prune, repair
from perdure.store.postgres.append import Extension, complete, refused, rounds_of, write
from perdure.store.postgres.connect import BROKEN, Line, Patience, fetch, plain
from perdure.store.postgres.location import read_location
from perdure.store.postgres.migrate import check_schema, migrate
from perdure.store.postgres.narrow import narrowed
from perdure.store.postgres.presence import Life, Seen, look, worker_of
from perdure.store.postgres.whole import read_whole, write_whole
from perdure.store.protocol import Compacted, Finding, Old, Outcome, Prunable, Pruned, Terms, Which, Whole

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_MANY: Final = 10_000
AWAY_SECONDS: Final = 120.0
"""How long a run waits for a server that is away before it stops."""


class PostgresStore:
    """The store on a server. Safe to use from any thread; not from a forked child. Without `create` it is only read."""

    noticed = 0

    def __init__(self, url: str, *, create: bool = True, seconds: float = 10.0, lease_seconds: float = 30.0) -> None:
        where = read_location(url)
        self.location = where.shown
        self.created = False
        self._where = where
        self._lease_seconds = lease_seconds
        self._joining = threading.Lock()
        self._life: Life | None = None
        self._worker: Worker | None = None
        opening = Line(where, seconds=seconds)
        with contextlib.closing(opening):
            _check_durability(opening)
            if create:
                self.created = migrate(opening)
            check_schema(opening)
        self._reader = Line(where, seconds=AWAY_SECONDS)
        self._writer = Line(where, seconds=AWAY_SECONDS)
        self._unsynced = Line(where, seconds=AWAY_SECONDS, synchronous=False)

    def join(self) -> Worker:
        """Make this process known, with a lock that ends with its session."""
        with self._joining:
            if self._worker is None:
                self._writer.refuse_fork()
                self._life = Life(self._where, seconds=AWAY_SECONDS)
                self._worker = self._life.begin()
            return self._worker

    def beat(self, worker_id: str) -> None:
        """Renew every lease of this worker."""
        self._line_of(worker_id).fetch("beat", (worker_id,))

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
            lease_seconds=min(self._lease_seconds, stall_seconds),
            portable=self._where.portable,
        )

    def create_run(
        self, run: Run, first: Record, blobs: Sequence[tuple[bytes, bytes]] = (), *, claimed: Sequence[Record] = ()
    ) -> Run:
        """Accept a run; an id that is known returns the row that is there."""
        worker = self.join()

        def create(connection: psycopg.Connection[Any]) -> Run:
            with connection.transaction():
                inserted = fetch(connection, "insert_run", msgspec.structs.astuple(run))
                if not inserted:
                    return verified_run(_run_of(fetch(connection, "read_run", (run.run_id,))[0]))
                for blob in blobs:
                    fetch(connection, "insert_blob", blob)
                for record in (first, *claimed):
                    fetch(connection, "insert_record", (inserted[0][0], *msgspec.structs.astuple(record)))
                if claimed:
                    fetch(connection, "beat", (worker.worker_id,))
            return run

        return self._writer.again(create)

    def claim_run(self, run_id: str, worker_id: str, terms: Terms) -> Run:
        """Give the run to this worker, fenced by a new epoch."""
        claimant = self.join()
        refuse_other_worker(claimant, worker_id)

        def attempt(connection: psycopg.Connection[Any]) -> tuple[Run, PerdureError | None]:
            with connection.transaction():
                rows = fetch(connection, "lock_run", (run_id,))
                if not rows:
                    raise unknown_run(run_id, self.location)
                run = verified_run(_run_of(rows[0]))
                seen = self._look(connection, run.holder, terms.stall_seconds)
                presence = Presence.NONE if run.holder == worker_id else seen.presence
                claimed = claim(run, claimant, seen.worker, presence, terms, unproven_seconds=seen.unproven_seconds)
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
        if not batch:
            return []
        line = self._writer if power else self._unsynced
        try:
            return self._append(line, batch)
        except PerdureError as error:
            if not isinstance(error.__cause__, server.IntegrityError):
                return [error] * len(batch)
            if len(batch) > 1:
                return [self.append_all([append], power=power)[0] for append in batch]
            fault = f"Run {batch[0].run.name}: {error.__cause__}."
            return [InternalError(fault, safe="nothing was written.", hint="perdure verify")]

    def _append(self, line: Line, batch: Sequence[Append]) -> list[Outcome]:
        """Write, and where the answer was lost, write again: what had landed is refused then, and known by its head."""
        rounds, patience, doubtful = rounds_of(batch), Patience(AWAY_SECONDS), False
        while True:
            try:
                with line.use() as connection:
                    landed = _written(connection, rounds)
                    if doubtful and not all(landed):  # refused by its own first attempt?
                        landed = [a or b for a, b in zip(landed, _newest(connection, rounds), strict=True)]
                break
            except (*BROKEN, server.SerializationFailure, server.DeadlockDetected) as error:
                doubtful = True
                patience.pause(error, self._where)
        outcomes: list[Outcome] = [None] * len(batch)
        for is_in, extension in zip(landed, (each for one in rounds for each in one), strict=True):
            for place in extension.places:
                outcomes[place] = None if is_in else refused(batch[place].run)
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

    def list_ready(self, *, agents: Sequence[str], now: float, stall_seconds: float, limit: int = 100) -> list[Run]:
        """Runs of these agents that may go on now: abandoned, due, queued."""
        names, gone = list(agents), self._gone_holders(stall_seconds)
        rows = self._reader.fetch("list_held", (names, gone, limit)) if gone else []
        due = [run for run in self.list_due(now=now, limit=_MANY) if run.agent in names][:limit]
        queued = sorted(
            (_run_of(row) for agent in names for row in self._reader.fetch("list_queued", (agent, limit))),
            key=lambda run: run.created_at,
        )
        return [*(verified_run(_run_of(row)) for row in rows), *due, *map(verified_run, queued[:limit])]

    def _gone_holders(self, stall_seconds: float) -> list[str]:
        """Those who hold runs and are not alive any more."""

        def look_at_all(connection: psycopg.Connection[Any]) -> list[str]:
            holders = [holder for (holder,) in fetch(connection, "list_holders")]
            return [
                holder
                for holder in holders
                if self._look(connection, holder, stall_seconds).presence is not Presence.ALIVE
            ]

        return self._reader.again(look_at_all)

    def list_workers(self) -> list[Worker]:
        """Every worker that is known."""
        return [worker_of(row)[0] for row in self._reader.fetch("list_workers")]

    def ask_to_drain(self, worker_id: str) -> None:
        """Ask a worker to take nothing more."""
        self._unsynced.fetch("ask_to_drain", (worker_id,))

    def load_journal(self, run_id: str) -> list[Record]:
        """Every record of the run, verified."""

        def load(connection: psycopg.Connection[Any]) -> list[Record]:
            with check.snapshot(connection):
                rows = fetch(connection, "read_run", (run_id,))
                if not rows:
                    raise unknown_run(run_id, self.location)
                return verified(verified_run(_run_of(rows[0])), fetch(connection, "load_journal", (rows[0][0],)))

        return self._reader.again(load)

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
                is_second = once and fetch(connection, "find_mail", (mail.run_id, mail.kind, mail.key))
                fresh = msgspec.structs.replace(mail, kind="refused" if is_second else mail.kind, taken=0)
                digest = mail_digest(fresh)
                row = (fresh.run_id, fresh.kind, fresh.key, fresh.body, fresh.by, fresh.at, digest)
                ((mail_id,),) = fetch(connection, "insert_mail", row)
            return msgspec.structs.replace(fresh, mail_id=mail_id, digest=digest)

        return self._writer.again(deliver)

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

    def load_whole(self, run_id: str) -> Whole:
        """The run, its journal and its mail, all of one moment."""
        return self._reader.again(lambda connection: read_whole(connection, run_id, location=self.location))

    def import_run(self, whole: Whole, blobs: Iterable[tuple[bytes, bytes]] = ()) -> Run:
        """Take in a run that was kept elsewhere, all or nothing; tried once, as its large values come but once."""
        self.join()
        try:
            with self._writer.transaction() as connection:
                return write_whole(connection, whole, blobs)
        except BROKEN as error:
            raise plain(error, self._where) from error

    def close(self) -> None:
        """Let go of the store; what was held is free at once."""
        with self._joining:
            if self._life is not None:
                with contextlib.suppress(PerdureError):
                    self._life.end()
                self._life = None
            for line in (self._reader, self._writer, self._unsynced):
                line.close()


def _written(connection: psycopg.Connection[Any], rounds: list[list[Extension]]) -> list[bool]:
    """Send a batch; one round without large values and mail is one statement, which commits itself."""
    extensions = [extension for one in rounds for extension in one]
    if len(rounds) == 1 and not any(extension.blobs or extension.taken for extension in extensions):
        landed = write(connection, extensions)
        return [extension.run.run_id in landed for extension in extensions]
    outcomes = []
    with connection.transaction():
        for one in rounds:
            landed = write(connection, one)
            for extension in one:
                outcomes.append(extension.run.run_id in landed)
                if outcomes[-1]:
                    complete(connection, extension)
    return outcomes


def _newest(connection: psycopg.Connection[Any], rounds: list[list[Extension]]) -> list[bool]:
    """Which extensions are the newest of their run: they landed before the answer was lost."""
    extensions = [extension for one in rounds for extension in one]
    rows = fetch(connection, "read_heads", ([extension.run.run_id for extension in extensions],))
    heads = {run_id: (epoch, length, head) for run_id, epoch, length, head in rows}
    return [heads.get(each.run.run_id) == (each.run.epoch, each.run.length, each.run.head) for each in extensions]


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
