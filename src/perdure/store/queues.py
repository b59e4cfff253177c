"""Who goes next and who must wait: the decisions about queues, pure, shared by every store.

A line is the queued runs of one queue, agent and version. Within it the higher priority goes first, then tenants take
turns: a run's turn is given when it becomes ready, and what is in front of it is never counted. Lines take turns too.
A bucket is kept as one number, the moment at which it will be full, in whole nanoseconds: nothing is ever rounded away.
"""

from __future__ import annotations

import math
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from perdure.errors import QueueFull, UsageError
from perdure.records import FINISHED, Queue, Run, RunState, sealed_run
from perdure.store.protocol import EVERY, Crowd

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from perdure.store.protocol import Terms

PLACE_SECONDS: Final = 1.0
"""After how long to look again whether a place in a full queue is free; nobody can know when it will be."""

PAUSED: Final = '{"code":"paused"'
"""How the detail of a run begins that somebody paused; the statements say the same."""

HEARD_AT_ONCE: Final = 1000
"""So many mails are marked as heard in one transaction: others need the store too."""

_SECOND: Final = 1_000_000_000
_OWN: Final = "queue:"


class Line(Struct, frozen=True, order=True):
    """Queued or waiting runs that differ only in who goes first."""

    queue: str
    agent: str
    version: str


class Asked(Struct, frozen=True):
    """Which lines a worker asks for; without queues, those of every queue."""

    agents: frozenset[str]
    queues: frozenset[str]
    versions: frozenset[str]

    def means(self, line: Line) -> bool:
        """Whether a worker that asks for this can take runs of the line."""
        is_served = not self.queues or line.queue in self.queues
        return is_served and line.agent in self.agents and line.version in self.versions


class Load(Struct, frozen=True):
    """A queue with limits, how many of its runs are running, and when its bucket will be full."""

    queue: Queue
    running: int
    full_at: int


class Room(Struct):
    """How many runs of a queue could be let in now, and how many of them could be new."""

    places: int = EVERY
    tokens: int = EVERY


def asked(agents: Sequence[str], queues: Sequence[str], version: str) -> Asked:
    """What a worker asks for: runs of any version, and those pinned to its own."""
    return Asked(frozenset(agents), frozenset(queues), frozenset({"", version}))


def line_of(run: Run) -> Line:
    """The line that a run stands in."""
    return Line(run.queue, run.agent, run.version)


def is_ready(run: Run) -> bool:
    """Whether a run is queued and not delayed."""
    return run.state == RunState.QUEUED and run.wake_at == 0


def readied(run: Run, *, first: int | None, own: int | None) -> Run:
    """The run as it stands in its line, given the smallest turn there and the largest of its own tenant.

    Both are of its priority, and of runs that were never delivered: one that came back has a turn of long ago.
    """
    turn = max(0 if first is None else first, 0 if own is None else own + 1)
    return sealed_run(msgspec.structs.replace(run, wake_at=0.0, turn=turn))


def readied_all(runs: Sequence[Run], turns: Sequence[tuple[int | None, int | None]]) -> list[Run]:
    """The same for several at once, each standing behind those before it; their turns are as they were before all."""
    firsts: dict[tuple[Line, int], int | None] = {}
    owns: dict[tuple[Line, int, str], int | None] = {}
    found = []
    for run, (first, own) in zip(runs, turns, strict=True):
        place = (line_of(run), run.priority)
        after = readied(run, first=firsts.get(place, first), own=owns.get((*place, run.tenant), own))
        firsts.setdefault(place, after.turn if first is None else first)
        owns[*place, run.tenant] = after.turn
        found.append(after)
    return found


def needs_place(run: Run, terms: Terms) -> bool:
    """Whether claiming this run lets one more of its queue run; who asks for it by name is let in anyway."""
    return terms.gated and not terms.pardon and run.state != RunState.RUNNING and run.state not in FINISHED


def needs_token(run: Run, queue: Queue) -> bool:
    """Whether claiming this run takes a token: its first delivery does."""
    return bool(queue.rate) and run.epoch == 0


def refuse_crowd(run: Run, queue: Queue, *, running: int) -> None:
    """Let nobody in while as many of the queue are running as may."""
    if queue.concurrency and running >= queue.concurrency:
        raise _full(run, f"{running} of its runs are running, and {queue.concurrency} may", PLACE_SECONDS)


def refuse_haste(run: Run, queue: Queue, *, seconds: float) -> None:
    """Let nobody in before there is a token."""
    if seconds:
        raise _full(run, f"{queue.rate:g} of its runs may begin in a second", seconds)


def bucket_of(queue: Queue) -> str:
    """The name of the bucket that a queue's tokens are in."""
    return queue.bucket or _OWN + queue.name


def nanoseconds(seconds: float) -> int:
    """An instant as buckets count it, no finer than a clock tells."""
    return round(seconds * 1_000_000) * 1_000


def drawn(full_at: int, tokens: int, *, now: int, rate: float, burst: int) -> tuple[int, float]:
    """When the bucket will be full after tokens were taken, and 0; or as before, and the seconds to wait for them.

    A bucket is never emptier than empty: neither another rate nor a clock that was set back makes anybody wait longer
    than it takes to fill.
    """
    each, most = _each(rate), max(1, burst)
    if not 0 < tokens <= most:
        raise UsageError(
            f"{tokens} tokens cannot be taken at once from a bucket that holds {most}.",
            safe="nothing was taken.",
            hint="take fewer at a time, or give the rate a larger burst",
        )
    before = min(max(full_at, now), now + most * each)
    after = before + tokens * each
    wait = after - (now + most * each)
    return (after, 0.0) if wait <= 0 else (full_at, wait / _SECOND)


def crowds(
    queues: Iterable[Queue], counts: Iterable[tuple[str, str, int, float]], seconds: Mapping[str, float]
) -> list[Crowd]:
    """The queues, by name, with how many of their runs are ready, delayed or running, and how long a token takes."""
    found: dict[str, dict[str, Any]] = {}
    for name, what, count, oldest_at in counts:
        found.setdefault(name, {})[what] = count
        if what == "ready":
            found[name]["oldest_at"] = oldest_at
    known = {queue.name: queue for queue in queues}
    named = {**{name: Queue(name) for name in found}, **known}
    return [
        Crowd(queue, **found.get(name, {}), token_seconds=seconds.get(name, 0.0))
        for name, queue in sorted(named.items())
    ]


def token_seconds(queue: Queue, full_at: int, *, now: int) -> float:
    """After how long a token will be there; 0 where one is, or none is needed."""
    return drawn(full_at, 1, now=now, rate=queue.rate, burst=queue.burst)[1] if queue.rate else 0.0


def rooms_of(loads: Iterable[Load], *, now: int) -> dict[str, Room]:
    """How much room there is in each queue that has limits."""
    return {load.queue.name: _room(load, now) for load in loads}


def full_queues(rooms: Mapping[str, Room]) -> list[str]:
    """The queues of which nothing can be let in."""
    return [name for name, room in rooms.items() if room.places <= 0]


def merged(lines: Mapping[Line, Sequence[Run]], *, now: float) -> list[Run]:
    """The heads of all lines in one order: higher priority first, then one of each line, then the next of each.

    Which line begins changes with the moment: a worker that has room for a single run serves all of them.
    """
    waiting = sorted(line for line in lines if lines[line])
    begins = zlib.crc32(struct.pack("<d", now)) % max(1, len(waiting))
    ranked = []
    for place, line in enumerate(waiting):
        ranks: dict[int, int] = {}
        for run in lines[line]:
            rank = ranks[run.priority] = ranks.get(run.priority, -1) + 1
            ranked.append(((-run.priority, rank, (place - begins) % len(waiting)), run))
    return [run for _, run in sorted(ranked, key=lambda each: each[0])]


def fitting(runs: Iterable[Run], rooms: Mapping[str, Room], *, limit: int) -> list[Run]:
    """The first of these runs that their queues have room for; the room is used up by it."""
    found: list[Run] = []
    for run in runs:
        room = rooms.get(run.queue) or Room()
        is_new = run.epoch == 0
        if len(found) == limit:
            break
        if room.places > 0 and (not is_new or room.tokens > 0):
            found.append(run)
            room.places -= 1
            room.tokens -= is_new
    return found


def _room(load: Load, now: int) -> Room:
    queue, room = load.queue, Room()
    if queue.concurrency:
        room.places = queue.concurrency - load.running
    if queue.rate:
        each, most = _each(queue.rate), max(1, queue.burst)
        lacking = min(max(load.full_at - now, 0), most * each)
        room.tokens = (most * each - lacking) // each
    return room


def _each(rate: float) -> int:
    """How long one token takes to come, never too short; what a float cannot tell from a whole number is one."""
    return math.ceil(round(_SECOND / rate, 3))


def _full(run: Run, why: str, seconds: float) -> QueueFull:
    refusal = QueueFull(
        f"Queue {run.queue} lets no more in: {why}.",
        safe=f"run {run.name} keeps its place; nothing was done.",
        hint=f"leave it to a worker, or let it in by name: perdure resume {run.name}",
    )
    refusal.seconds = seconds
    return refusal
