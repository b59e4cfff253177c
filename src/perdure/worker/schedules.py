"""What a worker does about schedules: it declares those of its code, and starts a run for each tick that is due.

Nobody leads. Whoever sees a tick first accepts its run, whose id follows from schedule and tick, and then moves the
schedule on to the next. Killed between the two, the next worker finds the run there, and moves the schedule on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure import clock, events, schedules
from perdure.engine.schedule import accept_tick
from perdure.errors import CheckpointCorrupt, PerdureError, StoreError, UsageError
from perdure.records import is_whole_row, tick_id

if TYPE_CHECKING:
    from collections.abc import Mapping

    from perdure.engine.agent import AgentSpec
    from perdure.engine.session import Session
    from perdure.records import Schedule
    from perdure.store.protocol import Store

LOOK_SECONDS: Final = 0.5
"""How often a worker looks at the schedules of its agents."""

SHUN_SECONDS: Final = 30.0
"""How long a schedule whose tick could not be started here is left to others."""


class Timekeeper:
    """The schedules of a worker's agents."""

    def __init__(self, opened: Session, agents: Mapping[str, AgentSpec], *, is_declared: bool = False) -> None:
        self._session = opened
        self._agents = agents
        self._wanted = {row.name: row for spec in agents.values() for row in spec.schedules}
        self.is_declared = is_declared
        self._look_at = 0.0
        self._shunned: dict[str, float] = {}

    def look(self) -> None:
        """See to what is due, and declare what the code says once nothing of what was said before it is left."""
        if (self.is_declared and not self._wanted) or clock.boot_seconds() < self._look_at:
            return
        store = self._session.store
        rows = store.list_schedules()
        kept = {row.name: row for row in rows if row.agent in self._agents or row.name in self._wanted}
        now = store.now() if kept or self._wanted else 0.0
        changed = [self._see_to(store, row, now) for row in kept.values()]
        if any(changed):
            return  # it is looked at again at once, as it is now
        if not self.is_declared:
            self.is_declared = self._declare(store, kept, now)
        self._look_at = clock.boot_seconds() + (LOOK_SECONDS if self.is_declared else 0.0)

    def _see_to(self, store: Store, row: Schedule, now: float) -> bool:
        """Start the runs of every tick that is due; whether there was something to do, and it could be done."""
        if self._shunned.get(row.name, 0.0) > clock.boot_seconds():
            return False
        try:
            due = self._due(row, now)
            if due is None:
                return False
            run_ids = [self._start(row, tick_at, now) for tick_at in due.ticks]
        except StoreError:
            raise
        except (PerdureError, TypeError, ValueError) as error:
            self._shunned[row.name] = clock.boot_seconds() + SHUN_SECONDS
            events.publish(events.TickRefused(row.name, str(error)))
            return False
        done = schedules.seen_to(row, due, run_id=run_ids[-1] if run_ids else "")
        if store.change_schedule(row, done) and due.skipped_until:
            events.publish(events.TicksSkipped(row.name, row.next_at, due.skipped_until))
        return True

    def _due(self, row: Schedule, now: float) -> schedules.Due | None:
        if is_whole_row(row):
            return schedules.due(row, now=now) if row.agent in self._agents else None
        if row.name in self._wanted and not self.is_declared:
            return None  # it is about to be declared anew
        raise UsageError(f"Schedule {row.name} is damaged.", hint="perdure verify; start a worker of its code anew")

    def _start(self, row: Schedule, tick_at: float, now: float) -> str:
        try:
            run, is_new = accept_tick(self._session, self._agents[row.agent], row, tick_at)
        except CheckpointCorrupt:
            return tick_id(row.name, tick_at)  # it was accepted; that it is damaged since concerns that run alone
        if is_new:
            events.publish(events.TickStarted(run.run_id, run.name, row.name, tick_at, max(0.0, now - tick_at)))
        return run.run_id

    def _declare(self, store: Store, kept: Mapping[str, Schedule], now: float) -> bool:
        """Let the store say of our agents' schedules what the code says; False where somebody changed one meanwhile."""
        for name, wanted in self._wanted.items():
            after = schedules.declared(wanted, kept.get(name), now=now)
            if after is not None:
                if not store.change_schedule(kept.get(name), after):
                    return False
                events.publish(events.ScheduleDeclared(name, after.cron, after.timezone, after.next_at))
        for name, row in kept.items():
            if name not in self._wanted:
                if not store.change_schedule(row, None):
                    return False
                events.publish(events.ScheduleWithdrawn(name))
        return True
