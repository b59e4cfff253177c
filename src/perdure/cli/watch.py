"""Looking again and again: in place on a terminal, and as a new answer for each change where there is none."""

from __future__ import annotations

import shutil
import sys
from typing import TYPE_CHECKING, Final

import click
import msgspec
from msgspec import Struct

from perdure import clock
from perdure.cli.mode import is_terminal, mode
from perdure.cli.screen import say

if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_SECONDS: Final = 1.0
_OTHER_SCREEN: Final = "\x1b[?1049h\x1b[?25l"
_OWN_SCREEN: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"


class Sight(Struct, frozen=True):
    """What was seen: for people as lines, for programs as an object; two of the same sign tell the same."""

    lines: list[str]
    object: Struct
    sign: str


def watch(look: Callable[[], Sight]) -> None:
    """Show what there is to see until somebody interrupts; that is how it ends, and no error."""
    try:
        if is_terminal() and not mode.as_json:
            _redraw(look)
        else:
            _repeat(look)
    except KeyboardInterrupt:
        return


def _redraw(look: Callable[[], Sight]) -> None:
    """On a screen of its own, so that what was there before comes back; the last sight stays behind."""
    seen = look()
    sys.stdout.write(_OTHER_SCREEN)
    try:
        while True:
            _draw(seen.lines)
            clock.sleep(LOOK_SECONDS)
            seen = look()
    finally:
        sys.stdout.write(_OWN_SCREEN)
        for line in seen.lines:
            say(line)


def _draw(lines: list[str]) -> None:
    height = shutil.get_terminal_size().lines - 1
    shown = lines if len(lines) <= height else [*lines[: height - 1], "…"]
    sys.stdout.write(_HOME)
    for line in shown:
        click.echo(line, nl=False)  # it leaves out colours that nobody wants, and would leave out our controls too
        sys.stdout.write(f"{_REST_OF_LINE}\n")
    sys.stdout.write(_REST_OF_SCREEN)
    sys.stdout.flush()


def _repeat(look: Callable[[], Sight]) -> None:
    before = None
    while True:
        seen = look()
        if seen.sign != before:
            _append(seen)
        before = seen.sign
        clock.sleep(LOOK_SECONDS)


def _append(seen: Sight) -> None:
    if mode.as_json:
        say(msgspec.json.encode(seen.object).decode())
    else:
        for line in (*seen.lines, ""):
            say(line)
