"""The command `perdure`: one file for each family of commands, loaded when it is asked for.

What a command shows goes to standard output. An error goes to standard error as what happened, what is safe and what to
do, and its family is the exit code: 2 usage, 3 waiting for a person, 4 in doubt, 5 parked, 6 store, 1 the agent failed.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from typing import Final

import click
from click.shell_completion import CompletionItem

from perdure.cli.contract import refused
from perdure.cli.misuse import explained, unknown_command
from perdure.cli.mode import is_coloured, mode
from perdure.cli.options import store_option
from perdure.cli.screen import fail, print_json, silence
from perdure.errors import InternalError, PerdureError, Signal
from perdure.version import VERSION

COMMANDS: Final = {
    "demo": "demo",
    "run": "run",
    "start": "start",
    "ps": "ps",
    "ls": "ls",
    "show": "show",
    "step": "step",
    "logs": "logs",
    "inbox": "inbox",
    "approve": "approve",
    "reject": "approve",
    "answer": "answer",
    "signal": "signal",
    "resume": "resume",
    "retry": "retry",
    "pause": "control",
    "unpause": "control",
    "cancel": "control",
    "settle": "settle",
    "fork": "fork",
    "diff": "diff",
    "undo": "undo",
    "verify": "verify",
    "repair": "repair",
    "doctor": "doctor",
    "export": "export",
    "import": "import_",
    "gc": "gc",
    "completion": "complete",
}
"""Each command, and the module that has it under its own name."""

INTERRUPTED_EXIT_CODE: Final = 130
BROKEN_PIPE_EXIT_CODE: Final = 141
COMPLETING: Final = "_PERDURE_COMPLETE"
"""The variable by which a shell asks for completions instead of running a command."""


class Commands(click.Group):
    """The group of all commands; only the one that is asked for is imported."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            raise unknown_command(args[0], COMMANDS, args)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands that begin like that; none of them is imported for it."""
        known = [CompletionItem(name) for name in COMMANDS if name.startswith(incomplete)]
        return [*known, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = getattr(importlib.import_module(f"perdure.cli.{COMMANDS[cmd_name]}"), cmd_name)
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="perdure")
@store_option
def perdure() -> None:
    """Crash recovery for AI agents: see the runs, answer and resume them, settle what is in doubt."""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; the exit code says how it ended."""
    _print_everything()
    if COMPLETING in os.environ:
        return _complete(arguments)
    try:
        code = perdure.main(
            arguments, prog_name="perdure", standalone_mode=False, color=None if is_coloured() else False
        )
        sys.stdout.flush()
    except click.ClickException as error:
        return _refuse(explained(error, arguments))
    except (click.Abort, KeyboardInterrupt):
        fail("interrupted; what was recorded is kept (perdure ps)")
        return INTERRUPTED_EXIT_CODE
    except BrokenPipeError:
        silence()
        return BROKEN_PIPE_EXIT_CODE
    except PerdureError as error:
        return _refuse(error)
    except Signal as signal:
        fail(f"{signal}")
        return 1
    except Exception as error:  # noqa: BLE001 - the last place: a fault of ours is named, not dumped
        return _refuse(_fault(error))
    return code if isinstance(code, int) else 0


def _complete(arguments: list[str] | None) -> int:
    """Offer what can be typed; a shell that asks in the middle of a word is never answered with an error."""
    with contextlib.suppress(Exception, SystemExit, KeyboardInterrupt):
        perdure.main(arguments, prog_name="perdure")
    return 0


def _refuse(error: PerdureError) -> int:
    """Say what went wrong, to whoever asked; the exit code is its family."""
    if mode.as_json:
        print_json(refused(error))
    else:
        fail(*error.lines())
    return error.exit_code


def _fault(error: Exception) -> InternalError:
    place = traceback.extract_tb(error.__traceback__)[-1]
    return InternalError(
        f"{type(error).__name__}: {error} ({os.path.basename(place.filename)}, line {place.lineno}).",  # noqa: PTH119
        safe="what was recorded is kept.",
        hint="this is a fault in perdure: please report it with this line",
    )


def _print_everything() -> None:
    """A character the terminal does not know is shown as a question mark, not raised as an error."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
