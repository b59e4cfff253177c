"""`perdure worker`: execute whatever runs of some agents may go on, until it is told to stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated, Any, Final

import click
from msgspec import Meta, Struct

from perdure import clock, events
from perdure.asked import STOPS, Asked, Bell
from perdure.cli import ticks, worker_lines
from perdure.cli.app import load_agents
from perdure.cli.contract import refused
from perdure.cli.mode import is_terminal, mode
from perdure.cli.options import complete_files, json_option, refuse_memory, store_option
from perdure.cli.screen import INTERRUPTED_EXIT_CODE, fail, print_json
from perdure.engine.agent import spec_of
from perdure.engine.session import session
from perdure.errors import UsageError
from perdure.queues import checked_queue
from perdure.settings import Given, choose, current_settings
from perdure.telemetry.log import write_line
from perdure.worker import Limits, Worker
from perdure.worker.aftermath import Plan
from perdure.worker.declaration import declaration_of
from perdure.worker.health import Health, listener_at
from perdure.worker.line import Declared, Ended, Finished, Line, Ready, Refused, Took
from perdure.worker.reload import files_of, own_files
from perdure.worker.supervisor import supervised

if TYPE_CHECKING:
    from collections.abc import Callable
    from socket import socket

    from perdure.engine.agent import AgentSpec
    from perdure.engine.session import Session

_MEGABYTE: Final = 1_000_000
_DAY_SECONDS: Final = 86_400.0
_EXIT_MARGIN_SECONDS: Final = 0.3
"""What leaving takes, kept free at the end of the grace period."""


class Worked(Struct, frozen=True):
    """What a worker says when it has ended."""

    worker_id: Annotated[str, Meta(description="the worker's id")]
    runs: Annotated[int, Meta(description="how many times a run was taken")]
    left: Annotated[tuple[str, ...], Meta(description="ids of runs that were still inside a step when it had to leave")]
    deaths: Annotated[int, Meta(description="how many processes died at the work, and were replaced")]


@click.command()
@click.argument("apps", metavar="FILE|MODULE...", nargs=-1, required=True, shell_complete=complete_files)
@click.option("--concurrency", metavar="N", default=10, type=click.IntRange(min=1), help="Runs at a time. [10]")
@click.option("--queue", "queues", metavar="NAME", multiple=True, help="Take runs of this queue alone; repeatable.")
@click.option("--version", metavar="NAME", help="Of this code: take runs pinned to it too. [PERDURE_VERSION]")
@click.option("--grace", metavar="SECONDS", default=30.0, help="How long a step may go on after SIGTERM. [30]")
@click.option(
    "--max-memory", metavar="MB", default=0, type=click.IntRange(min=0), help="Claim nothing above this size."
)
@click.option("--health", metavar="[HOST:]PORT", help="Answer GET / with 200 while it works; on 127.0.0.1.")
@click.option(
    "--log", type=click.Choice(["lines", "json"]), help="How events are told; JSON where there is no terminal."
)
@click.option("--reload", is_flag=True, help="For development: start anew when a file of yours changes.")
@click.option("--in-process", is_flag=True, help="Work in this very process: nobody starts another when it dies.")
@json_option(Worked)
@store_option
def worker(
    apps: tuple[str, ...],
    *,
    concurrency: int,
    queues: tuple[str, ...],
    version: str | None,
    grace: float,
    max_memory: int,
    health: str | None,
    log: str | None,
    reload: bool,
    in_process: bool,
    as_json: bool,
) -> int:
    """Execute runs of the agents in these files or modules: accepted, abandoned by a dead process, or due.

    Any number of workers may share a store. SIGTERM or Ctrl-C drains: nothing more is taken, the current steps are
    finished and recorded, and others go on from there. A step that outlasts --grace is left to them as well. Asked
    again, a second or more later, it leaves at once.

    The work is done in a child process. One that dies is replaced, and how it died is kept: see perdure workers.
    """
    del as_json
    if version is not None:
        choose({"version": Given(version, "--version")})
    refuse_memory(current_settings().store)
    _refuse_endless(grace)
    _refuse_both(reload=reload, in_process=in_process)
    _tell_events(log)
    listener = listener_at(health)
    served = tuple(map(checked_queue, queues))
    limits = Limits(concurrency=concurrency, memory_bytes=max_memory * _MEGABYTE, queues=served)
    if in_process:
        return _work(apps, limits, listener, grace_seconds=grace)
    plan = Plan(current_settings(), grace_seconds=grace, reload=reload, code=" ".join(apps))
    outcome = supervised(plan, listener)
    if isinstance(outcome, Line):
        return _work_as_child(apps, limits, listener, outcome, grace_seconds=grace, reload=reload)
    if outcome.error is not None:
        print_json(refused(outcome.error)) if mode.as_json else fail(*outcome.error.lines())
    elif mode.as_json and outcome.worker_id:
        print_json(Worked(outcome.worker_id, outcome.runs, outcome.left, outcome.deaths))
    return outcome.exit_code


class Taken:
    """Counts the runs that were taken."""

    count = 0

    def __call__(self, event: events.Observable) -> None:
        del event
        self.count += 1


def _work(apps: tuple[str, ...], limits: Limits, listener: socket | None, *, grace_seconds: float) -> int:
    """Work in this very process."""
    taken = Taken()
    events.subscribe(taken, events.RunTaken)
    opened, working, _ = _opened(apps, limits)
    asked = Bell()
    with Heeding(asked), Health(listener, working):
        left = _drained(working, asked, grace_seconds=lambda: grace_seconds)
    if mode.as_json:
        print_json(Worked(working.worker_id, taken.count, left, 0))
    _end(opened, left)
    return 0


def _work_as_child(
    apps: tuple[str, ...], limits: Limits, listener: socket | None, line: Line, *, grace_seconds: float, reload: bool
) -> int:
    """Work in a process that another waits for, and tell that one what it needs to know."""
    sys.dont_write_bytecode |= reload  # a file that changes twice in a second would be mistaken for its older self
    line.listen(own_files if reload else None)
    events.subscribe(lambda _: line.say(Took()), events.RunTaken)
    events.subscribe(lambda _: line.say(Finished()), events.RunEnded)
    try:
        opened, working, declaration = _opened(apps, limits, declared=line.declared)
        working.on_declared = lambda: line.say(Declared(declaration))
        heed = Heeding(line.asked)
        line.say(Ready(working.worker_id))
    except BaseException as error:
        line.say_loaded([*own_files(), *files_of(error)])
        line.say(Refused())
        raise
    with heed, Health(listener, working):
        left = _drained(
            working,
            line.asked,
            grace_seconds=lambda: grace_seconds if line.grace_seconds is None else line.grace_seconds,
        )
    line.say(Ended(left))
    _end(opened, left)
    return 0


def _opened(apps: tuple[str, ...], limits: Limits, *, declared: str = "") -> tuple[Session, Worker, str]:
    agents = _specs(apps)
    declaration = declaration_of(agents)
    opened = session()
    return opened, Worker(opened, agents, limits, is_declared=declaration == declared), declaration


def _end(opened: Session, left: tuple[str, ...]) -> None:
    if left:
        opened.close()
        os._exit(0)  # a body that does not return would keep the process


def _refuse_endless(grace: float) -> None:
    if not 0 <= grace <= _DAY_SECONDS:
        raise UsageError(
            f"--grace {grace:g} is no time to wait.", safe="nothing was started.", hint="--grace 30, at most a day"
        )


def _refuse_both(*, reload: bool, in_process: bool) -> None:
    if reload and in_process:
        raise UsageError(
            "--reload needs a parent, and --in-process does without.",
            safe="nothing was started.",
            hint="leave one of them out",
        )


def _tell_events(log: str | None) -> None:
    if log == "json" or (log is None and not is_terminal()):
        mode.logs_events = True
        events.subscribe(write_line)
    else:
        events.subscribe(worker_lines.tell_line, *worker_lines.TOLD)
        events.subscribe(ticks.tell_tick, *ticks.TOLD)


def _specs(apps: tuple[str, ...]) -> dict[str, AgentSpec]:
    agents = load_agents(apps, option="")
    if not agents:
        raise UsageError(
            f"{' and '.join(apps)} has no agent.", safe="nothing was started.", hint="put @perdure.agent above a def"
        )
    return {name: spec_of(function) for name, function in agents.items()}


def _drained(working: Worker, asked: Bell, *, grace_seconds: Callable[[], float]) -> tuple[str, ...]:
    """Work until somebody asks for an end and all has ended; the runs that had not when the grace was over."""
    faults: list[Exception] = []
    thread = threading.Thread(target=_noting, args=(working.work, faults), name="perdure-worker", daemon=True)
    thread.start()
    while thread.is_alive() and not (asked.wait(_EXIT_MARGIN_SECONDS) or working.is_draining):
        pass
    working.drain()
    until = clock.boot_seconds() + max(0.0, grace_seconds() - _EXIT_MARGIN_SECONDS)
    while thread.is_alive() and clock.boot_seconds() < until:
        thread.join(_EXIT_MARGIN_SECONDS)
    if faults:
        raise faults[0]  # it did not drain: it stopped looking for work
    return tuple(working.moving())


def _noting(work: Callable[[], None], faults: list[Exception]) -> None:
    try:
        work()
    except Exception as error:  # noqa: BLE001 - it is raised where it can be told
        faults.append(error)


class Heeding:
    """From the very moment at which it is made, signals that end a process ask this one to drain."""

    def __init__(self, asked: Bell) -> None:
        stops = [number for number in STOPS if signal.getsignal(number) is not signal.SIG_IGN]
        ask = _asking(asked)
        self._before = {number: signal.signal(number, ask) for number in stops}

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def _asking(asked: Bell) -> Any:  # noqa: ANN401 - a signal handler
    heard = Asked()

    def ask(number: int, frame: object) -> None:
        heard.note(number, frame)
        if heard.is_impatient:
            os._exit(INTERRUPTED_EXIT_CODE)  # the runs are those of a process that died
        asked.ring()

    return ask
