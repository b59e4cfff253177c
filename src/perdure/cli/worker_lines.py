"""What a person at the terminal of a worker is told, a line for each event."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from perdure import clock, events
from perdure.cli.screen import tell
from perdure.telemetry.text import counted, duration, legible

_OF_RUNS: Final = (events.RunTaken, events.RunEnded)
_OF_PROCESSES: Final = (events.WorkerDied, events.CodeChanged, events.ChangeAwaited)
_OF_THE_STORE: Final = (events.StoreMissed, events.StoreFound)

TOLD: Final = (
    events.WorkerStarted,
    events.WorkerDraining,
    events.WorkerStopped,
    *_OF_RUNS,
    *_OF_PROCESSES,
    *_OF_THE_STORE,
)
"""The events that are worth a line."""


def tell_line(event: events.Observable) -> None:
    """Show the line of an event, if it has one."""
    line = _of_runs(event) or _of_worker(event) or _of_processes(event) or _of_the_store(event)
    if line:
        tell(line)


def _of_worker(event: events.Observable) -> str:
    match event:
        case events.WorkerStarted(worker_id, agents, concurrency, version, queues):
            names = ", ".join(map(legible, agents)) + (f"; version {legible(version)}" if version else "")
            names += f"; of queue {', '.join(queues)} alone" if queues else ""
            return f"worker {worker_id}: {names}; {counted(concurrency, 'run')} at a time; Ctrl-C drains"
        case events.WorkerDraining(_, runs) if runs:
            return f"draining: {counted(runs, 'run')} to leave after the current step; Ctrl-C again leaves at once"
        case events.WorkerStopped():
            return "drained"
        case _:
            return ""


def _of_runs(event: events.Observable) -> str:
    match event:
        case events.RunTaken(_, name, agent, delivery, seconds):
            again = f", delivery {delivery} without a new step" if delivery > 1 else ""
            return f"  ▸ {legible(name)}  {legible(agent)}{again}, {duration(seconds)} after it could go on"
        case events.RunEnded(_, name, state, reason, steps):
            why = f" ({reason})" if reason else ""
            return f"  · {legible(name)}  {state}{why}, {counted(steps, 'step')}"
        case _:
            return ""


def _of_processes(event: events.Observable) -> str:
    match event:
        case events.WorkerDied("", _, cause):
            return f"the worker ended while it loaded its code: {cause}"
        case events.WorkerDied(worker_id, process, cause, seconds):
            then = "" if seconds is None else f"; another starts{f' in {duration(seconds)}' if seconds else ''}"
            return f"worker {worker_id} (pid {process} on {clock.host_name()}) died: {cause}{then}"
        case events.CodeChanged(files):
            return f"{', '.join(legible(Path(file).name) for file in files)} changed: starting anew"
        case events.ChangeAwaited():
            return "waiting for a change"
        case _:
            return ""


def _of_the_store(event: events.Observable) -> str:
    match event:
        case events.StoreMissed(_, error, seconds):
            return f"no run can be taken{f', for {duration(seconds)} now' if seconds else ''}: {legible(error)}"
        case events.StoreFound(_, seconds):
            return f"runs can be taken again, after {duration(seconds)}"
        case _:
            return ""
