"""Rows in columns that fit the screen: what may be shortened is shortened, and a command is never cut."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click
from msgspec import Struct

from perdure.cli.screen import dim
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

GAP: Final = 2


class Column(Struct, frozen=True):
    """A heading; `least` is how narrow the column may become, 0 where it may not be narrowed."""

    title: str
    least: int = 0
    right: bool = False
    short: Callable[[str], str] = str
    """A shorter way to say what a cell says, tried before it is cut."""


class Row(Struct, frozen=True):
    """The cells of a line, how each is painted, and the command that is shown at its end or below it."""

    cells: tuple[str, ...]
    paint: dict[int, Callable[[str], str]] = {}
    command: str = ""


def laid_out(columns: Sequence[Column], rows: Sequence[Row], *, width: int, last: str = "NEXT") -> Iterator[str]:
    """The table, line by line, no wider than `width` except for commands; 0 is as wide as it takes."""
    widths = _widths(columns, rows, width)
    used = sum(widths) + GAP * len(widths)
    has_room = any(row.command and used + len(row.command) <= width for row in rows)
    titles = [column.title for column in columns]
    yield dim("".join((_line(columns, widths, titles), " " * GAP, last if has_room else "")).rstrip())
    for row in rows:
        line = _line(columns, widths, row.cells, row.paint)
        if row.command and used + len(row.command) <= width:
            yield f"{line}{' ' * (used - len(click.unstyle(line)))}{row.command}"
            continue
        yield line.rstrip()
        if row.command:
            yield f"  {dim('next:')} {row.command}"


def _widths(columns: Sequence[Column], rows: Sequence[Row], width: int) -> list[int]:
    """What each column needs; then, until the table fits, the one that lost least gives a character."""
    widths = [max([len(column.title), *(len(row.cells[at]) for row in rows)]) for at, column in enumerate(columns)]
    excess = sum(widths) + GAP * (len(widths) - 1) - width if width else 0
    while excess > 0:
        spare = [(widths[at] - column.least, at) for at, column in enumerate(columns) if column.least]
        most, at = max(spare, default=(0, 0))
        if most <= 0:
            break
        widths[at] -= 1
        excess -= 1
    return widths


def _line(
    columns: Sequence[Column],
    widths: Sequence[int],
    cells: Sequence[str],
    paint: dict[int, Callable[[str], str]] | None = None,
) -> str:
    shown = []
    for at, (column, width, cell) in enumerate(zip(columns, widths, cells, strict=True)):
        text = legible(cell if len(cell) <= width else column.short(cell), width)
        padded = f"{text:>{width}}" if column.right else f"{text:<{width}}"
        shown.append((paint or {}).get(at, str)(padded))
    return (" " * GAP).join(shown)
