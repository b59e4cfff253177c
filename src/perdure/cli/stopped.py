"""A run that stopped: where and why, whose code it needs, and going on with it; shared by `resume` and `retry`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
from msgspec import Struct

from perdure import clock, demo
from perdure.cli.app import load_agent
from perdure.cli.mode import may_ask
from perdure.cli.moving import describing, move
from perdure.cli.outcome import Moved, saved_of
from perdure.cli.progress import Progress
from perdure.cli.screen import bold, joined, tell
from perdure.cli.status import resume_command, status_of
from perdure.engine import agent as engine
from perdure.engine.whereabouts import UNDO_AGENT
from perdure.errors import UsageError, saved_steps
from perdure.records import Record, Run, RunState
from perdure.replay import Journal
from perdure.status import Status, is_demo, likely_app
from perdure.telemetry.text import age, legible

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.store.protocol import Store


class Stopped(Struct, frozen=True):
    """What is known of a run before it goes on."""

    run: Run
    status: Status
    records: list[Record]

    @property
    def words(self) -> tuple[str, str]:
        """How long ago it stopped and where, and why."""
        run, status = self.run, self.status
        of = f" of {steps}" if (steps := demo.steps_of(run.agent)) else ""
        cause = legible(status.cause.splitlines()[0]) if status.cause else status.words
        if status.state == RunState.QUEUED:
            cause = cause.partition("; ")[0]  # what it will come to is told as it comes to it
        if not run.epoch:
            return f"accepted {age(clock.wall_seconds() - run.created_at)} ago", "not begun yet"
        verb = "failed" if run.state == RunState.FAILED else "stopped"
        return f"{verb} {age(clock.wall_seconds() - status.at)} ago at step {run.steps + 1}{of}", cause


def stopped_run(store: Store, run: Run) -> Stopped:
    """What is known of this run."""
    return Stopped(run, status_of(store, run), store.load_journal(run.run_id))


def agent_of(stopped: Stopped, apps: tuple[str, ...]) -> Callable[..., Any]:
    """The code of the run's agent: from what was named, or from a file here that a person agrees to."""
    run = stopped.run
    if own := demo.agent_of(run.agent):
        return own
    if run.agent == UNDO_AGENT:
        raise UsageError(
            f"Run {run.name} takes back what another run did.", safe="nothing was started.", hint=resume_command(run)
        )
    named = apps or _agreed(stopped)
    if named:
        return load_agent(named, run)
    where, cause = stopped.words
    raise UsageError(
        f"Run {run.name} ({legible(run.agent)}) {where}: {cause.removesuffix('.')}. Its code is not known here.",
        safe=f"{saved_steps(run.steps)}; nothing was started.",
        hint=f"start its script again: it resumes; or {resume_command(run)}",
    )


def go_on(stopped: Stopped, agent: Callable[..., Any], *, pardon: bool, again: str, shape: type[Moved] = Moved) -> None:
    """Resume the run in this process, to its end."""
    journal = Journal(stopped.records)
    saved = saved_of(journal)
    is_held = stopped.status.state == RunState.RUNNING  # then it is refused, and nothing stopped
    if not is_held:
        tell(joined(f"{bold(stopped.run.name)}  {stopped.words[0]}", stopped.words[1]))
    if saved.steps and not is_held:
        tell(f"  {saved.words}{' (made up)' if saved.dollars and is_demo(stopped.run.agent) else ''}")
    progress = Progress(journal, run_id=stopped.run.run_id, describe=describing(stopped.run.agent))
    move(lambda: engine.resume(agent, stopped.run, pardon=pardon), progress, again=again, saved=saved, shape=shape)


def _agreed(stopped: Stopped) -> tuple[str, ...]:
    """The file that seems to have the code, if a person says so: a record alone never chooses what is loaded."""
    app = likely_app(stopped.run.agent)
    if not app or not may_ask():
        return ()
    run = stopped.run
    question = (
        f"{run.name} is a run of {legible(run.agent)}, which seems to be in {legible(app)}. Load that and resume?"
    )
    return (app,) if click.confirm(question, err=True) else ()
