"""`perdure worker`: execute whatever runs of some agents may go on, until it is told to stop."""

from __future__ import annotations

import os
import signal
import threading
from typing import TYPE_CHECKING, Annotated, Any, Final

import click
from msgspec import Meta, Struct

from perdure import clock, events
from perdure.cli.app import load_agents
from perdure.cli.mode import is_terminal, mode
from perdure.cli.options import complete_files, json_option, refuse_memory, store_option
from perdure.cli.screen import print_json, tell
from perdure.engine.agent import spec_of
from perdure.engine.session import session
from perdure.errors import UsageError
from perdure.settings import current_settings
from perdure.telemetry.log import write_line
from perdure.telemetry.text import counted, duration, legible
from perdure.worker import Limits, Worker
from perdure.worker.health import Health

if TYPE_CHECKING:
    from perdure.engine.agent import AgentSpec

_MEGABYTE: Final = 1_000_000
_EXIT_MARGIN_SECONDS: Final = 0.3
"""What leaving takes, kept free at the end of the grace period."""


class Worked(Struct, frozen=True):
    """What a worker says when it has ended."""

    worker_id: Annotated[str, Meta(description="the worker's id")]
    runs: Annotated[int, Meta(description="how many times a run was taken")]
    left: Annotated[tuple[str, ...], Meta(description="ids of runs that were still inside a step when it had to leave")]


@click.command()
@click.argument("apps", metavar="FILE|MODULE...", nargs=-1, required=True, shell_complete=complete_files)
@click.option("--concurrency", metavar="N", default=10, type=click.IntRange(min=1), help="Runs at a time. [10]")
@click.option("--grace", metavar="SECONDS", default=30.0, help="How long a step may go on after SIGTERM. [30]")
@click.option(
    "--max-memory", metavar="MB", default=0, type=click.IntRange(min=0), help="Claim nothing above this size."
)
@click.option("--health", metavar="[HOST:]PORT", help="Answer GET / with 200 while it works; on 127.0.0.1.")
@click.option(
    "--log", type=click.Choice(["lines", "json"]), help="How events are told; JSON where there is no terminal."
)
@json_option(Worked)
@store_option
def worker(
    apps: tuple[str, ...],
    *,
    concurrency: int,
    grace: float,
    max_memory: int,
    health: str | None,
    log: str | None,
    as_json: bool,
) -> None:
    """Execute runs of the agents in these files or modules: accepted, abandoned by a dead process, or due.

    Any number of workers may share a store. SIGTERM or Ctrl-C drains: nothing more is taken, the current steps are
    finished and recorded, and others go on from there. A step that outlasts --grace is left to them as well.
    """
    del as_json
    refuse_memory(current_settings().store)
    agents = _specs(apps)
    opened = session()
    working = Worker(opened, agents, Limits(concurrency=concurrency, memory_bytes=max_memory * _MEGABYTE))
    taken = Taken()
    events.subscribe(taken, events.RunTaken)
    if log == "json" or (log is None and not is_terminal()):
        events.subscribe(write_line)
    else:
        events.subscribe(_tell_line, events.WorkerStarted, events.WorkerStopped, events.RunTaken, events.RunEnded)
    with Health(health, working):
        left = _drained(working, grace_seconds=grace)
    if mode.as_json:
        print_json(Worked(working.worker_id, taken.count, left))
    if left:
        opened.close()
        os._exit(0)  # a body that does not return would keep the process


class Taken:
    """Counts the runs that were taken."""

    count = 0

    def __call__(self, event: events.Observable) -> None:
        del event
        self.count += 1


def _specs(apps: tuple[str, ...]) -> dict[str, AgentSpec]:
    agents = load_agents(apps)
    if not agents:
        raise UsageError(
            f"{' and '.join(apps)} has no agent.", safe="nothing was started.", hint="put @perdure.agent above a def"
        )
    return {name: spec_of(function) for name, function in agents.items()}


def _drained(working: Worker, *, grace_seconds: float) -> tuple[str, ...]:
    """Work until a signal comes and all has ended; the runs that had not when the grace was over."""
    asked = threading.Event()
    before = {number: signal.signal(number, _asking(asked)) for number in (signal.SIGTERM, signal.SIGINT)}
    thread = threading.Thread(target=working.work, name="perdure-worker", daemon=True)
    thread.start()
    try:
        while thread.is_alive() and not (asked.wait(_EXIT_MARGIN_SECONDS) or working.is_draining):
            pass
        working.drain()
        until = clock.boot_seconds() + max(0.0, grace_seconds - _EXIT_MARGIN_SECONDS)
        while thread.is_alive() and clock.boot_seconds() < until:
            thread.join(_EXIT_MARGIN_SECONDS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return tuple(working.moving())


def _asking(asked: threading.Event) -> Any:  # noqa: ANN401 - a signal handler
    def ask(number: int, frame: object) -> None:
        del number, frame
        if asked.is_set():
            os._exit(130)  # asked twice: the runs are those of a process that died
        asked.set()

    return ask


def _tell_line(event: events.Observable) -> None:
    match event:
        case events.WorkerStarted(worker_id, agents, concurrency):
            names = ", ".join(map(legible, agents))
            tell(f"worker {worker_id}: {names}; {counted(concurrency, 'run')} at a time; Ctrl-C drains")
        case events.RunTaken(_, name, agent, delivery, seconds):
            tell(
                f"  ▸ {legible(name)}  {legible(agent)}, delivery {delivery}, {duration(seconds)} after it could go on"
            )
        case events.RunEnded(_, name, state, reason, steps):
            why = f" ({reason})" if reason else ""
            tell(f"  · {legible(name)}  {state}{why}, {counted(steps, 'step')}")
        case events.WorkerStopped():
            tell("drained")
        case _:
            pass
