"""`perdure resume`: go on with a run where it stopped, or with all that can; and say what was not repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import click

from perdure import demo
from perdure.cli.app import load_agent, load_agents
from perdure.cli.choice import Bounds, choose
from perdure.cli.fleet import Fleet, resume_all, show_choices
from perdure.cli.mode import mode
from perdure.cli.options import json_option, looking, run_argument, store_option, writing
from perdure.cli.outcome import Moved, Saved, moved_object, show_result
from perdure.cli.runs import find_run, unfinished
from perdure.cli.screen import bold, dim, print_json, say, tell
from perdure.cli.status import resume_command, status_of
from perdure.cli.stopped import Stopped, agent_of, go_on, show_stopped, stopped_at
from perdure.engine.control import who
from perdure.engine.recovery import acceptance
from perdure.errors import UsageError
from perdure.policy import RESUMABLE_SECONDS, seconds_of
from perdure.records import FINISHED, Ended, Run, RunState, read_body
from perdure.settings import current_settings
from perdure.telemetry.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.store.protocol import Store

AT_ONCE: Final = 8
"""So many runs are resumed at a time, unless another number is named."""


@click.command()
@run_argument(required=False)
@click.option("--app", "apps", metavar="FILE|MODULE", multiple=True, help="The code of the agent; may be repeated.")
@click.option("--accept", is_flag=True, help="Go on with the files, branches and other resources as they are now.")
@click.option("--all", "every", is_flag=True, help="Resume every run that can go on now.")
@click.option("--failed", is_flag=True, help="With --all: also attempt failed runs anew.")
@click.option("--max-age", metavar="TIME", help="With --all: leave runs alone that nobody touched for longer: 24h.")
@click.option(
    "--at-once", metavar="N", type=click.IntRange(1, 256), default=AT_ONCE, help="With --all: so many at a time: 8."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be resumed, and why the others would not.")
@json_option(Moved)
@store_option
def resume(
    run: str | None,
    apps: tuple[str, ...],
    *,
    accept: bool,
    every: bool,
    failed: bool,
    max_age: str | None,
    at_once: int,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Resume a run; without RUN, the newest that is unfinished.

    Completed steps are not repeated. RUN named is also forgiven: a run that was parked because it kept ending its
    processes is given another chance. The code comes from --app, or, easier, by starting the agent's script again.
    """
    del as_json
    if every:
        _refuse_beside_all(run, accept=accept)
        bounds = Bounds(RESUMABLE_SECONDS if max_age is None else seconds_of(max_age, what="--max-age"), failed=failed)
        return _resume_all(apps, bounds, at_once=at_once, is_dry=dry_run)
    _refuse_without_all(failed=failed, max_age=max_age)
    with looking() as store:
        stopped = _choose(store, run)
    if stopped is not None:
        _resume(stopped, apps, accept=accept, is_named=run is not None, is_dry=dry_run)
    return 0


def _resume(stopped: Stopped, apps: tuple[str, ...], *, accept: bool, is_named: bool, is_dry: bool) -> None:
    if stopped.run.state in FINISHED:
        _show_finished(stopped)
        return
    if is_dry:
        _show_dry(stopped)
        return
    if accept:
        _accept(stopped)
        if not apps and stopped.run.agent != demo.NAME:
            say(f"  {dim('next:')} start its script again, or {resume_command(stopped.run)}")
            return
    agent = agent_of(stopped, apps)
    go_on(stopped, agent, pardon=is_named, again=_again(stopped, apps))
