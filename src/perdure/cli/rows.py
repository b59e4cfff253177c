"""A run on one line of a table: where it stands, how far it is, how old, what it took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure import clock
from perdure.cli.screen import bad, doubtful, good
from perdure.records import DEFAULT_QUEUE, FINISHED, RunState, is_own_id
from perdure.telemetry.saving import money
from perdure.telemetry.text import age, legible

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.bodies import Note
    from perdure.records import Run
    from perdure.status import Status

COLOURS: Final[dict[str, Callable[[str], str]]] = {
    RunState.COMPLETED: good,
    RunState.RUNNING: good,
    RunState.FAILED: bad,
    RunState.WAITING: doubtful,
}
_CAUSE_CHARACTERS: Final = 40


def state_words(status: Status) -> str:
    """The state, and why, in a few words."""
    why = status.brief or status.reason.replace("_", " ")
    if status.state == RunState.FAILED and not why:
        why = legible(status.cause.partition(":")[0], _CAUSE_CHARACTERS)
    return f"{status.state:<7} {why}".rstrip()


def called(run: Run) -> str:
    """What a run is called: its name, and the id that somebody chose for it."""
    return f"{run.name} {run.run_id}" if is_own_id(run.run_id) else run.name


def first_cause(run: Run, status: Status) -> str:
    """The first line of why a run is where it is, on a page that names the run already."""
    return status.cause.partition("\n")[0].removeprefix(f"Run {run.name}: ")


def step_words(run: Run, progress: Note | None) -> str:
    """How far it is: as it says itself, else how many steps it has completed."""
    if progress is not None and progress.total:
        return f"{progress.done:g}/{progress.total:g}"
    return f"{run.steps}"


def progress_words(note: Note) -> str:
    """How far an agent says it is, such as 47/50 transform."""
    total = f"/{note.total:g}" if note.total else ""
    return f"{note.done:g}{total} {note.text}".strip()


def short_age(since: float) -> str:
    """How long ago that was, in few characters: 6s, 3m, 2h, 5d."""
    return age(clock.wall_seconds() - since).replace(" min", "m").replace(" ", "")


def last_progress(run: Run) -> str:
    """How long ago its journal last grew; a run that is over makes none."""
    return "-" if run.state in FINISHED else f"{short_age(run.updated_at)} ago"


def cost_words(*, dollars: float, tokens: int) -> str:
    """What was spent, in dollars where they are known, else in tokens."""
    if dollars:
        return money(dollars)
    return f"{tokens:,}t" if tokens else ""


def place_words(run: Run) -> tuple[str, ...]:
    """Where a run stands among others, as far as that was said."""
    return (
        f"queue {run.queue}" if run.queue != DEFAULT_QUEUE else "",
        f"priority {run.priority}" if run.priority else "",
        f"tenant {run.tenant}" if run.tenant else "",
    )


def short_agent(agent: str) -> str:
    """An agent's name without its module."""
    return agent.rpartition(".")[2]
