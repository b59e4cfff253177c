"""What moves with the runs of a store: limits of queues, keys of debounced starts, and schedules, each on in one store.

A schedule is switched off in both stores, at the same instant, before any run moves, and on at the target after the
last. Ended between, the next move finds that instant in both rows, and knows what was under way.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from perdure import clock
from perdure.records import Queue, Schedule, is_whole_row, sealed_schedule

if TYPE_CHECKING:
    from perdure.store.protocol import Store


def declare_queues(source: Store, target: Store) -> int:
    """Let queues have the limits at the target that they have at the source, where none hold there; how many do."""
    known = {queue.name: queue for queue in target.list_queues()}
    limited = [queue for queue in source.list_queues() if queue != Queue(queue.name)]
    for queue in limited:
        if known.get(queue.name, Queue(queue.name)) == Queue(queue.name):
            target.declare_queue(queue)
    return len(limited)


def carry_debounces(source: Store, target: Store) -> int:
    """Let the keys of debounced starts lead to their runs at the target, where those are; how many do.

    A start that somebody made there meanwhile is newer, and stands.
    """
    kept, after = 0, ("", "")
    while found := source.list_debounces(after=after):
        for row in filter(is_whole_row, found):
            if target.read_run(row.run_id) is not None:
                kept += target.keep_debounce(row)
        after = (found[-1].agent, found[-1].key)
    return kept


def switch_off(source: Store, target: Store) -> int:
    """Take every schedule along, off in both stores from here on; how many there are.

    One that is off at the source, and known at the target, says nothing new: it was moved before, or nobody wants it.
    """
    rows = [row for row in source.list_schedules() if is_whole_row(row)]
    for row in rows:
        moving: Schedule | None = row
        while moving is not None:
            moving = _off_in_both(source, target, moving)
    return len(rows)


def switch_on(source: Store, target: Store) -> None:
    """Let the schedules go on at the target that a move switched off in both stores."""
    off_at = {row.name: row.off_at for row in source.list_schedules() if row.off_at}
    for row in target.list_schedules():
        if is_whole_row(row) and row.off_at and row.off_at == off_at.get(row.name):
            target.change_schedule(row, _off(row, 0.0))


def _off_in_both(source: Store, target: Store, row: Schedule) -> Schedule | None:
    """One attempt; the row as it is now where somebody changed it meanwhile."""
    known = next((other for other in target.list_schedules() if other.name == row.name), None)
    now = clock.wall_seconds()
    if row.off_at:
        if known is None:  # off it stays: at another instant, so that it is not taken for one under way
            target.change_schedule(None, _off(row, math.nextafter(row.off_at, math.inf)))
        return None
    if not target.change_schedule(known, _off(row, now)):
        return row
    if source.change_schedule(row, _off(row, now)):
        return None
    return next((other for other in source.list_schedules() if other.name == row.name), None)


def _off(row: Schedule, at: float) -> Schedule:
    return sealed_schedule(msgspec.structs.replace(row, off_at=at))
