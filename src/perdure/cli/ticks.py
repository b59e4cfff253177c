"""What a worker tells a person about schedules, a line for each event."""

from __future__ import annotations

from typing import Final

from perdure import events
from perdure.cli.screen import tell
from perdure.telemetry.text import legible, utc

TOLD: Final = (
    events.ScheduleDeclared,
    events.ScheduleWithdrawn,
    events.TickStarted,
    events.TicksSkipped,
    events.TickRefused,
)


def tell_tick(event: events.Observable) -> None:
    """Say what became of a schedule or a tick of it."""
    match event:
        case events.ScheduleDeclared(schedule, cron, timezone, next_at):
            tell(f"schedule {legible(schedule)}: {legible(cron)} ({legible(timezone)}), next {utc(next_at)}")
        case events.ScheduleWithdrawn(schedule):
            tell(f"schedule {legible(schedule)}: not in the code any more, and removed")
        case events.TickStarted(_, name, schedule, tick_at):
            tell(f"  + {legible(name)}  the tick of {legible(schedule)} at {utc(tick_at)}")
        case events.TicksSkipped(schedule, since_at, until_at):
            tell(f"schedule {legible(schedule)}: no runs for ticks from {utc(since_at)} until before {utc(until_at)}")
        case events.TickRefused(schedule, error):
            tell(f"schedule {legible(schedule)}: {legible(error)}")
        case _:
            pass
