"""Which answers a script may see piece by piece while they come; any other is recorded before it sees anything."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_FAILED: Final = 400
_EVENTS: Final = ("text/event-stream", "application/vnd.amazon.eventstream")
_BETWEEN: Final = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_FRAMING: Final = frozenset({"content-encoding", "content-length", "transfer-encoding"})


def is_live(status: int, content_type: str | None) -> bool:
    """Whether the answer comes in events."""
    return status < _FAILED and (content_type or "").lower().startswith(_EVENTS)


def events_of(body: bytes) -> Iterator[bytes]:
    """The body of a stream in the pieces in which a server sends it: one event each."""
    at = 0
    for found in _BETWEEN.finditer(body):
        yield body[at : found.end()]
        at = found.end()
    if at < len(body):
        yield body[at:]


def without_framing(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """The headers of an answer, repeated ones too, without those that say how its body was packed for the way."""
    return [(name, value) for name, value in headers.items() if name.lower() not in _FRAMING]
