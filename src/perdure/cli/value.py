"""A recorded value on the screen: on one line where it fits, else as indented JSON, shortened unless all is wanted."""

from __future__ import annotations

from typing import Final

import msgspec

from perdure.telemetry.text import legible

SHORT_LINES: Final = 16


def value_lines(sealed: bytes, *, width: int, is_whole: bool) -> list[str]:
    """The lines of a value; at least one."""
    text = sealed.decode()
    if len(text) <= width and text.isprintable():
        return [text]
    lines = _laid_out(sealed)
    if is_whole:
        return [legible(line) for line in lines]
    shown = [legible(line, width) for line in lines[:SHORT_LINES]]
    hidden = len(lines) - len(shown)
    is_cut = any(len(line) > width for line in lines[:SHORT_LINES])
    if hidden:
        return [*shown, f"… {hidden:,} more lines: --full"]
    return [*shown, "… shortened: --full"] if is_cut else shown


def _laid_out(sealed: bytes) -> list[str]:
    """A text by its own lines; anything else indented."""
    value = msgspec.json.decode(sealed)
    if isinstance(value, str) and "\n" in value:
        return value.split("\n")
    return msgspec.json.format(sealed, indent=2).decode().split("\n")
