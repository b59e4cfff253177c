"""What a worker may take now: runs of its queues, so many of each at a time, and none where it was just refused.

The store has the last word on a queue's limits, and shows nothing of one that is full. Two workers may still reach for
the same place: who comes second remembers what the store said, and asks again when that time has come, or when a run of
the queue ended here. A run that a dead process left needs no new place, and is taken all the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure import clock, queues
from perdure.records import RunState

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Sequence

    from perdure.records import Queue, Run
    from perdure.store.protocol import Store

REREAD_SECONDS: Final = 1.0
"""How old the limits may be that a worker goes by; the store itself always goes by the newest."""

_SOON_SECONDS: Final = 0.05


class Search(Struct, frozen=True):
    """What to look for."""

    agents: tuple[str, ...]
    stall_seconds: float
    limit: int
    version: str = ""


class Intake:
    """The queues of one worker, all of them where none is named, and what it knows of them."""

    def __init__(self, names: Sequence[str] = (), *, is_declared: bool = False) -> None:
        self._names = tuple(names)
        self._limits: dict[str, Queue] = {}
        self.is_declared = is_declared
        self._read_at = -REREAD_SECONDS
        self._ahead_seconds = 0.0
        self._refused: dict[tuple[str, bool], float] = {}

    def find(self, store: Store, search: Search, moving: Counter[str]) -> list[Run]:
        """Runs that may go on now; those of queues of which this process has as many as it may are left to others."""
        self._learn(store)
        store.wake_due(now=clock.wall_seconds() + self._ahead_seconds, limit=search.limit)
        full = {name for name in moving if self._is_full(name, moving)}
        served = sorted({*(self._names or self._limits)} - full) if full else self._names
        if full and not served:
            return []
        return store.list_ready(
            agents=search.agents,
            queues=tuple(served),
            version=search.version,
            now=clock.wall_seconds(),
            stall_seconds=search.stall_seconds,
            limit=search.limit,
        )

    def admits(self, run: Run, moving: Counter[str]) -> bool:
        """Whether it is worth asking the store for this run."""
        if self._is_full(run.queue, moving):
            return False
        return run.state == RunState.RUNNING or self._refused.get(_door(run), 0.0) <= clock.boot_seconds()

    def refuse(self, run: Run, seconds: float) -> None:
        """The store said that this run's queue is full, or out of tokens, for so long."""
        self._refused[_door(run)] = clock.boot_seconds() + max(seconds, _SOON_SECONDS)

    def make_room(self, queue: str) -> None:
        """A run of this queue ended here: its place may be free."""
        for begins in (True, False):
            self._refused.pop((queue, begins), None)

    def _learn(self, store: Store) -> None:
        """Declare the limits of the code once; and read what holds, which others may have declared since, and when."""
        if not self.is_declared:
            for queue in queues.declared():
                store.declare_queue(queue)
            self.is_declared = True
        if clock.boot_seconds() - self._read_at >= REREAD_SECONDS:
            self._limits = {queue.name: queue for queue in store.list_queues()}
            self._ahead_seconds = store.now() - clock.wall_seconds()
            self._read_at = clock.boot_seconds()

    def _is_full(self, name: str, moving: Counter[str]) -> bool:
        limits = self._limits.get(name)
        return limits is not None and 0 < limits.per_worker <= moving[name]


def _door(run: Run) -> tuple[str, bool]:
    """Where a run was refused: only one that nobody had yet needs a token, so that the others have a door of theirs."""
    return run.queue, run.epoch == 0
