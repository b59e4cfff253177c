"""`perdure schedules`: what starts by itself, when next, and what came of it last; and switching one off or on."""

from __future__ import annotations

import shlex
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Final

import click
from msgspec import Meta, Struct

from perdure.cli.mode import mode
from perdure.cli.options import command, json_option, looking, store_option, writing
from perdure.cli.screen import bad, bold, dim, doubtful, good, print_json, room, say
from perdure.cli.table import Column, Row, laid_out
from perdure.cron import zone_of
from perdure.errors import PerdureError, UsageError
from perdure.records import is_whole_row
from perdure.schedules import switched
from perdure.store.lease import read_park
from perdure.store.moving import has_left, migrate_command
from perdure.store.protocol import Which
from perdure.telemetry.text import legible, utc

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.records import Schedule
    from perdure.store.protocol import Store

_SAFE = "nothing was changed."
_LOOKED_AT: Final = 100
"""So many of the newest runs that were moved away are looked at, to tell where a schedule went."""


class ScheduleObject(Struct, frozen=True):
    """A schedule: whose it is, when it is due, and what came of it last."""

    name: Annotated[str, Meta(description="its name: the agent's, and after a colon its own where it has one")]
    agent: Annotated[str, Meta(description="the agent's name")]
    cron: Annotated[str, Meta(description="the cron expression")]
    timezone: Annotated[str, Meta(description="the time zone by which it is read")]
    catch_up: Annotated[str, Meta(description="what becomes of missed ticks: last, all or none")]
    state: Annotated[str, Meta(description="on, off, due (no worker has seen to its tick yet) or damaged")]
    next_at: Annotated[float, Meta(description="the next tick; one in the past is due")]
    off_at: Annotated[float, Meta(description="when it was switched off, or 0")]
    last_at: Annotated[float, Meta(description="the newest tick that became a run, or 0")]
    last_run_id: Annotated[str, Meta(description="the id of that run, or empty")]
    last_run: Annotated[str, Meta(description="its name; empty where it was removed")]
    last_state: Annotated[str, Meta(description="its state, or empty")]


class Schedules(Struct, frozen=True):
    """The schedules of a store."""

    store: Annotated[str, Meta(description="where they are kept")]
    schedules: Annotated[tuple[ScheduleObject, ...], Meta(description="by name")]


@click.command()
@click.option("--off", metavar="NAME", help="Start nothing more for this one; runs that were started go on.")
@click.option("--on", metavar="NAME", help="Let it go on with its next tick; what it missed is not made up for.")
@click.option("--forget", metavar="NAME", help="Remove it; a worker whose code still has it declares it anew.")
@json_option(Schedules)
@store_option
def schedules(*, off: str | None, on: str | None, forget: str | None, as_json: bool) -> None:
    """List what starts by itself, when it is due next, and what came of it last.

    Workers declare the schedules of their agents when they start. NAME is the schedule's name or the end of it.
    """
    given = [name for name in (off, on, forget) if name is not None]
    if len(given) > 1:
        raise UsageError("--off, --on and --forget are given one at a time.", safe=_SAFE, hint="perdure schedules")
    if given:
        _change(given[0], off=None if forget is not None else off is not None)
    with looking() as store:
        now, location = store.now(), store.location
        objects = tuple(_object(store, row, now) for row in store.list_schedules())
    if as_json:
        print_json(Schedules(location, objects))
    elif not objects:
        say(f"Nothing is scheduled in {location}. A worker declares the schedules of its agents: perdure worker FILE.")
    else:
        for line in laid_out(_COLUMNS, [_row(each) for each in objects], width=room()):
            say(line)


def _change(name: str, *, off: bool | None) -> None:
    """Switch it off or on, or remove it where neither is meant; whoever changed it meanwhile is not overruled."""
    mode.acts = True
    with writing() as store:
        while True:
            row = _found(store, name)
            if off is not None and not is_whole_row(row):
                raise UsageError(
                    f"Schedule {row.name} is damaged.", safe=_SAFE, hint=command("schedules", "--forget", row.name)
                )
            if off is False and row.off_at:
                _refuse_moved(store, row)
            after = None if off is None else switched(row, off=off, now=store.now())
            if after == row or store.change_schedule(row, after):
                return


def _refuse_moved(store: Store, row: Schedule) -> None:
    """A schedule that went to another store is on there: on here too, each of its ticks would become two runs."""
    last = store.read_run(row.last_run) if row.last_run else None
    since = [run for run in store.find_runs(Which(moved=True), limit=_LOOKED_AT) if run.updated_at >= row.off_at]
    gone = [run for run in (last, *since) if run is not None and has_left(run)]
    move = read_park(gone[0]).move if gone else None
    if move is not None:
        there = ("--store", move.target)
        raise UsageError(
            f"Schedule {row.name} was moved to {legible(move.target)}, with the runs of this store.",
            safe="it was left off here, so that a tick does not become two runs.",
            hint=f"{shlex.join(('perdure', 'schedules', '--on', row.name, *there))}; to have it here again: "
            f"{migrate_command(move.target, move.source)}",
        )


def _found(store: Store, name: str) -> Schedule:
    rows = store.list_schedules()
    exact = [row for row in rows if row.name == name]
    ending = [row for row in rows if name and row.name.replace(":", ".").endswith(f".{name.replace(':', '.')}")]
    found = exact or ending
    if len(found) == 1:
        return found[0]
    names = ", ".join(legible(row.name) for row in found or rows) or "none"
    what = f"{len(found)} schedules end in" if found else "There is no schedule"
    raise UsageError(f"{what} {legible(name, 60)!r}; known: {names}.", safe=_SAFE, hint=command("schedules"))


def _object(store: Store, row: Schedule, now: float) -> ScheduleObject:
    try:
        run = store.read_run(row.last_run) if row.last_run else None
        name, state = (run.name, run.state) if run is not None else ("", "removed" if row.last_run else "")
    except PerdureError:
        name, state = "", "damaged"
    return ScheduleObject(
        row.name,
        row.agent,
        row.cron,
        row.timezone,
        row.catch_up,
        _state(row, now),
        row.next_at,
        row.off_at,
        row.last_at,
        row.last_run,
        name,
        state,
    )


def _state(row: Schedule, now: float) -> str:
    if not is_whole_row(row):
        return "damaged"
    return "off" if row.off_at else ("due" if row.next_at <= now else "on")


_COLUMNS = (
    Column("SCHEDULE", least=12),
    Column("CRON", least=9),
    Column("ZONE", least=6),
    Column("NEXT"),
    Column("LAST RUN", least=12),
)
_PAINTS: dict[str, Callable[[str], str]] = {
    "completed": good,
    "failed": bad,
    "damaged": bad,
    "waiting": doubtful,
    "removed": dim,
}


def _row(each: ScheduleObject) -> Row:
    last = f"{each.last_run} {each.last_state}".strip() if each.last_state else "none yet"
    shown = each.state if each.state in ("off", "damaged") else _instant(each)
    paint: dict[int, Callable[[str], str]] = {0: bold, 4: _PAINTS.get(each.last_state, str)}
    if each.state != "on":
        paint[3] = bad if each.state == "damaged" else doubtful
    return Row((each.name, each.cron, each.timezone, shown, last), paint)


def _instant(each: ScheduleObject) -> str:
    """As clocks in the schedule's zone show it, where the zone is known here."""
    try:
        shown = f"{datetime.fromtimestamp(each.next_at, zone_of(each.timezone)):%Y-%m-%d %H:%M}"
    except UsageError:
        shown = utc(each.next_at)
    return f"{shown}, due" if each.state == "due" else shown
