"""`perdure resume`: go on with a run where it stopped, or with all that can; and say what was not repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from perdure import clock, demo
from perdure.cli.app import load_agents
from perdure.cli.choice import Bounds, Choice, choose
from perdure.cli.ending import result_of
from perdure.cli.fleet import Resumed, resume_all, show_choices
from perdure.cli.mode import mode
from perdure.cli.options import command, json_option, looking, run_argument, store_option, writing
from perdure.cli.outcome import Saved, moved_object, show_result
from perdure.cli.runs import current_run, unfinished
from perdure.cli.screen import bold, joined, print_json, say, say_next, tell
from perdure.cli.script import end_alike, resumed_script
from perdure.cli.status import resume_command, status_of
from perdure.cli.stopped import Stopped, agent_of, go_on, stopped_run
from perdure.cli.typed import app_option, app_words
from perdure.engine.control import who
from perdure.engine.recovery import acceptance
from perdure.errors import UsageError
from perdure.policy import RESUMABLE_SECONDS, seconds_of
from perdure.records import FINISHED, RunState
from perdure.replay import Journal
from perdure.settings import current_settings
from perdure.status import resumable
from perdure.telemetry.text import age, counted

if TYPE_CHECKING:
    from perdure.store.protocol import Store

AT_ONCE: Final = 8
"""So many runs are resumed at a time, unless another number is named."""

_MOST_AT_ONCE: Final = 256
_NO_RESULT: Final = b"null"


@click.command()
@run_argument(required=False)
@app_option("the agent")
@click.option("--accept", is_flag=True, help="Go on with the files, branches and other resources as they are now.")
@click.option("--all", "every", is_flag=True, help="Resume every run that can go on now.")
@click.option("--failed", is_flag=True, help="With --all: attempt failed runs anew, too.")
@click.option("--max-age", metavar="TIME", help="With --all: leave alone what nobody touched for longer; 24h.")
@click.option(
    "--at-once", metavar="N", type=click.IntRange(1, _MOST_AT_ONCE), help="With --all: how many at a time; 8."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be resumed, and why the others would not.")
@json_option(Resumed)
@store_option
def resume(
    run: str | None,
    apps: tuple[str, ...],
    *,
    accept: bool,
    every: bool,
    failed: bool,
    max_age: str | None,
    at_once: int | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Resume a run; without RUN, the newest that is unfinished; with --all, every run that can go on now.

    Completed steps are not repeated. RUN named is also forgiven: a run that was parked because it kept ending its
    processes is given another chance. The code comes from --app, or, easier, by starting the agent's script again.
    """
    del as_json
    if every:
        _refuse(run is not None, "--all takes no RUN.", command("resume", "--all", *app_words(apps)))
        _refuse(accept, "--all takes no --accept.", "one run at a time: perdure resume RUN --accept")
        seconds = RESUMABLE_SECONDS if max_age is None else seconds_of(max_age, what="--max-age")
        return _resume_all(apps, Bounds(seconds, failed=failed), at_once=at_once or AT_ONCE, is_dry=dry_run)
    is_lost = failed or max_age is not None or at_once is not None
    _refuse(is_lost, "--failed, --max-age and --at-once belong to --all.", "perdure resume --all --app FILE")
    with looking() as store:
        stopped = _choose(store, run)
    if stopped is not None and run is not None and not (accept or dry_run or stopped.run.state in FINISHED):
        end = resumed_script(stopped.run, apps, stopped.records[0])
        if end is not None:
            return end_alike(end.code)
    if stopped is not None:
        _resume(stopped, apps, accept=accept, is_named=run is not None, is_dry=dry_run)
    return 0


def _resume(stopped: Stopped, apps: tuple[str, ...], *, accept: bool, is_named: bool, is_dry: bool) -> None:
    if stopped.run.state in FINISHED:
        _show_finished(stopped)
        return
    if is_dry:
        show_choices([_dry(stopped)])
        return
    if accept:
        _accept(stopped)
        if not apps and demo.agent_of(stopped.run.agent) is None:
            say_next(f"start its script again, or {resume_command(stopped.run)}")
            return
    agent = agent_of(stopped, apps)
    again = command("resume", stopped.run.name, *app_words(apps))
    go_on(stopped, agent, pardon=is_named, again=again, shape=Resumed)


def _dry(stopped: Stopped) -> Choice:
    """What would become of this one run: whoever names it is obeyed unless somebody holds it."""
    with looking() as store:
        root = resumable(store, stopped.run, Journal(stopped.records))
        status = status_of(store, root)
    is_held = status.state == RunState.RUNNING
    return Choice(root, status, status.cause or status.words, goes_on=not is_held, next=status.next if is_held else "")


def _resume_all(apps: tuple[str, ...], bounds: Bounds, *, at_once: int, is_dry: bool) -> int:
    agents = load_agents(apps)
    agents = {**demo.agents(), **agents}
    known = Bounds(bounds.max_age_seconds, bounds.failed, agents)
    with looking() as store:
        choices = choose(store, known)
    if is_dry:
        show_choices(choices)
        return 0
    return resume_all(choices, agents, at_once=at_once)


def _choose(store: Store, wanted: str | None) -> Stopped | None:
    """The run that is meant; where none is unfinished, that is said, and no error."""
    if wanted is not None:
        return stopped_run(store, current_run(store, wanted))
    run, held = unfinished(store, stall_seconds=current_settings().stall_seconds)
    if run is not None:
        return stopped_run(store, run)
    if mode.as_json:
        print_json(Resumed(None, None, Saved()))
    else:
        running = f"; {held.name} is running, {status_of(store, held).cause}" if held else ""
        say(f"Nothing to resume in {store.location}{running}.")
    return None


def _accept(stopped: Stopped) -> None:
    """Tell the run that a person has seen how its resources differ; it is committed when this returns."""
    mail = acceptance(stopped.run, by=who())
    with writing() as store:
        store.post(mail)
    tell(f"{bold(stopped.run.name)}  accepted by {mail.by}: what differs now is taken as it is")


def _show_finished(stopped: Stopped) -> None:
    run = stopped.run
    with looking() as store:
        sealed = result_of(store, stopped.records[-1]) or _NO_RESULT
    if mode.as_json:
        print_json(moved_object(run, sealed, Saved(), shape=Resumed))
        return
    ago = age(clock.wall_seconds() - run.updated_at)
    where = f"{bold(run.name)}  {run.state} {ago} ago after {counted(run.steps, 'step')}"
    tell(joined(where, "nothing is left to resume"))
    show_result(sealed)


def _refuse(is_misused: bool, message: str, hint: str) -> None:  # noqa: FBT001 - the condition is what it is about
    if is_misused:
        raise UsageError(message, safe="nothing was started.", hint=hint)
