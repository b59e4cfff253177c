"""Queues in memory: which runs may go on, who goes next, and who must wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure import clock
from perdure.records import Mail, Queue, Run, RunState
from perdure.store.chain import is_whole, verified_run
from perdure.store.lease import Presence
from perdure.store.memory.shelf import OnShelf
from perdure.store.protocol import Crowd
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
    needs_token,
    readied,
    refuse_crowd,
    refuse_haste,
    rooms_of,
    token_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Sequence


class QueuesOnShelf(OnShelf):
    """The verbs that are about runs which wait for a worker."""

    def list_due(self, *, now: float, limit: int = 1000) -> list[Run]:
        with self._open():
            mailed = self._mailed()
            due = [run for run in self._in_order() if _is_due(run, now) or run.run_id in mailed]
        return [verified_run(run) for run in due[:limit]]

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

    def _readied(self, run: Run) -> Run:
        """The run with its turn among those that are ready now."""
        place = (line_of(run), run.priority)
        runs = [other for other in self._shelf.runs.values() if is_ready(other) and not other.epoch]
        beside = [other for other in runs if (line_of(other), other.priority) == place]
        own = [other.turn for other in beside if other.tenant == run.tenant]
        return readied(run, first=min((other.turn for other in beside), default=None), own=max(own, default=None))

    def _running(self, queue: Queue) -> int:
        return sum(run.state == RunState.RUNNING and run.queue == queue.name for run in self._shelf.runs.values())

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

    def _meant_by(self, wanted: Asked) -> list[Run]:
        return [run for run in self._shelf.runs.values() if wanted.means(line_of(run))]


def _stirs(mail: Mail, run: Run) -> bool:
    return mail.kind == "unpause" or not run.detail.startswith(PAUSED)


def _is_due(run: Run, now: float) -> bool:
    return run.state == RunState.WAITING and 0 < run.wake_at <= now
