"""What goes on the screen: colour only where a terminal wants it, stored text never as control codes."""

from __future__ import annotations

import contextlib
import shutil
import sys
from typing import TYPE_CHECKING, Final

import click
import msgspec

from perdure.cli.mode import is_plain, mode
from perdure.cli.streams import output
from perdure.telemetry.text import legible_lines

if TYPE_CHECKING:
    from collections.abc import Iterable

PLAIN_COLUMNS: Final = 80
"""The width of output that goes to no terminal."""

INTERRUPTED_EXIT_CODE: Final = 130
"""As a shell tells it of a command that SIGINT ended."""


def say(text: str = "", *, newline: bool = True) -> None:
    """Show a line of the answer on standard output; a command that only looks is over once nobody reads it."""
    if output.lost is not None:
        output.lose(output.lost)
        return
    try:
        click.echo(text, nl=newline)
    except OSError as error:
        output.lose(error)


def say_lines(lines: Iterable[bytes]) -> None:
    """Write these to standard output as they are; where that cannot be, it is no use to go on."""
    mode.acts = False
    try:
        for line in lines:
            if output.lost is not None:
                output.lose(output.lost)
            sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    except OSError as error:
        output.lose(error)


def print_json(value: object) -> None:
    """Show a value as JSON, for programs."""
    say(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def tell(text: str, *, newline: bool = True) -> None:
    """Show a line of ours beside an agent's work, on standard error; the work goes on even if nobody reads it."""
    if mode.as_json:
        return
    with contextlib.suppress(OSError, ValueError):
        click.echo(text, err=True, nl=newline)


def say_next(command: str, *, margin: str = "  ") -> None:
    """Show the command that goes on from here."""
    say(f"{margin}{dim('next:')} {command}")


def fail(*lines: str) -> None:
    """Show lines on standard error; the first says whose they are."""
    for number, line in enumerate(lines):
        mine = line if number or line.startswith("perdure: ") else f"perdure: {line}"
        with contextlib.suppress(OSError, ValueError):
            click.echo(legible_lines(mine), err=True)


def bold(text: str) -> str:
    """A name."""
    return click.style(text, bold=True)


def dim(text: str) -> str:
    """Something of less weight."""
    return click.style(text, dim=True)


def good(text: str) -> str:
    """Something that is done."""
    return click.style(text, fg="green")


def bad(text: str) -> str:
    """Something that failed or is damaged."""
    return click.style(text, fg="red")


def doubtful(text: str) -> str:
    """Something that needs a person."""
    return click.style(text, fg="yellow")


def columns() -> int:
    """The width to fill."""
    return shutil.get_terminal_size((PLAIN_COLUMNS, 24)).columns if sys.stdout.isatty() else PLAIN_COLUMNS


def room() -> int:
    """How wide a line may be; 0 where nobody looks at columns, and nothing is cut."""
    return 0 if is_plain() else columns()


def spread(left: str, right: str) -> str:
    """Two texts on one line, the second at the right of 80 columns or of a narrower terminal."""
    gap = min(PLAIN_COLUMNS, columns()) - len(click.unstyle(left)) - len(click.unstyle(right))
    return f"{left}{' ' * max(2, gap)}{right}"


def joined(left: str, right: str) -> str:
    """A text and what explains it, on one line where there is room, else on two."""
    line = f"{left}: {right}"
    return line if len(click.unstyle(line)) <= columns() else f"{left}:\n  {right}"
