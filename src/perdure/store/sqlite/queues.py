"""Queues in SQLite: turns, places and tokens, read and written inside the caller's transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perdure import clock
from perdure.records import Queue, Run
from perdure.store.chain import is_whole
from perdure.store.queues import (
    HEARD_AT_ONCE,
    Asked,
    Line,
    Load,
    bucket_of,
    crowds,
    drawn,
    fitting,
    full_queues,
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
from perdure.store.sqlite.statements import Q, fetch, replace_run, run_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import apsw

    from perdure.store.protocol import Crowd


def in_line(connection: apsw.Connection, run: Run) -> Run:
    """The run with its turn among those that are ready now."""
    place = (*msgspec.structs.astuple(line_of(run)), run.priority)
    first = fetch(connection, "read_first_turn", place)
    own = fetch(connection, "read_own_turn", (*place, run.tenant))
    return readied(run, first=first[0][0] if first else None, own=own[0][0] if own else None)


def is_upkeep_due(reader: apsw.Connection, *, now: float) -> bool:
    """Whether there is anything to wake, or mail that can wake nobody any more."""
    ((delayed, heard),) = fetch(reader, "read_upkeep", (now,))
    return bool(delayed or heard)


def wake(connection: apsw.Connection, *, now: float, limit: int) -> int:
    """Let delayed runs whose time has come be ready; mail that its run has heard of is not looked at again."""
    connection.execute(Q["mark_heard"], (HEARD_AT_ONCE,))
    woken = 0
    for row in fetch(connection, "list_delayed", (now, limit)):
        run = run_of(row)
        if is_whole(run):  # a damaged one is named by whoever reads it, and must not delay the others
            replace_run(connection, in_line(connection, msgspec.structs.replace(run, updated_at=now)), row[0])
            woken += 1
    return woken


def admit(connection: apsw.Connection, run: Run) -> None:
    """Let the run into its queue, or raise."""
    queue = _queue_of(connection, run.queue)
    if queue.concurrency:
        refuse_crowd(run, queue, running=_running(connection, queue))
    if needs_token(run, queue):
        seconds = take(connection, bucket_of(queue), 1, rate=queue.rate, burst=queue.burst)
        refuse_haste(run, queue, seconds=seconds)


def take(connection: apsw.Connection, bucket: str, tokens: int, *, rate: float, burst: int) -> float:
    """Take tokens, or say after how many seconds to ask again."""
    now = nanoseconds(clock.wall_seconds())
    after, seconds = drawn(_full_at(connection, bucket), tokens, now=now, rate=rate, burst=burst)
    if not seconds:
        connection.execute(Q["write_bucket"], (bucket, after))
    return seconds


def queues_of(connection: apsw.Connection) -> list[Queue]:
    """Every queue that is known, by name."""
    return sorted((Queue(*row) for row in fetch(connection, "list_queues")), key=lambda queue: queue.name)


def counted(reader: apsw.Connection) -> list[Crowd]:
    """How many runs stand where in each queue."""
    queues, now = queues_of(reader), nanoseconds(clock.wall_seconds())
    seconds = {queue.name: token_seconds(queue, _full_at(reader, bucket_of(queue)), now=now) for queue in queues}
    return crowds(queues, fetch(reader, "count_queues"), seconds)


def ready(reader: apsw.Connection, wanted: Asked, gone: set[str], *, now: float, limit: int) -> list[Run]:
    """Runs that may go on: those of holders that are gone, due, queued."""
    limited = [queue for queue in queues_of(reader) if queue.concurrency or queue.rate]
    rooms = rooms_of((_load(reader, queue) for queue in limited), now=nanoseconds(clock.wall_seconds()))
    full = full_queues(rooms)
    due = fitting(_due(reader, wanted, full, now=now, limit=limit), rooms, limit=limit)
    heads = {
        line: [run_of(row) for row in fetch(reader, "list_queued", (*msgspec.structs.astuple(line), limit))]
        for line in _lines(reader, "list_lines", wanted, full)
    }
    return [*_lost(reader, wanted, gone, limit=limit), *due, *fitting(merged(heads, now=now), rooms, limit=limit)]


def _load(reader: apsw.Connection, queue: Queue) -> Load:
    running = _running(reader, queue) if queue.concurrency else 0
    return Load(queue, running, _full_at(reader, bucket_of(queue)))


def _lost(reader: apsw.Connection, wanted: Asked, gone: set[str], *, limit: int) -> list[Run]:
    """Those whose holder is gone, oldest first."""
    rows = [
        row
        for queue, holder in (fetch(reader, "list_holders") if gone else ())
        for agent in wanted.agents
        for version in wanted.versions
        if holder in gone and wanted.means(Line(queue, agent, version))
        for row in fetch(reader, "list_held", (queue, holder, agent, version, limit))
    ]
    return [run_of(row) for row in sorted(rows, key=_age)[:limit]]


def _due(reader: apsw.Connection, wanted: Asked, full: list[str], *, now: float, limit: int) -> list[Run]:
    """The soonest of each line, and of those that have mail."""
    found = {
        row[0]: run_of(row)
        for line in _lines(reader, "list_waiting_lines", wanted, full)
        for row in fetch(reader, "list_soonest", (*msgspec.structs.astuple(line), now, limit))
    }
    agents, closed, queues = (_listed(names) for names in (wanted.agents, full, wanted.queues))
    own = max(wanted.versions)
    mailed = fetch(reader, "list_mailed", (agents, own, closed, not wanted.queues, queues, limit))
    found |= {row[0]: run_of(row) for row in mailed}
    return [run for _, run in sorted(found.items(), key=lambda each: (each[1].wake_at, each[0]))]


def _lines(reader: apsw.Connection, query: str, wanted: Asked, full: list[str]) -> Iterator[Line]:
    for row in fetch(reader, query):
        line = Line(*row)
        if line.queue not in full and wanted.means(line):
            yield line


def _queue_of(connection: apsw.Connection, name: str) -> Queue:
    rows = fetch(connection, "read_queue", (name,))
    return Queue(*rows[0]) if rows else Queue(name)


def _running(connection: apsw.Connection, queue: Queue) -> int:
    ((count,),) = fetch(connection, "count_running", (queue.name,))
    return int(count)


def _full_at(connection: apsw.Connection, bucket: str) -> int:
    rows = fetch(connection, "read_bucket", (bucket,))
    return int(rows[0][0]) if rows else 0


def _age(row: tuple[Any, ...]) -> tuple[float, int]:
    run = run_of(row)
    return run.created_at, row[0]


def _listed(names: frozenset[str] | list[str]) -> str:
    return msgspec.json.encode(sorted(names)).decode()
