"""What is kept while the process lives, who is there, and the ways to read it that every verb needs."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING

import msgspec

from perdure import clock
from perdure.errors import StoreUnavailable
from perdure.records import DEFAULT_QUEUE, Debounce, Mail, Queue, Record, Run, RunState, Schedule, Worker
from perdure.settings import current_settings
from perdure.store import blobs as large
from perdure.store.chain import (
    Prefix,
    is_whole,
    sound_prefix,
    trusted_prefix,
    unknown_run,
    verified,
    verified_mail,
    verified_run,
    walked,
)
from perdure.store.lease import Presence
from perdure.store.protocol import MOST_DEATHS

if TYPE_CHECKING:
    from collections.abc import Iterator


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


class OnShelf:
    """A worker at a shelf. One verb at a time, whichever thread asks."""

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

    def now(self) -> float:
        with self._open():
            return clock.wall_seconds()

    def wait_for_news(self, seconds: float) -> frozenset[str]:
        """Nobody tells; whoever waits looks now and then."""
        clock.sleep(seconds)
        return frozenset()

    def load_journal(self, run_id: str) -> list[Record]:
        with self._open() as shelf:
            return verified(verified_run(self._known(run_id)), map(msgspec.structs.astuple, shelf.journals[run_id]))

    def load_blob(self, digest: bytes) -> bytes:
        with self._open() as shelf:
            return large.unpack(digest, shelf.blobs.get(digest))

    def read_mail(self, run_id: str) -> list[Mail]:
        with self._open() as shelf:
            return [verified_mail(mail) for mail in shelf.mail.values() if mail.run_id == run_id]

    def close(self) -> None:
        with self._shelf.lock:
            self._is_closed = True
            if self._worker is not None:
                self._shelf.workers.pop(self._worker.worker_id, None)

    def _prefix(self, run: Run) -> Prefix:
        rows = map(msgspec.structs.astuple, self._shelf.journals[run.run_id])
        prefix = trusted_prefix(run, rows) if is_whole(run) else walked(run.run_id, rows)
        return sound_prefix(prefix, lambda digest: large.unpack(digest, self._shelf.blobs.get(digest)))

    def _next_mail(self) -> int:
        return max(self._shelf.mail, default=0) + 1

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
