"""`perdure queues`: what waits where, how many may move, and what holds the rest up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import click
from msgspec import Meta, Struct

from perdure.cli.options import json_option, looking, store_option
from perdure.cli.rows import short_age
from perdure.cli.screen import bold, print_json, room, say
from perdure.cli.table import Column, Row, laid_out
from perdure.telemetry.text import duration, legible

if TYPE_CHECKING:
    from perdure.records import Queue
    from perdure.store.protocol import Crowd

_COLUMNS: Final = (
    Column("QUEUE", least=12),
    Column("QUEUED", right=True),
    Column("DELAYED", right=True),
    Column("RUNNING", right=True),
    Column("OLDEST", right=True),
    Column("LIMITS", least=12),
    Column("NOW"),
)
_NOW: Final = 6
_UNITS: Final = ((1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "d"))


class QueueObject(Struct, frozen=True):
    """A queue: what waits in it, and what it allows."""

    name: Annotated[str, Meta(description="its name")]
    queued: Annotated[int, Meta(description="how many runs wait for a worker, and could begin")]
    delayed: Annotated[int, Meta(description="how many wait for their time")]
    running: Annotated[int, Meta(description="how many are held by a process; one that died holds its place too")]
    oldest_at: Annotated[float, Meta(description="when the oldest of the queued ones was accepted")]
    wait_seconds: Annotated[float, Meta(description="after how long its rate lets the next run begin; 0 for at once")]
    concurrency: Annotated[int, Meta(description="how many may run at once, on all workers; 0 is no limit")]
    per_worker: Annotated[int, Meta(description="how many one worker takes at once; 0 is no limit")]
    rate: Annotated[float, Meta(description="how many may begin in a second; 0 is no limit")]
    burst: Annotated[int, Meta(description="how many may begin at once after a quiet time")]
    bucket: Annotated[str, Meta(description="the name of the rate, where queues may share it")]


class Queues(Struct, frozen=True):
    """The queues that are known to a store."""

    store: Annotated[str, Meta(description="where the runs are kept")]
    queues: Annotated[tuple[QueueObject, ...], Meta(description="every queue, by name")]


@click.command()
@json_option(Queues)
@store_option
def queues(*, as_json: bool) -> None:
    """List the queues: what is queued, delayed and running, what is allowed, and what holds the rest up."""
    with looking() as store:
        crowds = store.count_queues()
        location = store.location
    if as_json:
        print_json(Queues(location, tuple(map(_object, crowds))))
        return
    count = len(_COLUMNS) if any(map(_now, crowds)) else _NOW
    rows = [_row(crowd, count) for crowd in crowds]
    for line in laid_out(_COLUMNS[:count], rows, width=room()):
        say(line)


def _object(crowd: Crowd) -> QueueObject:
    queue = crowd.queue
    return QueueObject(
        name=queue.name,
        queued=crowd.ready,
        delayed=crowd.delayed,
        running=crowd.running,
        oldest_at=crowd.oldest_at,
        wait_seconds=round(crowd.token_seconds, 3),
        concurrency=queue.concurrency,
        per_worker=queue.per_worker,
        rate=queue.rate,
        burst=queue.burst,
        bucket=queue.bucket,
    )


def _row(crowd: Crowd, count: int) -> Row:
    queue = crowd.queue
    cells = (
        legible(queue.name),
        f"{crowd.ready:,}",
        f"{crowd.delayed:,}",
        f"{crowd.running:,}",
        short_age(crowd.oldest_at) if crowd.ready else "-",
        legible(_limits(queue)) or "-",
        _now(crowd),
    )
    return Row(cells[:count], {0: bold})


def _now(crowd: Crowd) -> str:
    """What holds up those that are queued."""
    if not crowd.ready:
        return ""
    if 0 < crowd.queue.concurrency <= crowd.running:
        return "full"
    return f"next in {duration(crowd.token_seconds)}" if crowd.token_seconds else ""


def _limits(queue: Queue) -> str:
    rate = f"{_rate(queue.rate)}{f' ({queue.bucket})' if queue.bucket else ''}" if queue.rate else ""
    words = (
        f"{queue.concurrency:,} at once" if queue.concurrency else "",
        f"{queue.per_worker:,} per worker" if queue.per_worker else "",
        rate,
    )
    return ", ".join(filter(None, words))


def _rate(rate: float) -> str:
    """How many in the shortest time in which at least one comes."""
    seconds, unit = next((each for each in _UNITS if rate * each[0] >= 1), _UNITS[-1])
    return f"{rate * seconds:.3g}/{unit}"
