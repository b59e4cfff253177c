"""Queues in PostgreSQL: turns, places and tokens, read and written inside the caller's transaction.

Whoever lets a run into a queue with limits writes the queue's row first: claims of one queue go one after the other, at
whatever isolation the server has them, and each counts what the one before it let in. Buckets are told the time by the
server.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from perdure.records import Queue, Run
from perdure.store.chain import is_whole
from perdure.store.postgres.connect import fetch
from perdure.store.postgres.presence import life_key
from perdure.store.queues import (
    HEARD_AT_ONCE,
    Asked,
    Line,
    Load,
    Room,
    bucket_of,
    crowds,
    drawn,
    fitting,
    full_queues,
    line_of,
    merged,
    needs_token,
    readied_all,
    refuse_crowd,
    refuse_haste,
    rooms_of,
    token_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import psycopg

    from perdure.store.protocol import Crowd


def in_line(connection: psycopg.Connection[Any], runs: Sequence[Run]) -> list[Run]:
    """These runs with their turns among those that are ready now."""
    places = [(*msgspec.structs.astuple(line_of(run)), run.priority, run.tenant) for run in runs]
    turns = fetch(connection, "read_turns", _columns(places))
    return readied_all(runs, [(first, own) for first, own in turns])


def is_upkeep_due(connection: psycopg.Connection[Any], *, now: float) -> bool:
    """Whether there is anything to wake, or mail that can wake nobody any more."""
    ((delayed, heard),) = fetch(connection, "read_upkeep", (now,))
    return bool(delayed or heard)


def wake(connection: psycopg.Connection[Any], *, now: float, limit: int) -> int:
    """Let delayed runs whose time has come be ready; those that somebody else has in hand are left to them.

    Mail that its run has heard of is not looked at again.
    """
    fetch(connection, "mark_heard", (HEARD_AT_ONCE,))
    rows = fetch(connection, "list_delayed", (now, limit))
    delayed = [(row[0], Run(*row[1:])) for row in rows]
    whole = [(number, msgspec.structs.replace(run, updated_at=now)) for number, run in delayed if is_whole(run)]
    if not whole:
        return 0
    runs = in_line(connection, [run for _, run in whole])
    changes = [(number, run.updated_at, run.turn, run.digest) for (number, _), run in zip(whole, runs, strict=True)]
    fetch(connection, "wake_runs", _columns(changes))
    return len(runs)


def admit(connection: psycopg.Connection[Any], run: Run) -> None:
    """Let the run into its queue, or raise."""
    queue = _queue_in(connection, "read_queue", run.queue)
    if queue.concurrency:
        queue = _queue_in(connection, "lock_queue", run.queue)
        ((running,),) = fetch(connection, "count_running", (run.queue,))
        refuse_crowd(run, queue, running=running)
    if needs_token(run, queue):
        seconds = take(connection, bucket_of(queue), 1, rate=queue.rate, burst=queue.burst)
        refuse_haste(run, queue, seconds=seconds)


def take(connection: psycopg.Connection[Any], bucket: str, tokens: int, *, rate: float, burst: int) -> float:
    """Take tokens, or say after how many seconds to ask again; the bucket is locked until the transaction ends."""
    rows = fetch(connection, "lock_bucket", (bucket,))
    if not rows:
        fetch(connection, "make_bucket", (bucket,))
        rows = fetch(connection, "lock_bucket", (bucket,))
    ((full_at, now),) = rows
    after, seconds = drawn(full_at, tokens, now=now, rate=rate, burst=burst)
    if not seconds:
        fetch(connection, "write_bucket", (after, bucket))
    return seconds


def queues_of(connection: psycopg.Connection[Any]) -> list[Queue]:
    """Every queue that is known, by name."""
    return sorted((Queue(*row) for row in fetch(connection, "list_queues")), key=lambda queue: queue.name)


def counted(connection: psycopg.Connection[Any]) -> list[Crowd]:
    """How many runs stand where in each queue."""
    loads = fetch(connection, "list_loads")
    seconds = {row[0]: token_seconds(Queue(*row[:6]), row[7], now=row[8]) for row in loads}
    return crowds(queues_of(connection), fetch(connection, "count_queues"), seconds)


def ready(
    connection: psycopg.Connection[Any], wanted: Asked, held: Sequence[tuple[str, str]], *, now: float, limit: int
) -> list[Run]:
    """Runs that may go on: those held in this queue by this holder, who is gone; due; queued."""
    rooms = _rooms(connection)
    full = full_queues(rooms)
    due = fitting(_due(connection, wanted, full, now=now, limit=limit), rooms, limit=limit)
    heads: dict[Line, list[Run]] = {}
    for row in _heads(connection, "list_queued", _lines(connection, "list_lines", wanted, full), limit):
        heads.setdefault(line_of(Run(*row[1:])), []).append(Run(*row[1:]))
    queued = fitting(merged(heads, now=now), rooms, limit=limit)
    return [*_lost(connection, wanted, held, limit=limit), *due, *queued]


def gone_holders(
    connection: psycopg.Connection[Any], is_gone: Callable[[str], bool], *, silence_seconds: float, portable: bool
) -> list[tuple[str, str]]:
    """In which queue somebody holds runs who is gone; who is seen to be alive is not looked at one by one."""
    rows = fetch(connection, "list_holders")
    lives = {key for (key,) in fetch(connection, "list_lives")} if rows and not portable else set()

    def seems_alive(holder: str, died_at: float | None, silence: float | None) -> bool:
        beats = died_at == 0 and silence is not None and silence <= silence_seconds
        return beats and (portable or life_key(holder) in lives)

    doubtful = {holder for _, holder, died_at, silence in rows if not seems_alive(holder, died_at, silence)}
    gone = {holder for holder in doubtful if is_gone(holder)}
    return [(queue, holder) for queue, holder, _, _ in rows if holder in gone]


def _rooms(connection: psycopg.Connection[Any]) -> dict[str, Room]:
    rows = fetch(connection, "list_loads")
    loads = [Load(Queue(*row[:6]), row[6], row[7]) for row in rows]
    return rooms_of(loads, now=rows[0][8] if rows else 0)


def _lost(
    connection: psycopg.Connection[Any], wanted: Asked, held: Sequence[tuple[str, str]], *, limit: int
) -> list[Run]:
    lines = [
        (queue, holder, agent, version)
        for queue, holder in held
        for agent in wanted.agents
        for version in wanted.versions
        if wanted.means(Line(queue, agent, version))
    ]
    rows = fetch(connection, "list_held", (*_columns(lines), limit)) if lines else []
    found = sorted(((row[0], Run(*row[1:])) for row in rows), key=lambda each: (each[1].created_at, each[0]))
    return [run for _, run in found[:limit]]


def _due(connection: psycopg.Connection[Any], wanted: Asked, full: list[str], *, now: float, limit: int) -> list[Run]:
    """The soonest of each line, and of those that have mail."""
    lines = _lines(connection, "list_waiting_lines", wanted, full)
    rows = _heads(connection, "list_soonest", lines, now, limit)
    agents, versions, queues = (list(names) for names in (wanted.agents, wanted.versions, wanted.queues))
    rows += fetch(connection, "list_mailed", (agents, versions, full, not queues, queues, limit))
    found = {row[0]: Run(*row[1:]) for row in rows}
    return [run for _, run in sorted(found.items(), key=lambda each: (each[1].wake_at, each[0]))]


def _lines(connection: psycopg.Connection[Any], query: str, wanted: Asked, full: list[str]) -> list[Line]:
    lines = [Line(*row) for row in fetch(connection, query)]
    return [line for line in lines if line.queue not in full and wanted.means(line)]


def _heads(
    connection: psycopg.Connection[Any], query: str, lines: Sequence[Line], *more: float
) -> list[tuple[Any, ...]]:
    columns = _columns([msgspec.structs.astuple(line) for line in lines])
    return fetch(connection, query, (*columns, *more)) if lines else []


def _queue_in(connection: psycopg.Connection[Any], query: str, name: str) -> Queue:
    rows = fetch(connection, query, (name,))
    return Queue(*rows[0]) if rows else Queue(name)


def _columns(rows: Sequence[tuple[Any, ...]]) -> tuple[list[Any], ...]:
    return tuple(map(list, zip(*rows, strict=True)))
