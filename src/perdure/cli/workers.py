"""`perdure workers` and `perdure drain`: who executes runs, and asking one to stop taking any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import click
from msgspec import Meta, Struct

from perdure import clock
from perdure.cli.options import json_option, looking, store_option, writing
from perdure.cli.screen import bad, bold, dim, doubtful, good, print_json, say
from perdure.errors import UsageError
from perdure.records import RunState
from perdure.settings import current_settings
from perdure.store.protocol import EVERY, Which
from perdure.telemetry.text import age, counted, legible

if TYPE_CHECKING:
    from perdure.records import Worker
    from perdure.store.protocol import Store


_DEAD_SHOWN: Final = 10
"""So many of the dead are listed, the newest."""


class WorkerObject(Struct, frozen=True):
    """A process that may hold runs."""

    worker_id: Annotated[str, Meta(description="its id")]
    pid: Annotated[int, Meta(description="its process number")]
    host: Annotated[str, Meta(description="its machine")]
    beat_at: Annotated[float, Meta(description="when it last gave a sign of life")]
    alive: Annotated[bool, Meta(description="whether its process is there")]
    draining: Annotated[bool, Meta(description="whether it was asked to drain")]
    runs: Annotated[int, Meta(description="how many runs it holds")]
    death: Annotated[str, Meta(description="how it died; empty where it lives, or nobody was told")]
    died_at: Annotated[float, Meta(description="when that was noticed; 0 where it was not")]
    version: Annotated[str, Meta(description="the version of its code; empty where it was given none")]


class Workers(Struct, frozen=True):
    """The processes that are known to a store."""

    store: Annotated[str, Meta(description="where the runs are kept")]
    workers: Annotated[
        tuple[WorkerObject, ...], Meta(description="the living, then some of the dead; the newest sign of life first")
    ]
    more: Annotated[int, Meta(description="how many of the dead are left out")]


class Drained(Struct, frozen=True):
    """Whom `perdure drain` asked."""

    workers: Annotated[tuple[str, ...], Meta(description="the ids of those that were asked")]


@click.command()
@json_option(Workers)
@store_option
def workers(*, as_json: bool) -> None:
    """List the processes that hold runs of this store, or could; and those that died lately, and how."""
    with looking() as store:
        objects, more = _objects(store)
        location = store.location
    if as_json:
        print_json(Workers(location, objects, more))
        return
    if not objects:
        say(f"Nobody works on {location}. perdure worker FILE does.")
        return
    say(dim(f"{'WORKER':<14} {'PROCESS':<24} {'BEAT':>8} {'RUNS':>5}"))
    for each in objects:
        where = legible(f"{each.pid} on {each.host}", 24)
        ago = f"{age(clock.wall_seconds() - each.beat_at)} ago"
        version = f"  version {legible(each.version)}" if each.version else ""
        state = "" if each.alive else bad(f"died: {legible(each.death)}" if each.death else "gone")
        if each.alive and each.draining:
            state = doubtful("draining")
        say(f"{bold(f'{each.worker_id:<14}')} {where:<24} {ago:>8} {each.runs:>5}{version}  {state}".rstrip())
    if more:
        say(dim(f"… and {counted(more, 'more')} that died before"))


@click.command()
@click.argument("worker", required=False)
@click.option("--all", "everybody", is_flag=True, help="Every worker.")
@json_option(Drained)
@store_option
def drain(worker: str | None, *, everybody: bool, as_json: bool) -> None:
    """Ask WORKER to finish the steps it is in, give its runs back and end; WORKER is the beginning of its id."""
    if (worker is None) == (not everybody):
        raise UsageError("Name a worker, or all.", safe="nothing was changed.", hint="perdure workers lists them")
    with looking() as store:
        known = store.list_workers()
    chosen = [each for each in known if everybody or each.worker_id.startswith(worker or "")]
    if not chosen or (not everybody and len(chosen) > 1):
        raise _unclear(worker or "", chosen, known)
    with writing() as store:
        for each in chosen:
            store.ask_to_drain(each.worker_id)
    if as_json:
        print_json(Drained(tuple(each.worker_id for each in chosen)))
    else:
        say(f"{good('asked')} {counted(len(chosen), 'worker')} to drain; perdure workers tells when they are gone")


def _objects(store: Store) -> tuple[tuple[WorkerObject, ...], int]:
    """The living and the newest of the dead, and how many more died."""
    held = store.find_runs(Which(states=(RunState.RUNNING,)), limit=EVERY)
    counts: dict[str, int] = {}
    for run in held:
        counts[run.holder] = counts.get(run.holder, 0) + 1
    known = sorted(store.list_workers(), key=lambda each: each.beat_at, reverse=True)
    objects = [
        WorkerObject(
            each.worker_id,
            each.pid,
            each.host,
            each.beat_at,
            alive=not each.died_at and store.is_alive(each.worker_id, stall_seconds=current_settings().stall_seconds),
            draining=each.drain_at > 0,
            runs=counts.get(each.worker_id, 0),
            death=each.death,
            died_at=each.died_at,
            version=each.version,
        )
        for each in known
    ]
    dead = [each for each in objects if not each.alive]
    return (*(each for each in objects if each.alive), *dead[:_DEAD_SHOWN]), max(0, len(dead) - _DEAD_SHOWN)


def _unclear(wanted: str, chosen: list[Worker], known: list[Worker]) -> UsageError:
    names = ", ".join(each.worker_id for each in chosen or known) or "none"
    what = f"{len(chosen)} workers begin with" if chosen else "There is no worker"
    return UsageError(
        f"{what} {legible(wanted)!r}; known: {names}.", safe="nothing was changed.", hint="perdure workers"
    )
