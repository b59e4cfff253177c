"""A list that is longer than a screen: one page of it, and the command that shows the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from msgspec import Struct

from perdure.errors import UsageError
from perdure.store.protocol import EVERY
from perdure.telemetry.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable

F = TypeVar("F", bound="Callable[..., Any]")
PAGE: Final = 20
"""So many runs are shown at once."""


class Page(Struct, frozen=True):
    """Which part of a list is shown."""

    number: int = 1
    size: int = PAGE

    @property
    def skip(self) -> int:
        """How many come before it."""
        return (self.number - 1) * self.size

    def count(self, total: int) -> int:
        """How many pages there are; an empty list has one."""
        return max(1, -(-total // self.size))

    def left(self, total: int) -> int:
        """How many come after it."""
        return max(0, total - self.skip - self.size)

    def words(self, number: int) -> list[str]:
        """The options that show that page of the same list."""
        size = ["--limit", str(self.size)] if self.size != PAGE else []
        return [*size, "--page", str(number)] if number > 1 else size


def page_of(number: int, *, limit: int, everything: bool) -> Page:
    """The page that was asked for."""
    return Page(1, EVERY) if everything else Page(number, limit)


def page_options(command: F) -> F:
    """`--page N` and `--limit N`."""
    limit = click.option(
        "--limit", type=click.IntRange(min=1), default=PAGE, metavar="N", help=f"So many runs on a page; {PAGE}."
    )
    page = click.option("--page", type=click.IntRange(min=1), default=1, metavar="N", help="Which page.")
    return page(limit(command))


def refuse_beyond(page: Page, *, total: int, first: str) -> None:
    """Refuse a page that lies beyond the last one; `first` is the command that shows the first."""
    if page.skip >= total and page.number > 1:
        pages = counted(page.count(total), "page")
        raise UsageError(
            f"There is no page {page.number}: {counted(total, 'run')} make {pages}.",
            safe="nothing was changed.",
            hint=first,
        )
