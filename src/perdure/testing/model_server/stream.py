"""Sends an answer over one connection, chunk by chunk, and notices when nobody is there any more."""

from __future__ import annotations

import select
import socket
from typing import Final, Protocol

from perdure.testing.model_server.answers import Fault
from perdure.testing.model_server.dialect import Dialect, Event, encoded
from perdure.testing.model_server.gate import Hold
from perdure.testing.model_server.ledger import State

STREAM: Final = "text/event-stream; charset=utf-8"
JSON: Final = "application/json"


class Gone(ConnectionError):
    """The client went away before it had its answer."""


class Outgoing(Protocol):
    """A connection to a client that waits for an answer."""

    def head(self, status: int, *, kind: str, length: int | None) -> None:
        """Send the status and the headers; a length of None for a stream."""

    def body(self, content: bytes) -> None:
        """Send content as it is."""

    def chunk(self, content: bytes) -> None:
        """Send one chunk of a stream."""

    def end(self) -> None:
        """End a stream well."""

    def ends(self, state: State) -> None:
        """Note how the request ends, before the client can know it and send the next one."""

    def hang_up(self) -> None:
        """Close the connection, whatever was said."""

    def is_gone(self) -> bool:
        """Whether the client has gone away."""


def send_whole(
    out: Outgoing, status: int, content: bytes, *, holds: tuple[Hold, ...] = (), state: State = "answered"
) -> None:
    """Send an answer in one piece; a cut one ends in its middle."""
    for hold in holds:
        _stand(out, hold)
    if out.is_gone():
        raise Gone
    out.head(status, kind=JSON, length=len(content))
    out.ends(state)
    if state == "cut":
        out.body(content[: len(content) // 2])
        out.hang_up()
    else:
        out.body(content)


def send_stream(
    out: Outgoing, frames: list[bytes], *, fault: Fault | None, error: bytes, holds: tuple[Hold, ...]
) -> None:
    """Send a stream; a fault ends it after as many chunks as it says."""
    sent = frames if fault is None else [*frames[: fault.after], *([error] if fault.kind == "error" else [])]
    out.head(200, kind=STREAM, length=None)
    for at, frame in enumerate(sent, 1):
        _stand_before(out, holds, at - 1)
        if at == len(sent) and fault is None:
            if out.is_gone():
                raise Gone  # who leaves before the last chunk has no whole answer
            out.ends("answered")
        out.chunk(frame)
    _stand_before(out, holds, len(sent))
    if fault is not None:
        out.ends("failed" if fault.kind == "error" else "cut")
    if fault is not None and fault.kind == "cut":
        out.hang_up()
    else:
        out.end()


def frames_of(events: list[Event], dialect: Dialect, *, is_array: bool) -> list[bytes]:
    """The chunks of a stream: events, or for Gemini without `alt=sse` the elements of one array."""
    if is_array:
        texts = [encoded(event.data) for event in events]
        return [(b"[" if at == 0 else b",\r\n") + text for at, text in enumerate(texts)] + [b"]"]
    return [frame_of(event, dialect) for event in events]


def frame_of(event: Event, dialect: Dialect) -> bytes:
    """One event as it is sent."""
    data = event.data.encode() if isinstance(event.data, str) else encoded(event.data)
    name = f"event: {event.name}\n".encode() if event.name else b""
    end = b"\r\n\r\n" if dialect.name == "gemini" else b"\n\n"
    return name + b"data: " + data + end


def has_hung_up(connection: socket.socket) -> bool:
    """Whether the other side has closed the connection: a client that waits for its answer sends nothing."""
    try:
        readable, _, _ = select.select([connection], [], [], 0)
        return bool(readable) and not connection.recv(1, socket.MSG_PEEK)
    except (OSError, ValueError):
        return True


def _stand_before(out: Outgoing, holds: tuple[Hold, ...], chunk: int) -> None:
    for hold in holds:
        if hold.after == chunk:
            _stand(out, hold)


def _stand(out: Outgoing, hold: Hold) -> None:
    if not hold.gate.stand(is_gone=out.is_gone):
        raise Gone
