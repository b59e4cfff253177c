"""Markdown as the generated pages need it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

NOTE = "<!-- Made by `make docs` from the code; change it there. -->"


def opened(title: str, *paragraphs: str) -> list[str]:
    """The top of a generated page."""
    return [f"# {title}", NOTE, *paragraphs]


def joined(parts: Iterable[str]) -> str:
    """Blocks of a page, an empty line between them."""
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A table; a bar inside a cell does not end it."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def block(text: str, language: str = "text") -> str:
    """A text that is shown as it is."""
    return f"```{language}\n{text.rstrip()}\n```"


def documented(thing: object) -> str:
    """A docstring; what has none of its own has none at all."""
    return inspect.getdoc(thing) or ""


def sentence(thing: object) -> str:
    """The first sentence of a docstring: it rules, and the rest explains it."""
    first = documented(thing).partition("\n\n")[0].replace("\n", " ")
    end = first.find(". ")
    return first if end < 0 else first[: end + 1]
