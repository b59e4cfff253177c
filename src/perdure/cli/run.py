"""`perdure run`: a script as it is, or an agent in this process; the same command again resumes it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click
import msgspec

from perdure.adapters.script.order import Order
from perdure.cli.app import targeted_agent
from perdure.cli.arguments import bound_arguments
from perdure.cli.contract import run_object
from perdure.cli.mode import mode
from perdure.cli.moving import describing, move
from perdure.cli.options import complete_files, json_option, looking, refuse_memory, store_option
from perdure.cli.outcome import Moved, Saved
from perdure.cli.progress import Progress
from perdure.cli.screen import print_json
from perdure.cli.script import ScriptEnd, end_alike, run_script
from perdure.cli.status import status_of
from perdure.cli.target import AgentTarget, Script, names_agent, parse_target
from perdure.cli.typed import tags_of
from perdure.engine.agent import call, spec_of
from perdure.engine.control import deadline_of, written_tags
from perdure.engine.lifecycle import Request
from perdure.errors import UsageError
from perdure.settings import current_settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    F = TypeVar("F", bound=Callable[..., Any])

SAME_COMMAND = "the same command resumes it"


class Targeted(click.Command):
    """A command whose options may follow an agent; what follows a script is the script's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.allow_interspersed_args = False
        target = self.make_parser(ctx).parse_args(args=list(args))[0].get("target")
        ctx.allow_interspersed_args = isinstance(target, str) and (self.name != "run" or names_agent(target))
        return super().parse_args(ctx, args)


def request_options(command: F) -> F:
    """What can be asked of a new run."""
    for option in (
        click.option("--deadline", metavar="TIME", help="Fail the run if it is not done in time: 90s, 30m, 2h, 3d."),
        click.option("--tag", "tags", metavar="NAME=VALUE", multiple=True, help="Kept with the run; may be repeated."),
        click.option("--id", "run_id", metavar="ID", help="The run's id: the same id is the same run, always."),
    ):
        command = option(command)
    return command


@click.command(cls=Targeted)
@click.argument("target", metavar="TARGET", shell_complete=complete_files)
@click.argument("arguments", metavar="[ARGUMENT]...", nargs=-1, type=click.UNPROCESSED, shell_complete=complete_files)
@request_options
@click.option("--fresh", is_flag=True, help="Start over, even if an unfinished run of the same call is there.")
@click.option("--no-resume", is_flag=True, help="Neither resume an unfinished run nor start a killed script again.")
@click.option("--strict", is_flag=True, help="Stop a script at the first call that cannot be protected.")
@json_option(Moved)
@store_option
def run(
    target: str,
    arguments: tuple[str, ...],
    *,
    run_id: str | None,
    tags: tuple[str, ...],
    deadline: str | None,
    fresh: bool,
    no_resume: bool,
    strict: bool,
    as_json: bool,
) -> int:
    """Run a script or an agent; killed, the same command resumes it.

    TARGET is script.py, executed as Python would with the arguments that follow; or an agent, as script.py:agent or
    module:agent, with arguments name=value, each JSON or a text. An agent's result is printed as JSON.

    A script that knows nothing of perdure is a run as a whole: its model calls and its tools are recorded, a crash
    starts it again, and what could not be protected is said.
    """
    del as_json
    match parse_target(target):
        case Script(path):
            order = Order(run_id, fresh, not no_resume, tags_of(tags, safe="nothing was started."), deadline, strict)
            return _end_of(run_script(path, arguments, order, restarts=not no_resume))
        case AgentTarget() as found:
            if strict:
                raise UsageError(
                    "--strict is for a script that knows nothing of perdure, and the target is an agent.",
                    safe="nothing was started.",
                    hint="leave it out: in an agent, what is a step or an effect is protected",
                )
            request = request_of(run_id, tags, deadline, fresh=fresh)
            _run_agent(found, arguments, msgspec.structs.replace(request, resumes=not no_resume))
    return 0


def request_of(run_id: str | None, tags: tuple[str, ...], deadline: str | None, *, fresh: bool) -> Request:
    """What was asked of the run; its arguments are read once its agent is known."""
    return Request(
        (), {}, run_id, fresh, written_tags(tags_of(tags, safe="nothing was started.")), deadline_of(deadline)
    )


def with_arguments(request: Request, agent: Callable[..., Any], texts: tuple[str, ...]) -> Request:
    """The request with the arguments that were typed."""
    bound = bound_arguments(spec_of(agent), texts)
    return msgspec.structs.replace(request, args=bound.args, kwargs=bound.kwargs)


def _run_agent(target: AgentTarget, arguments: tuple[str, ...], request: Request) -> None:
    refuse_memory(current_settings().store)
    agent = targeted_agent(target)
    full = with_arguments(request, agent, arguments)
    spec = spec_of(agent)
    progress = Progress(run_id=request.run_id or "", app=target.app, describe=describing(spec.name))
    move(lambda: call(agent, full), progress, again=SAME_COMMAND)


def _end_of(end: ScriptEnd) -> int:
    if mode.as_json:
        newest = next(iter(end.runs), None)
        shown = None
        if newest is not None:
            with looking() as store:
                shown = run_object(newest, status_of(store, newest))
        print_json(Moved(shown, None, Saved(), end.code))
    return end_alike(end.code)
