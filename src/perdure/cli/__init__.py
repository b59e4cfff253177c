"""The command `perdure`: one file for each family of commands, loaded when it is asked for.

What a command shows goes to standard output. An error goes to standard error as what happened, what is safe and what to
do, and its family is the exit code: 2 usage, 3 waiting for a person, 4 in doubt, 5 parked, 6 store, 1 the agent failed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import traceback
from typing import Final, NamedTuple

import click
from click.shell_completion import CompletionItem

from perdure.cli import awaiting
from perdure.cli.contract import refused
from perdure.cli.misuse import explained, unknown_command
from perdure.cli.mode import COMPLETING, is_coloured, mode
from perdure.cli.options import store_option
from perdure.cli.screen import INTERRUPTED_EXIT_CODE, fail, print_json, say
from perdure.cli.streams import close_streams, open_streams, output
from perdure.errors import InternalError, PerdureError, Signal
from perdure.version import VERSION


class Verb(NamedTuple):
    """A command: the module that has it under its own name, and what it does in a few words."""

    module: str
    summary: str
    acts: bool = True
    """Whether it does anything but answer."""


GROUPS: Final = {
    "Begin": {
        "demo": Verb("demo", "watch an agent be killed, and go on", acts=False),
        "run": Verb("run", "run a script or an agent; the same command resumes it"),
        "start": Verb("start", "accept a run, to be executed later"),
        "worker": Verb("worker", "execute runs of some agents until told to stop"),
        "resume": Verb("resume", "go on with a run where it stopped, or with all of them"),
    },
    "Look": {
        "ps": Verb("ps", "what is unfinished, and the next command for each", acts=False),
        "ls": Verb("ls", "list runs by any filter", acts=False),
        "show": Verb("show", "what happened in a run, and why it stopped", acts=False),
        "step": Verb("step", "everything about one step", acts=False),
        "logs": Verb("logs", "the records of a run, a line each, as they come", acts=False),
        "diff": Verb("diff", "compare two moments of a run, or two runs", acts=False),
    },
    "Decide": {
        "inbox": Verb("inbox", "everything that waits for a person", acts=False),
        "approve": Verb("approve", "say yes to what a run asks"),
        "reject": Verb("approve", "say no to it"),
        "answer": Verb("answer", "answer in any other way"),
        "settle": Verb("settle", "say what became of an effect in doubt"),
        "signal": Verb("signal", "send a run what it waits for"),
    },
    "Change": {
        "pause": Verb("control", "stop a run at its next step"),
        "unpause": Verb("control", "let it go on"),
        "cancel": Verb("control", "end a run for good"),
        "retry": Verb("retry", "attempt anew what failed"),
        "fork": Verb("fork", "go on from an earlier step, as a new run"),
        "undo": Verb("undo", "take the effects of a run back"),
        "pin": Verb("pin", "let workers of one version alone go on with a run"),
        "unpin": Verb("pin", "let workers of any version go on with it"),
    },
    "Keep": {
        "workers": Verb("workers", "who executes runs", acts=False),
        "queues": Verb("queues", "what waits where, and what is allowed", acts=False),
        "drain": Verb("workers", "ask a worker to finish and end"),
        "schedules": Verb("schedules", "what starts by itself, and when", acts=False),
        "doctor": Verb("doctor", "whether runs are safe here, and what to mend", acts=False),
        "verify": Verb("verify", "check every record, and say what is trusted", acts=False),
        "repair": Verb("repair", "let a damaged run go on from what is trusted"),
        "export": Verb("export", "write a run to a file"),
        "import": Verb("import_", "take such a file in, verified"),
        "crash": Verb("crash", "kill an agent at every point, and see that it recovers"),
        "upgrade-check": Verb("upgrade_check", "which unfinished runs would park under new code", acts=False),
        "migrate": Verb("migrate", "bring a store up to date, or move its runs to another"),
        "gc": Verb("gc", "remove runs that ended long ago"),
        "completion": Verb("complete", "complete commands and run names in your shell", acts=False),
    },
}
"""Every command, by what somebody is after."""

COMMANDS: Final = {name: verb for group in GROUPS.values() for name, verb in group.items()}

_NAME_COLUMNS: Final = max(map(len, COMMANDS))


class Commands(click.Group):
    """The group of all commands; only the one that is asked for is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and args[0].endswith(".py"):
            args = ["run", *args]  # a script alone, as `python` takes it
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise unknown_command(args[0], COMMANDS, args)
        mode.acts = bool(args) and args[0] in COMMANDS and COMMANDS[args[0]].acts
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin like that; none of them is imported for it."""
        known = [CompletionItem(name) for name in COMMANDS if name.startswith(incomplete)]
        return [*known, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = getattr(importlib.import_module(f"perdure.cli.{COMMANDS[cmd_name].module}"), cmd_name)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands in their groups; none of them is imported for it."""
        del ctx
        for title, group in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{_NAME_COLUMNS}}", verb.summary) for name, verb in group.items()])


@click.group(
    cls=Commands,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(VERSION, prog_name="perdure")
@store_option
@click.pass_context
def perdure(context: click.Context) -> None:
    """Crash recovery for AI agents: see the runs, answer and resume them, settle what is in doubt."""
    if context.invoked_subcommand is None:
        say(context.get_help())


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code says how it ended."""
    open_streams()
    if COMPLETING in os.environ:
        return _complete(arguments)
    try:
        with awaiting.shown():
            return _heard(_ended(arguments))
    finally:
        close_streams()
        mode.forget()


def _ended(arguments: list[str] | None) -> int:
    """Do what was typed, and say what went wrong."""
    try:
        code = perdure.main(
            arguments, prog_name="perdure", standalone_mode=False, color=None if is_coloured() else False
        )
    except click.ClickException as error:
        return _refuse(explained(error, arguments))
    except (click.Abort, KeyboardInterrupt):
        fail("interrupted; what was recorded is kept (perdure ps)")
        return INTERRUPTED_EXIT_CODE
    except PerdureError as error:
        return _refuse(error)
    except Signal as signal:
        fail(f"{signal}")
        return 1
    except Exception as error:  # noqa: BLE001 - the last place: a fault of ours is named, not dumped
        if isinstance(error, OSError) and _place(error).name == click.echo.__name__:
            return _unheard(error)
        return _refuse(_fault(error))
    return code if isinstance(code, int) else 0


def _unheard(error: OSError) -> int:
    """What click itself shows could not be written."""
    mode.acts = True
    output.lose(error)
    mode.acts = False
    return output.exit_code


def _heard(code: int) -> int:
    """The exit code, once everything is written; that an answer got lost is said, and is only an error of its own
    where there was nothing else to do than to answer.
    """
    close_streams()
    if output.complaint:
        fail(output.complaint)
    return code or (0 if mode.acts or output.lost is None else output.exit_code)


def _complete(arguments: list[str] | None) -> int:
    """Offer what can be typed; a shell that asks in the middle of a word is never answered with an error."""
    with contextlib.suppress(Exception, SystemExit, KeyboardInterrupt):
        perdure.main(arguments, prog_name="perdure")
    return 0


def _refuse(error: PerdureError) -> int:
    """Say what went wrong, to whoever asked; the exit code is its family."""
    mode.acts = True  # what went wrong is what the exit code tells, whether it can be shown or not
    if mode.as_json:
        print_json(refused(error))
    if not mode.as_json or output.lost is not None:
        fail(*error.lines())
    return error.exit_code


def _fault(error: Exception) -> InternalError:
    place = _place(error)
    return InternalError(
        f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}, line {place.lineno}).",  # noqa: PTH119
        safe="what was recorded is kept.",
        hint="this is a fault in perdure: please report it with this line",
    )


def _place(error: Exception) -> traceback.FrameSummary:
    """Where it was raised."""
    return traceback.extract_tb(error.__traceback__)[-1]
