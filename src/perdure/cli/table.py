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
    """A shorter way to say what a cell says, tried before anything is cut."""


class Row(Struct, frozen=True):
    """The cells of a line, how each is painted, and the command that is shown at its end or below it."""

    cells: tuple[str, ...]
    paint: dict[int, Callable[[str], str]] = {}
    command: str = ""


def laid_out(columns: Sequence[Column], rows: Sequence[Row], *, width: int, last: str = "NEXT") -> Iterator[str]:
    """The table, line by line, no wider than `width` where that can be; 0 is as wide as it takes."""
    table = [row.cells for row in rows]
    if width and _excess(_needed(columns, table), width) > 0:
        table = [_shortened(columns, cells) for cells in table]
    widths = _widths(columns, table, width)
    used = sum(widths) + GAP * len(widths)
    has_room = any(row.command and used + len(row.command) <= width for row in rows)
    titles = [column.title for column in columns]
    yield dim("".join((_line(columns, widths, titles), " " * GAP, last if has_room else "")).rstrip())
    for row, cells in zip(rows, table, strict=True):
        line = _line(columns, widths, cells, row.paint)
        if row.command and used + len(row.command) <= width:
            yield f"{line}{' ' * (used - len(click.unstyle(line)))}{row.command}"
            continue
        yield line.rstrip()
        if row.command:
            yield from command_lines(row.command, width=width)


def command_lines(command: str, *, width: int, margin: str = "  ") -> Iterator[str]:
    """The next command on a line of its own; where it has an alternative and no room for it, on two."""
    first, alternative, rest = command.partition(" (or: ")
    if alternative and width and len(f"{margin}next: {command}") > width:
        yield f"{margin}{dim('next:')} {first}"
        yield f"{margin}{dim('  or:')} {rest.removesuffix(')')}"
    else:
        yield f"{margin}{dim('next:')} {command}"


def _needed(columns: Sequence[Column], table: Sequence[Sequence[str]]) -> list[int]:
    return [max([len(column.title), *(len(cells[at]) for cells in table)]) for at, column in enumerate(columns)]


def _excess(widths: Sequence[int], width: int) -> int:
    return sum(widths) + GAP * (len(widths) - 1) - width


def _shortened(columns: Sequence[Column], cells: Sequence[str]) -> tuple[str, ...]:
    return tuple(column.short(cell) for column, cell in zip(columns, cells, strict=True))


def _widths(columns: Sequence[Column], table: Sequence[Sequence[str]], width: int) -> list[int]:
    """What each column needs; then, until the table fits, the one that can spare most gives a character."""
    widths = _needed(columns, table)
    for _ in range(max(0, _excess(widths, width) if width else 0)):
        spare = [(widths[at] - column.least, at) for at, column in enumerate(columns) if column.least]
        most, at = max(spare, default=(0, 0))
        if most <= 0:
            break
        widths[at] -= 1
    return widths


def _line(
    columns: Sequence[Column],
    widths: Sequence[int],
    cells: Sequence[str],
    paint: dict[int, Callable[[str], str]] | None = None,
) -> str:
    shown = []
    for at, (column, width, cell) in enumerate(zip(columns, widths, cells, strict=True)):
        text = legible(cell, width)
        padded = f"{text:>{width}}" if column.right else f"{text:<{width}}"
        shown.append((paint or {}).get(at, str)(padded))
    return (" " * GAP).join(shown)
