"""Records in one SQLite file: every verb of the port as one transaction through one connection.

Beside `perdure.db` live `perdure.db-wal` (data: never delete it), `perdure.db-mark` (what was acknowledged),
`perdure.db-lock` (held while a process opens the store) and `perdure.db-life/` (one lock per living process).
"""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw
import msgspec

from perdure import clock
from perdure.errors import (
    CheckpointCorrupt,
    CommitsLost,
    InternalError,
    LeaseLost,
    PerdureError,
    StoreUnavailable,
    UnknownRun,
    UsageError,
)
from perdure.records import Append, Loss, Mail, Record, Run, RunState, WaitReason, Worker, mail_digest, sealed_run
from perdure.store import blobs
from perdure.store.chain import repaired, trusted_prefix, verified, verified_run
from perdure.store.lease import Park, Presence, claim, write_park
from perdure.store.protocol import Finding, Outcome, Terms
from perdure.store.sql import load_queries
from perdure.store.sqlite.check import findings
from perdure.store.sqlite.connect import (
    check_schema,
    connect,
    explain,
    gate,
    migrate,
    plain_errors,
    prepare_folder,
    rollback,
)
from perdure.store.sqlite.presence import Life, Mark, exclusive, is_locked

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

Q: Final = load_queries("perdure.store.sqlite")
_FORGET_WORKER_SECONDS: Final = 24 * 3600.0


class SqliteStore:
    """The store in one file. Safe to use from any thread; not from a forked child."""

    def __init__(self, path: str | Path, *, create: bool = True, seconds: float = 10.0) -> None:
        self.path = Path(path).expanduser().absolute()
        self.location = str(path)
        self.created = False
        self._seconds = seconds
        self._pid = os.getpid()
        self._writing = threading.RLock()
        self._reading = threading.Lock()
        self._rows: dict[str, int] = {}
        self._broken: PerdureError | None = None
        self._life: Life | None = None
        self._worker: Worker | None = None
        self._base = 0
        self._last_id = 0
        self._power = True
        gate()
        with plain_errors(self.path):
            self._open(create=create)

    def _open(self, *, create: bool) -> None:
        if not create and not self.path.exists() and not self._beside("mark").exists():
            raise StoreUnavailable(
                f"There is no store at {self.path}.",
                safe="nothing was changed.",
                hint="run something first, or name the store with --store",
            )
        if not create:
            self._refuse_missing()
            self._connect()
            check_schema(self._connection, self.path)
            return
        if self._beside("mark").exists():
            self._refuse_missing()
        prepare_folder(self.path)
        with exclusive(self._beside("lock"), seconds=self._seconds):
            self._connect()
            self.created = migrate(self._connection, self.path)
            self._mark = Mark(self._beside("mark"))
            self._notice_loss()

    def _connect(self) -> None:
        self._connection = connect(self.path, busy_seconds=self._seconds)
        self._reader = connect(self.path, busy_seconds=self._seconds)
        self._reader.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)

    def _refuse_missing(self) -> None:
        """A mark without its database is a loss that must be named, not papered over by an empty store."""
        if self.path.exists():
            return
        raise CommitsLost(
            f"The database {self.path} is gone, but its mark {self._beside('mark').name} says that it held commits.",
            safe="nothing was changed.",
            hint=f"put {self.path.name} back, or delete {self._beside('mark').name} to start with an empty store",
        )

    def _notice_loss(self) -> None:
        """Compare what was acknowledged with what is here; record a loss and park what it may have touched."""
        slots = [slot for slot in self._mark.slots() if slot is not None]
        self._base, found = self._counter()
        acknowledged = max((slot.acknowledged for slot in slots), default=0)
        synced = max((slot.synced for slot in slots), default=0)
        if found >= acknowledged:
            return
        with self._transaction():
            missing = acknowledged - found
            ((generation,),) = self._connection.execute(Q["raise_generation"], (missing,)).fetchall()
            self._base += missing
            self._connection.execute(Q["insert_loss"], (generation, clock.wall_seconds(), acknowledged, found))
            if found < synced:
                self._park_unfinished(lost=synced - found)
        self._mark.reset(acknowledged)

    def _park_unfinished(self, *, lost: int) -> None:
        for row in self._connection.execute(Q["list_unfinished"]).fetchall():
            run = _run(row)
            park = Park(
                code=CommitsLost.code,
                message=f"The store lost {lost} acknowledged records; run {run.name} may have gone further than it knows.",
                safe=f"its {run.steps} recorded steps are kept; effects it may have performed since are treated as in doubt.",
                hint=f"perdure repair {run.name}, then resume it",
            )
            after = msgspec.structs.replace(
                run,
                state=RunState.WAITING,
                reason=WaitReason.PARKED,
                detail=write_park(park),
                holder="",
                suspects=run.suspects + (lost + 1) // 2,
            )
            self._connection.execute(Q["replace_run"], _replacement(sealed_run(after), row[0]))

    def join(self) -> Worker:
        """Make this process known: hold a lock for life, take a slot in the mark, enter the list of workers."""
        with self._writing:
            if self._worker is not None:
                return self._worker
            self._refuse_fork()
            with plain_errors(self.path), exclusive(self._beside("lock"), seconds=self._seconds):
                self._life = Life(self._beside("life"))
                self._mark.take_slot(self._life.worker_id, folder=self._beside("life"))
                worker = self._life.describe()
                with self._transaction(power=False):
                    self._forget_workers()
                    self._connection.execute(Q["insert_worker"], msgspec.structs.astuple(worker))
                self._worker = worker
            return worker

    def _forget_workers(self) -> None:
        for row in self._connection.execute(Q["list_workers"]).fetchall():
            worker = Worker(*row)
            if clock.wall_seconds() - worker.beat_at < _FORGET_WORKER_SECONDS:
                continue
            if is_locked(self._beside("life"), worker) is not True:
                self._connection.execute(Q["delete_worker"], (worker.worker_id,))
                with contextlib.suppress(OSError):
                    (self._beside("life") / worker.worker_id).unlink()

    def beat(self, worker_id: str) -> None:
        """Renew every lease of this worker; a beat needs no sync."""
        with self._transaction(power=False):
            self._connection.execute(Q["beat"], (clock.wall_seconds(), clock.boot_seconds(), worker_id))

    def read_worker(self, worker_id: str) -> Worker | None:
        """The worker as it last made itself known."""
        rows = self._read("read_worker", (worker_id,))
        return Worker(*rows[0]) if rows else None

    def is_running(self, run: Run, *, stall_seconds: float) -> bool:
        """Whether a live process holds this run."""
        return self._presence(run, stall_seconds)[1] is Presence.ALIVE

    def _presence(self, run: Run, stall_seconds: float) -> tuple[Worker | None, Presence]:
        if not run.holder:
            return None, Presence.NONE
        holder = self.read_worker(run.holder)
        if holder is None:
            return None, Presence.DEAD
        locked = is_locked(self._beside("life"), holder)
        if locked is False:
            return holder, Presence.DEAD
        same_boot = holder.boot_id == clock.boot_id()
        silence = clock.boot_seconds() - holder.beat_boot if same_boot else clock.wall_seconds() - holder.beat_at
        return holder, Presence.STALLED if silence > stall_seconds else Presence.ALIVE

    def create_run(self, run: Run, first: Record, blobs: Sequence[tuple[bytes, bytes]] = ()) -> Run:
        """Accept a run; an id that is known returns the row that is there."""
        self.join()
        with self._transaction() as connection:
            rows = connection.execute(Q["read_run"], (run.run_id,)).fetchall()
            if rows:
                return verified_run(_run(rows[0]))
            connection.execute(Q["insert_run"], msgspec.structs.astuple(run))
            self._rows[run.run_id] = connection.last_insert_rowid()
            self._insert(run.run_id, (first,), blobs)
        return run

    def claim_run(self, run_id: str, worker_id: str, terms: Terms) -> Run:
        """Give the run to this worker, fenced by a new epoch."""
        with self._transaction() as connection:
            rows = connection.execute(Q["read_run"], (run_id,)).fetchall()
            if not rows:
                raise UnknownRun(
                    f"There is no run {run_id!r} in {self.location}.", hint="perdure show lists the runs there are"
                )
            run = verified_run(_run(rows[0]))
            holder, presence = self._presence(run, terms.stall_seconds)
            if run.holder == worker_id:
                presence = Presence.NONE
            claimant = self.join()
            claimed = claim(run, claimant, holder, presence, terms)
            if claimed.records:
                self._rows[run_id] = rows[0][0]
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
        row = self._rows[run.run_id]
        self._connection.execute(
            Q["update_run"],
            (
                run.updated_at,
                run.state,
                run.reason,
                run.detail,
                run.epoch,
                run.holder,
                run.deliveries,
                run.steps,
                run.suspects,
                run.length,
                run.head,
                run.digest,
                row,
                epoch,
                run.length - len(append.records),
            ),
        )
        if self._connection.changes() != 1:
            return LeaseLost(f"Run {run.name} is held by another worker now.")
        self._insert(run.run_id, append.records, append.blobs)
        for mail_id in append.taken:
            self._connection.execute(Q["take_mail"], (run.length, mail_id))
        return None

    def _insert(self, run_id: str, records: Sequence[Record], stored: Sequence[tuple[bytes, bytes]]) -> None:
        row = self._rows[run_id]
        for blob in stored:
            self._connection.execute(Q["insert_blob"], blob)
        for record in records:
            self._connection.execute(
                Q["insert_record"],
                (
                    row,
                    record.seq,
                    record.kind,
                    record.key,
                    record.name,
                    record.arguments,
                    record.at,
                    record.epoch,
                    record.body,
                    record.digest,
                ),
            )
        self._last_id = self._connection.last_insert_rowid()

    def holds(self, run_id: str, epoch: int) -> bool:
        """Whether this epoch is still the run's newest."""
        rows = self._read("read_epoch", (run_id,))
        return bool(rows) and rows[0][0] == epoch

    def read_run(self, run_id: str) -> Run | None:
        """The run's row, verified."""
        rows = self._read("read_run", (run_id,))
        return verified_run(_run(rows[0])) if rows else None

    def list_runs(self, *, agent: str = "", arguments: bytes = b"", name: str = "", limit: int = 1000) -> list[Run]:
        """Runs, newest first, verified."""
        if agent:
            rows = self._read("list_runs_by_call", (agent, arguments, limit))
        elif name:
            rows = self._read("list_runs_by_name", (name, limit))
        else:
            rows = self._read("list_runs", (limit,))
        return [verified_run(_run(row)) for row in rows]

    def load_journal(self, run_id: str) -> list[Record]:
        """Every record of the run, verified."""
        rows = self._read("read_run", (run_id,))
        if not rows:
            raise UnknownRun(
                f"There is no run {run_id!r} in {self.location}.", hint="perdure show lists the runs there are"
            )
        self._rows[run_id] = rows[0][0]
        run = verified_run(_run(rows[0]))
        with self._reading, plain_errors(self.path):
            return verified(run, self._reader.execute(Q["load_journal"], (rows[0][0],)))

    def load_blob(self, digest: bytes) -> bytes:
        """A large value, verified against its address."""
        rows = self._read("load_blob", (digest,))
        return blobs.unpack(digest, rows[0][0] if rows else None)

    def post(self, mail: Mail) -> Mail:
        """Put mail into a run's mailbox."""
        self.join()
        digest = mail_digest(mail)
        with self._transaction() as connection:
            connection.execute(
                Q["insert_mail"], (mail.run_id, mail.kind, mail.key, mail.body, mail.by, mail.at, digest)
            )
            mail_id = connection.last_insert_rowid()
            connection.execute(Q["raise_base"], (1,))
            self._base, counted = self._counter()
            self._last_id = counted - self._base
        return msgspec.structs.replace(mail, mail_id=mail_id, digest=digest)

    def read_mail(self, run_id: str) -> list[Mail]:
        """All mail of the run, oldest first, verified."""
        mails = [Mail(*row) for row in self._read("read_mail", (run_id,))]
        for mail in mails:
            if mail.digest != mail_digest(mail):
                raise explain(
                    apsw.CorruptError(f"mail {mail.mail_id} of run {run_id} does not match its digest"), self.path
                )
        return mails

    def losses(self) -> list[Loss]:
        """Every loss of acknowledged commits that was ever noticed here."""
        return [Loss(*row) for row in self._read("list_losses", ())]

    def check(self) -> Iterator[Finding | Run]:
        """Walk over everything kept."""
        with self._reading:
            yield from findings(self._reader, Q, self._beside("mark"), self.path)

    def repair_run(self, run_id: str) -> int:
        """Set everything after the trusted prefix aside, so that the run can go on."""
        with contextlib.suppress(apsw.Error), self._writing:
            self._connection.execute("REINDEX")
        with self._transaction() as connection:
            rows = connection.execute(Q["read_run"], (run_id,)).fetchall()
            if not rows:
                raise UnknownRun(
                    f"There is no run {run_id!r} in {self.location}.", hint="perdure show lists the runs there are"
                )
            run, row = _run(rows[0]), rows[0][0]
            prefix = trusted_prefix(run, connection.execute(Q["load_journal"], (row,)))
            if not prefix.records:
                raise CheckpointCorrupt(
                    f"Run {run.name} cannot be repaired: {prefix.problem}, so even its arguments are not known.",
                    safe="what is left of it is kept.",
                    hint="start over: perdure.run(…, fresh=True)",
                )
            aside = self._set_aside(row, kept=len(prefix.records))
            after, record = repaired(run, prefix, total=len(prefix.records) + aside)
            connection.execute(Q["replace_run"], _replacement(after, row))
            self._rows[run_id] = row
            self._insert(run_id, (record,), ())
        return aside

    def _set_aside(self, row: int, *, kept: int) -> int:
        before = self._counter()[1]
        with contextlib.suppress(apsw.Error):
            self._connection.execute(Q["set_records_aside"], (row, kept))
        self._connection.execute(Q["delete_records"], (row, kept))
        aside = self._connection.changes()
        dropped = before - self._counter()[1]
        if dropped > 0:
            self._connection.execute(Q["raise_base"], (dropped,))
        self._base = self._counter()[0]
        return aside

    @contextlib.contextmanager
    def _transaction(self, *, power: bool = True) -> Iterator[apsw.Connection]:
        """The one place where this store writes: all of the block or nothing, marked before it is acknowledged."""
        with self._writing, plain_errors(self.path):
            self._refuse_fork()
            if self._broken is not None:
                raise self._broken
            self._sync_on_commit(power)
            connection = self._connection
            try:
                connection.execute(Q["begin"])
                yield connection
                connection.execute(Q["commit"])
            except BaseException as error:
                rollback(connection)
                if isinstance(error, apsw.IOError):
                    self._broken = explain(error, self.path)
                raise
            if self._worker is not None:
                self._mark.advance(self._base + self._last_id, synced=power)

    def _sync_on_commit(self, power: bool) -> None:  # noqa: FBT001 - named at the only call
        if power != self._power:
            self._connection.pragma("synchronous", "full" if power else "normal")
            self._power = power

    def _counter(self) -> tuple[int, int]:
        """The base and the number of commits this database remembers."""
        ((_, base, newest),) = self._connection.execute(Q["read_meta"]).fetchall()
        return base, base + newest

    def _read(self, query: str, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        self._refuse_fork()
        with self._reading, plain_errors(self.path):
            return self._reader.execute(Q[query], arguments).fetchall()

    def _refuse_fork(self) -> None:
        if os.getpid() != self._pid:
            raise UsageError(
                "This process was forked from one that has the store open.",
                safe="the parent's runs are untouched.",
                hint="call steps and agents in the parent, or start a new process instead of forking",
            )

    def _beside(self, what: str) -> Path:
        return self.path.with_name(f"{self.path.name}-{what}")

    def close(self) -> None:
        """Let go of the store."""
        with self._writing, self._reading:
            self._reader.close()
            self._connection.close()
            if self._life is not None:
                self._life.end()
            if hasattr(self, "_mark"):
                self._mark.close()


def _run(row: tuple[Any, ...]) -> Run:
    return Run(*row[1:])


def _replacement(run: Run, row: int) -> tuple[Any, ...]:
    return (
        run.agent,
        run.arguments,
        run.updated_at,
        run.state,
        run.reason,
        run.detail,
        run.epoch,
        run.holder,
        run.deliveries,
        run.steps,
        run.suspects,
        run.length,
        run.head,
        run.digest,
        row,
    )
