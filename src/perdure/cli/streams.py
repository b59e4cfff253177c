"""The standard streams as somebody left them: closed, full, or with nobody who reads; none of that ends a command."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Final

import click

from perdure.cli.mode import mode

if TYPE_CHECKING:
    from typing import TextIO

NOBODY_READS_EXIT_CODE: Final = 141
"""As a shell tells it of a command that SIGPIPE ended."""

UNHEARD_EXIT_CODE: Final = 1
"""Of a command that only looks, and whose answer could not be written."""


class Output:
    """Standard output: whether an answer gets through, and what is in the way."""

    def __init__(self) -> None:
        self.lost: OSError | None = None

    def lose(self, error: OSError) -> None:
        """An answer could not be written: a command that only looks is over, one that does something goes on."""
        self.lost = self.lost or error
        if not mode.acts:
            raise click.exceptions.Exit(self.exit_code)

    @property
    def exit_code(self) -> int:
        """How a command ends that had nothing else to do than to answer."""
        return NOBODY_READS_EXIT_CODE if isinstance(self.lost, BrokenPipeError) else UNHEARD_EXIT_CODE

    @property
    def complaint(self) -> str:
        """What is said of a lost answer; a reader that has seen enough needs no word, unless something was done."""
        if self.lost is None or (isinstance(self.lost, BrokenPipeError) and not mode.acts):
            return ""
        then = "; the exit code tells how the command itself ended" if mode.acts else ""
        return f"the answer could not be written to standard output ({self.lost.strerror}){then}"


output: Final = Output()


def open_streams() -> None:
    """Put something in the place of streams that are closed; a character that is not known there is no error."""
    mode.acts, output.lost = False, None
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, _nothing(number))
            if name == "stdout":
                output.lost = OSError(0, "it is closed")
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def close_streams() -> None:
    """Write out what is left; where that fails, nothing further is written, not even when Python ends."""
    try:
        sys.stdout.flush()
    except OSError as error:
        with contextlib.suppress(click.exceptions.Exit):
            output.lose(error)
    if output.lost is not None:
        _silence(sys.stdout)
    try:
        sys.stderr.flush()
    except OSError:
        _silence(sys.stderr)


def _nothing(number: int) -> TextIO:
    """A stream that leads nowhere, at its usual number: no file that is opened later is taken for it."""
    opened = os.open(os.devnull, os.O_RDWR)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    return open(number, "w" if number else "r", encoding="utf-8", closefd=False)


def _silence(stream: TextIO) -> None:
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
