"""`perdure retry`: attempt anew what failed, or what is parked; everything completed stands."""

from __future__ import annotations

import click

from perdure.cli.options import command, json_option, looking, run_argument, store_option
from perdure.cli.outcome import Moved
from perdure.cli.runs import current_run
from perdure.cli.stopped import Stopped, agent_of, go_on, stopped_run
from perdure.cli.typed import app_option, app_words
from perdure.engine.whereabouts import UNDONE
from perdure.errors import CommitsLost, RunPaused, UsageError
from perdure.records import FINISHED, RunState, WaitReason
from perdure.store.lease import read_park
from perdure.telemetry.text import legible


@click.command()
@run_argument(required=True)
@app_option("the agent")
@json_option(Moved)
@store_option
def retry(run: str, apps: tuple[str, ...], *, as_json: bool) -> None:
    """Attempt anew what failed in a run that failed or is parked; its completed steps are not repeated.

    What the run was parked for is forgiven: its deliveries begin anew.
    """
    del as_json
    with looking() as store:
        stopped = stopped_run(store, current_run(store, run))
    refusal = _refusal(stopped)
    if refusal is not None:
        raise refusal
    agent = agent_of(stopped, apps)
    go_on(stopped, agent, pardon=True, again=command("retry", stopped.run.name, *app_words(apps)))


def _refusal(stopped: Stopped) -> UsageError | None:
    """Why there is nothing to retry, and the run's own next command; None for a run that failed or is parked."""
    run, status, park = stopped.run, stopped.status, read_park(stopped.run)
    next_command = status.next
    if run.state in FINISHED or park.code == UNDONE:
        what = "failed and its effects were undone" if park.code == UNDONE else f"is {run.state}"
        next_command = command("fork", run.name)
        if run.state == RunState.COMPLETED:
            what += "; a fork from an earlier step does what follows again, as a new run"
            next_command = command("fork", run.name, "--at", "0")
    elif run.state == RunState.FAILED:
        return None
    elif status.state == RunState.RUNNING:
        what, next_command = f"is running, {status.cause}", command("show", run.name)
    elif run.reason == WaitReason.PARKED and park.code not in (CommitsLost.code, RunPaused.code):
        return None
    else:
        what = f"is {status.words}, and did not fail{f' ({legible(status.cause, 200)})' if status.cause else ''}"
    return UsageError(f"Run {run.name} {what}.", safe="nothing was started.", hint=next_command)
