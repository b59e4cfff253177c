"""One SQLite file, opened: its connections, its mark, and the processes that have joined it.

Beside `perdure.db` live `perdure.db-wal` (data: never delete it), `perdure.db-mark` (what was acknowledged),
`perdure.db-lock` (held while a process opens the store) and `perdure.db-life/` (one lock per living process).
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import apsw
import msgspec

from perdure import clock
from perdure.errors import CheckpointCorrupt, CommitsLost, PerdureError, StoreUnavailable
from perdure.records import Run, Worker
from perdure.store.lease import Presence
from perdure.store.protocol import MOST_DEATHS
from perdure.store.sqlite.connect import (
    connect,
    connect_to_read,
    gate,
    inspect,
    is_outdated,
    migrate,
    plain_errors,
    prepare_folder,
    read_only,
    refuse_directory,
    refuse_other_file,
    rollback,
)
from perdure.store.sqlite.fork import Forks
from perdure.store.sqlite.loss import hidden_damage, missing, record_loss
from perdure.store.sqlite.presence import Life, Mark, exclusive, is_locked, is_named_lock_held
from perdure.store.sqlite.statements import Q, count_commits, fetch, worker_of
from perdure.store.sqlite.transaction import Pen, Transaction

if TYPE_CHECKING:
    from collections.abc import Iterator

_FORGET_WORKER_SECONDS: Final = 24 * 3600.0


class SqliteFile:
    """What every verb of the store stands on: who is there, and the ways to read and to write. Safe from any thread."""

    def __init__(self, path: str | Path, *, create: bool = True, seconds: float = 10.0) -> None:
        self.path = Path(path).expanduser().absolute()
        self.location = str(path)
        self.created = False
        self.noticed = 0
        self._writable = create
        self._seconds = seconds
        self._writing = threading.RLock()
        self._reading = threading.Lock()
        self._life: Life | None = None
        self._worker: Worker | None = None
        self._opened = contextlib.ExitStack()
        gate()
        try:
            with plain_errors(self.path):
                self._open()
        except BaseException:
            self._opened.close()
            raise

    _reader: apsw.Connection
    _fork: Forks
    _pen: Pen

    def _open(self) -> None:
        refuse_directory(self.path)
        if not self._writable and not self.path.exists() and not self._beside("mark").exists():
            raise StoreUnavailable(
                f"There is no store at {self.path}.",
                safe="nothing was changed.",
                hint="run something first, or name the store with --store",
            )
        self._refuse_missing()
        if not self._writable:
            self._open_reader()
            if is_outdated(self._reader, self.path):  # every verb knows the newest schema alone
                SqliteFile(self.path, seconds=self._seconds).close()
            return
        refuse_other_file(self.path)
        prepare_folder(self.path)
        with exclusive(self._beside("lock"), seconds=self._seconds):
            self._fork = self._opened.enter_context(Forks(self.path))
            inspect(self.path, busy_seconds=self._seconds)
            self._connection = connect(self.path, busy_seconds=self._seconds)
            self._opened.callback(self._connection.close)
            self.created = migrate(self._connection, self.path)
            self._open_reader()
            self._mark = Mark(self._beside("mark"))
            self._opened.callback(self._mark.close)
            self._pen = Pen(self.path, self._connection, self._mark, self._fork, self._writing)
            self._opened.callback(self._pen.log_room.close)
            self._notice_loss()

    def _open_reader(self) -> None:
        if not self._writable:
            self._fork = self._opened.enter_context(Forks(self.path))
        self._reader = connect_to_read(self.path, busy_seconds=self._seconds)
        self._opened.callback(self._reader.close)

    def _refuse_missing(self) -> None:
        """A mark or a log without its database is a loss that must be named, not papered over by an empty store."""
        mark, log = self._beside("mark"), self._beside("wal")
        left = [file for file in (mark, log) if file.exists() and (file is mark or file.stat().st_size)]
        if not left or (self.path.exists() and self.path.stat().st_size):
            return
        raise CommitsLost(
            f"The database {self.path} is gone or empty, but {left[0].name} says that it held commits.",
            safe="nothing was changed.",
            hint=f"put {self.path.name} back, or delete {left[0].name} to start with an empty store",
        )

    def _notice_loss(self) -> None:
        """Compare what was acknowledged with what is here; the mark is read first, because others may go on writing."""
        slots = self._mark.slots()
        gone = missing(slots, found=count_commits(self._connection))
        if gone is not None:
            with self._transaction() as connection:
                record_loss(connection, gone)
            self.noticed = max(0, gone.synced - gone.found)

    def join(self) -> Worker:
        """Make this process known, unless runs or mail could be hidden from it by damage."""
        with self._writing:
            if self._worker is not None:
                return self._worker
            with self._snapshot() as reader:
                damage = hidden_damage(reader)
            if damage:
                raise CheckpointCorrupt(
                    f"{self.path} is damaged ({damage}).",
                    safe="nothing was started.",
                    hint="perdure verify, then perdure repair; or put back a copy",
                )
            return self._enter()

    def _enter(self) -> Worker:
        """Hold a lock for life, take a slot in the mark, enter the list of workers."""
        if self._worker is not None:
            return self._worker
        if not self._writable:
            raise read_only(self.path)
        self._fork.refuse()
        with plain_errors(self.path), exclusive(self._beside("lock"), seconds=self._seconds):
            life = Life(self._beside("life"))
            self._opened.callback(self._leave, life)
            worker = life.describe()
            with self._transaction(power=False, counted=False) as connection:
                self._forget_workers()
                connection.execute(Q["insert_worker"], msgspec.structs.astuple(worker))
            self._mark.take_slot(life.worker_id, folder=self._beside("life"))
            self._life, self._worker = life, worker
        return worker

    def _leave(self, life: Life) -> None:
        """Our end is known at once: by our row being gone, or, if the store refuses, by the free lock."""
        try:
            with self._transaction(power=False, counted=False) as connection:
                connection.execute(Q["delete_worker"], (life.worker_id,))
        except PerdureError:
            life.end(forgotten=False)
        else:
            life.end(forgotten=True)

    def _forget_workers(self) -> None:
        for row in fetch(self._connection, "list_workers"):
            worker = worker_of(row)
            if clock.wall_seconds() - worker.beat_at < _FORGET_WORKER_SECONDS:
                continue
            if is_locked(self._beside("life"), worker) is not True:
                self._connection.execute(Q["delete_worker"], (worker.worker_id,))
                self._forget_lock(worker.worker_id)
        for (worker_id,) in fetch(self._connection, "forget_deaths", (MOST_DEATHS,)):
            self._forget_lock(worker_id)

    def _forget_lock(self, worker_id: str) -> None:
        with contextlib.suppress(OSError):
            (self._beside("life") / worker_id).unlink()

    def beat(self, worker_id: str) -> None:
        """Renew every lease of this worker; a beat needs no sync."""
        with self._transaction(power=False, counted=False) as connection:
            self._beat(connection, worker_id)

    def _beat(self, connection: apsw.Connection, worker_id: str) -> None:
        connection.execute(Q["beat"], (clock.wall_seconds(), clock.boot_seconds(), worker_id))

    def read_worker(self, worker_id: str) -> Worker | None:
        """The worker as it last made itself known."""
        with self._snapshot() as reader:
            rows = fetch(reader, "read_worker", (worker_id,))
            return worker_of(rows[0]) if rows else None

    def is_alive(self, worker_id: str, *, stall_seconds: float) -> bool:
        """Whether this worker is there."""
        return self._presence_of(worker_id, stall_seconds)[1] is Presence.ALIVE

    def is_running(self, run: Run, *, stall_seconds: float) -> bool:
        """Whether a live process holds this run."""
        return self.is_alive(run.holder, stall_seconds=stall_seconds)

    def _presence(self, run: Run, stall_seconds: float) -> tuple[Worker | None, Presence]:
        return self._presence_of(run.holder, stall_seconds)

    def _presence_of(self, worker_id: str, stall_seconds: float) -> tuple[Worker | None, Presence]:
        if not worker_id:
            return None, Presence.NONE
        holder = self.read_worker(worker_id)
        if holder is None:
            is_held = is_named_lock_held(self._beside("life"), worker_id)
            return None, Presence.ALIVE if is_held else Presence.DEAD
        if holder.died_at or is_locked(self._beside("life"), holder) is False:
            return holder, Presence.DEAD
        same_boot = holder.boot_id == clock.boot_id()
        silence = clock.boot_seconds() - holder.beat_boot if same_boot else clock.wall_seconds() - holder.beat_at
        return holder, Presence.STALLED if silence > stall_seconds else Presence.ALIVE

    def list_workers(self) -> list[Worker]:
        """Every worker that is known."""
        return [worker_of(row) for row in self._read("list_workers", ())]

    def ask_to_drain(self, worker_id: str) -> None:
        """Ask a worker to take nothing more."""
        with self._transaction(power=False, counted=False) as connection:
            connection.execute(Q["ask_to_drain"], (clock.wall_seconds(), worker_id))

    def record_death(self, worker_id: str, cause: str) -> None:
        """Keep how a worker's process ended."""
        with self._transaction(power=False, counted=False) as connection:
            connection.execute(Q["record_death"], (cause, clock.wall_seconds(), worker_id))

    def _transaction(self, *, power: bool = True, counted: bool = True) -> Transaction:
        """The one way to write; `counted` where the commit is one that must not be lost unnoticed."""
        if not self._writable:
            raise read_only(self.path)
        return Transaction(self._pen, power=power, counted=counted)

    @contextlib.contextmanager
    def _snapshot(self) -> Iterator[apsw.Connection]:
        """Everything read in this block is of one moment, whatever others commit meanwhile."""
        self._fork.refuse()
        with self._reading, plain_errors(self.path):
            try:
                self._reader.execute(Q["begin_reading"])
                yield self._reader
            finally:
                rollback(self._reader)

    def _read(self, query: str, arguments: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        self._fork.refuse()
        with self._reading, plain_errors(self.path):
            return fetch(self._reader, query, arguments)

    def _beside(self, what: str) -> Path:
        return self.path.with_name(f"{self.path.name}-{what}")

    def close(self) -> None:
        """Let go of the store; a forked child has nothing to let go of."""
        if self._fork.is_child:
            return
        with self._writing, self._reading:  # whoever still reads is waited for: SQLite forbids to close under them
            self._opened.close()
