"""`perdure start`: accept a run without executing it; a worker does that, or `perdure resume`, here or elsewhere."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from perdure.cli.app import targeted_agent
from perdure.cli.contract import RunObject, run_object
from perdure.cli.debouncing import debounce_options, debouncing_of
from perdure.cli.mode import mode
from perdure.cli.options import command, complete_files, json_option, looking, refuse_memory, store_option
from perdure.cli.placing import placement_of, placement_options
from perdure.cli.run import Targeted, request_of, request_options, with_arguments
from perdure.cli.screen import bold, dim, print_json, say, say_next
from perdure.cli.status import status_of
from perdure.cli.target import agent_target
from perdure.engine.agent import accept
from perdure.records import Run
from perdure.settings import current_settings
from perdure.status import Status
from perdure.telemetry.text import legible


@click.command(cls=Targeted)
@click.argument("target", metavar="TARGET", shell_complete=complete_files)
@click.argument("arguments", metavar="[NAME=VALUE]...", nargs=-1, type=click.UNPROCESSED)
@request_options
@placement_options
@debounce_options
@json_option(RunObject)
@store_option
def start(
    target: str,
    arguments: tuple[str, ...],
    *,
    run_id: str | None,
    tags: tuple[str, ...],
    deadline: str | None,
    debounce: str | None,
    debounce_key: str | None,
    at_most: str | None,
    as_json: bool,
    **placing: Any,  # noqa: ANN401 - click's
) -> None:
    """Accept a run of an agent without executing it.

    TARGET is script.py:agent or module:agent. Once the id is printed the run is there, whatever happens;
    a worker executes it, or `perdure resume`. With --id, a run that is there already is the one that is printed.
    """
    del as_json
    refuse_memory(current_settings().store)
    asked = request_of(run_id, tags, deadline, fresh=False)
    asked = msgspec.structs.replace(asked, placement=placement_of(**placing))
    gathered = debouncing_of(debounce=debounce, debounce_key=debounce_key, at_most=at_most)
    found = agent_target(target)
    agent = targeted_agent(found)
    run = accept(agent, with_arguments(asked, agent, arguments), gathered=gathered)
    with looking() as store:
        status = _told(status_of(store, run), run, found.app)
    _show(run, status)


def _told(status: Status, run: Run, app: str) -> Status:
    """How the run stands; the code to resume it with is the one that was named here."""
    if run.epoch:
        return status
    return msgspec.structs.replace(status, next=command("resume", run.name, "--app", app))


def _show(run: Run, status: Status) -> None:
    if mode.as_json:
        print_json(run_object(run, status))
        return
    say(f"{bold(run.name)}  {legible(run.agent)}  {status.words}")
    say(f"  {dim('id:')}   {run.run_id}")
    if status.next:
        say_next(status.next)
