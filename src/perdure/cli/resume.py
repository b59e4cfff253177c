"""`perdure resume`: go on with a run where it stopped, and say what was not repeated."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from msgspec import Struct

import perdure
from perdure import clock, codec, demo, events
from perdure.cli.app import load_agent
from perdure.cli.options import looking, run_argument, store_option, writing
from perdure.cli.progress import Progress, kind_only
from perdure.cli.runs import find_run, unfinished
from perdure.cli.screen import bold, dim, good, joined, say, spread, tell
from perdure.cli.status import Status, numbers_of, resume_command, status_of
from perdure.engine import agent as engine
from perdure.engine.control import who
from perdure.engine.recovery import acceptance
from perdure.errors import PerdureError, StepFailed, UsageError
from perdure.records import FINISHED, Ended, Kind, Record, Run, RunState, read_body
from perdure.replay import Journal
from perdure.settings import current_settings
from perdure.telemetry.text import age, counted, duration, legible

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.store.protocol import Store

_RESULT_CHARACTERS: Final = 2000
_OWN_FOLDER: Final = Path(perdure.__file__).parent


class Stopped(Struct, frozen=True):
    """What is known of a run before it is resumed."""

    run: Run
    status: Status
    records: list[Record]


@click.command()
@run_argument(required=False)
@click.option("--app", metavar="FILE|MODULE", help="The code of the run's agent: a Python file or a module.")
@click.option("--accept", is_flag=True, help="Go on with the files, branches and other resources as they are now.")
@store_option
def resume(run: str | None, app: str | None, *, accept: bool) -> None:
    """Resume a run; without RUN, the newest that is unfinished.

    Completed steps are not repeated. RUN named is also forgiven: a run that was parked because it kept ending its
    processes is given another chance. The code comes from --app, or, easier, by starting the agent's script again.
    """
    with looking() as store:
        stopped = _choose(store, run)
    if stopped is None:
        return
    if stopped.run.state in FINISHED:
        _show_finished(stopped)
        return
    if accept:
        _accept(stopped)
        if app is None and stopped.run.agent != demo.NAME:
            say(f"  {dim('next:')} start its script again, or {resume_command(stopped.run)}")
            return
    agent = _agent_of(stopped, app)
    _show_stopped(stopped)
    _go_on(stopped, agent, pardon=run is not None)


def _choose(store: Store, wanted: str | None) -> Stopped | None:
    if wanted is not None:
        run: Run | None = find_run(store, wanted)
    else:
        run, held = unfinished(store, stall_seconds=current_settings().stall_seconds)
        if run is None:
            running = f"; {held.name} is running, {status_of(store, held).cause}" if held else ""
            say(f"Nothing to resume in {store.location}{running}.")
    return Stopped(run, status_of(store, run), store.load_journal(run.run_id)) if run else None


def _accept(stopped: Stopped) -> None:
    """Tell the run that a person has seen how its resources differ; it is committed when this returns."""
    mail = acceptance(stopped.run, by=who())
    with writing() as store:
        store.post(mail)
    say(f"{bold(stopped.run.name)}  accepted by {mail.by}: what differs now is taken as it is")


def _agent_of(stopped: Stopped, app: str | None) -> Callable[..., Any]:
    run = stopped.run
    if run.agent == demo.NAME:
        return demo.report_customers
    if app is not None:
        return load_agent(app, run)
    where, cause = _stopped_words(stopped)
    raise UsageError(
        f"Run {run.name} ({legible(run.agent)}) {where}: {cause}. Its code is not known here.",
        safe=f"its {counted(run.steps, 'completed step')} are saved; nothing was started.",
        hint=f"start its script again: it resumes; or {resume_command(run)}",
    )


def _go_on(stopped: Stopped, agent: Callable[..., Any], *, pardon: bool) -> None:
    journal = Journal(stopped.records)
    numbers = numbers_of(journal)
    open_steps = {entry.name: numbers[key] for key, entry in journal.open_entries()}
    is_demo = stopped.run.agent == demo.NAME
    progress = Progress(numbers, open_steps, demo.described if is_demo else kind_only)
    unsubscribe = events.subscribe(progress)
    try:
        value = engine.resume(agent, stopped.run, pardon=pardon)
    except Exception as error:
        if progress.ended is None or progress.ended.state != RunState.FAILED:
            raise
        raise _failed(stopped, error, steps=progress.ended.steps) from error
    finally:
        unsubscribe()
    _show_completed(stopped, value, steps=progress.ended.steps if progress.ended else stopped.run.steps)


def _show_stopped(stopped: Stopped) -> None:
    run = stopped.run
    where, cause = _stopped_words(stopped)
    tell(joined(f"{bold(run.name)}  {where}", cause))
    done = [entry for _, entry in Journal(stopped.records).completed()]
    if not done:
        return
    seconds = sum(entry.done.seconds for entry in done if entry.done)
    saved = f"saved {duration(seconds)}"
    if run.agent == demo.NAME:
        saved = f"{saved} and ${demo.dollars_of(entry.name for entry in done):.4f} (made up)"
    tell(spread(f"  {counted(len(done), 'step')} done, not repeated", dim(saved)))


def _stopped_words(stopped: Stopped) -> tuple[str, str]:
    """How long ago it stopped and where, and why."""
    run, status = stopped.run, stopped.status
    ago = age(clock.wall_seconds() - status.at)
    of = f" of {demo.STEPS}" if run.agent == demo.NAME else ""
    cause = legible(status.cause.splitlines()[0]) if status.cause else status.words
    verb = "failed" if run.state == RunState.FAILED else "stopped"
    return f"{verb} {ago} ago at step {run.steps + 1}{of}", cause


def _show_completed(stopped: Stopped, value: object, *, steps: int) -> None:
    deliveries = sum(record.kind == Kind.DELIVERY for record in stopped.records) + 1
    tell(f"  {good('completed')}  {counted(steps, 'step')}, delivery {deliveries}")
    _show_result(codec.seal(value).decode())


def _show_finished(stopped: Stopped) -> None:
    run = stopped.run
    ago = age(clock.wall_seconds() - run.updated_at)
    tell(f"{bold(run.name)}  {run.state} {ago} ago after {counted(run.steps, 'step')}; nothing is left to resume")
    ended = read_body(stopped.records[-1])
    if isinstance(ended, Ended) and run.state == RunState.COMPLETED and not ended.blob:
        _show_result(bytes(ended.value).decode())


def _show_result(sealed: str) -> None:
    if sealed != "null":
        tell(f"  result: {legible(sealed, _RESULT_CHARACTERS)}")


def _failed(stopped: Stopped, error: Exception, *, steps: int) -> PerdureError:
    """What the agent itself raised, as its own traceback, and then where that leaves the run."""
    run = stopped.run
    safe = f"its {counted(steps, 'completed step')} are saved."
    hint = f"mend the cause, then: {resume_command(run)}"
    if isinstance(error, PerdureError):
        error.safe, error.hint = error.safe or safe, error.hint or hint
        return error
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _is_ours(frame.filename)]
    shown = "".join(traceback.format_list(frames)) + "".join(traceback.format_exception_only(error))
    click.echo(f"Traceback (most recent call last):\n{shown}", err=True, nl=False)
    return StepFailed(f"Run {run.name} failed: {type(error).__name__}: {error}", safe=safe, hint=hint)


def _is_ours(filename: str) -> bool:
    return Path(filename).is_relative_to(_OWN_FOLDER) and Path(filename).name != "demo.py"
