"""Doing to workers and server what the plan says, and telling afterwards which faults landed in a run."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import psycopg

from tests.chaos.fleet import Fleet
from tests.chaos.judge import Interrupted
from tests.chaos.network import Network
from tests.chaos.plan import Fault
from tests.chaos.server import Server

_SLACK_SECONDS: Final = 30.0


@dataclass
class Landing:
    """A fault that was injected: whom it met, and how many runs that worker, or all workers, executed then."""

    fault: Fault
    worker: str
    held: int
    at: float
    until: float = 0.0
    hits: int = 0
    """Lines that were ended, packets that were dropped, or what else says that it met something."""


class Injector:
    """Injects faults, and takes those back that last."""

    def __init__(self, fleet: Fleet, server: Server, network: Network | None) -> None:
        self._fleet, self._server, self._network = fleet, server, network
        self._pending: list[tuple[float, Callable[[], None]]] = []
        self.landings: list[Landing] = []

    @property
    def is_busy(self) -> bool:
        """Whether something that was done is not taken back yet."""
        return bool(self._pending)

    def undo_due(self) -> None:
        """Take back what has lasted long enough."""
        now = time.monotonic()
        due = [undo for at, undo in self._pending if at <= now]
        self._pending = [(at, undo) for at, undo in self._pending if at > now]
        for undo in due:
            undo()

    def inject(self, fault: Fault) -> None:
        """Do it now; one that cannot be told from another that still lasts is left out."""
        post = self._fleet.posts[fault.worker]
        landing = Landing(fault, post.worker_id(), 0, time.time(), time.time())
        match fault.kind:
            case "kill":
                self._fleet.kill(post, whole=fault.clean_sweep)
            case "freeze" if not post.is_frozen:
                self._freeze(landing)
            case "drain" if not (post.is_frozen or post.is_draining):
                landing.held = landing.hits = self._held(landing.worker)
                self._fleet.drain(post)
            case "partition" if not post.is_cut and self._network is not None:
                self._cut(landing, self._network)
            case "terminate":
                self._terminate(landing)
            case "restart":
                self._restart(landing)
            case _:
                return
        self.landings.append(landing)

    def _freeze(self, landing: Landing) -> None:
        fault = landing.fault
        post = self._fleet.posts[fault.worker]
        started = post.started
        self._fleet.freeze(post)

        def thaw() -> None:
            landing.until = time.time()
            if post.started == started:
                self._fleet.thaw(post)

        self._pending.append((time.monotonic() + fault.seconds, thaw))

    def _cut(self, landing: Landing, network: Network) -> None:
        fault = landing.fault
        post = self._fleet.posts[fault.worker]
        landing.held = self._held(landing.worker)
        network.cut(fault.worker, store_only=fault.store_only)
        post.is_cut = True

        def heal() -> None:
            landing.until = time.time()
            landing.hits = network.heal(fault.worker)
            post.is_cut = False

        self._pending.append((time.monotonic() + fault.seconds, heal))

    def _terminate(self, landing: Landing) -> None:
        """End sessions of a worker from the server's side."""
        landing.held = self._held(landing.worker)
        limit = 100 if landing.fault.clean_sweep else 1
        address = f"10.213.{landing.fault.worker}.2" if self._network is not None else None
        with contextlib.suppress(psycopg.Error), self._server.connected() as connection:
            rows = connection.execute(
                "SELECT pg_terminate_backend(pid) FROM (SELECT pid FROM pg_stat_activity"
                " WHERE application_name = 'perdure' AND (%(address)s::text IS NULL AND client_addr IS NOT NULL"
                " OR host(client_addr) = %(address)s) ORDER BY random() LIMIT %(limit)s) AS theirs",
                {"address": address, "limit": limit},
            ).fetchall()
            landing.hits = sum(ended for (ended,) in rows)

    def _restart(self, landing: Landing) -> None:
        landing.held = self._held("")
        self._server.kill()
        self._server.start()
        landing.until = time.time()
        landing.hits = 1

    def _held(self, worker: str) -> int:
        """How many runs a worker, or anybody, executes now."""
        with contextlib.suppress(psycopg.Error), self._server.connected() as connection:
            row = connection.execute(
                "SELECT count(*) FROM perdure.runs WHERE state = 'running' AND (holder = %s OR %s = '')",
                (worker, worker),
            ).fetchone()
            return int(row[0]) if row else 0
        return 0


def landings(injected: list[Landing], interrupted: list[Interrupted]) -> Counter[str]:
    """How many faults of each kind really met a run in the hands of a worker.

    A kill or a freeze counts where a delivery of that very worker was broken off and another took the run up; a cut or
    an ended session where the worker had runs and something was really lost; a restart where anybody had.
    """
    landed: Counter[str] = Counter()
    for landing in injected:
        match landing.fault.kind:
            case "kill" | "freeze":
                landed[landing.fault.kind] += any(_is_by(landing, each) for each in interrupted)
            case _:
                landed[landing.fault.kind] += landing.held > 0 and landing.hits > 0
    return landed


def _is_by(landing: Landing, each: Interrupted) -> bool:
    is_its = each.worker == landing.worker and each.from_at < landing.at < each.to_at
    return is_its and each.to_at < landing.until + _SLACK_SECONDS
