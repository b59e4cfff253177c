"""A streamed answer, as its bytes come: when it is whole, and the events in it.

Server-sent events may be cut anywhere on their way: inside a line, inside a letter, between the two halves of a line
end. What is said of a stream never depends on where. A stream that was cut off is not whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import msgspec
from msgspec import Struct

from perdure.adapters.http.endpoints import Dialect
from perdure.adapters.http.frames import Frames, is_framed
from perdure.adapters.http.judgement import Judge

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_FRAMED: Final = frozenset({Dialect.BEDROCK, Dialect.BEDROCK_INVOKE})
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_value: Final = msgspec.json.Decoder().decode


class Event(Struct, frozen=True):
    """One event of a stream."""

    name: str
    data: bytes
    begins: int
    """Where in the stream its first line begins."""
    is_exception: bool = False


class Terminal:
    """Watches one streamed answer for its end."""

    def __init__(self, dialect: Dialect) -> None:
        self._judge = Judge(dialect)
        self._source: Lines | _Framed = _Framed() if dialect in _FRAMED else Lines()
        self._begun = b""
        self._document: bytearray | None = None
        self._position = 0

    def feed(self, chunk: bytes) -> int | None:
        """The offset in this chunk before which everything may be handed on, once the terminal event has come.

        It begins there, or in an earlier chunk. None as long as it has not come.
        """
        base, self._position = self._position, self._position + len(chunk)
        self._look(chunk)
        for event in self._source.feed(chunk):
            self._judge.hear(event.name, event.data, event.begins, is_exception=event.is_exception)
        terminal_at = self._judge.terminal_at
        return None if terminal_at is None else max(0, terminal_at - base)

    def end(self) -> bool:
        """The body has ended well: whether the answer is whole."""
        for event in self._source.end():
            self._judge.hear(event.name, event.data, event.begins, is_exception=event.is_exception)
        if self._document is not None:
            return _is_document(bytes(self._document))
        return self._judge.is_whole_at_the_end and self._source.is_between

    @property
    def is_complete(self) -> bool:
        """Whether the terminal event has come."""
        return self._judge.terminal_at is not None

    @property
    def has_failed(self) -> bool:
        """Whether the stream says that the model failed: it is over, and there is no answer."""
        return self._judge.has_failed

    @property
    def finish_at(self) -> int | None:
        """Where in the whole stream the first event begins that says why the model stopped.

        A script may stop reading there. Whoever holds back everything from there on until the answer is whole, and
        recorded, has recorded it before the script can act on it.
        """
        return self._judge.finish_at

    @property
    def missing(self) -> bytes:
        """What has not come yet of the terminal event: nothing, or the empty line behind it."""
        return self._source.missing

    def _look(self, chunk: bytes) -> None:
        """A body that begins as JSON does is no stream of events: Gemini sends a list, others ignored the wish."""
        if self._document is not None:
            self._document += chunk
        elif not self._begun:
            self._begun = chunk.lstrip()[:1]
            if self._begun in (b"{", b"[") and isinstance(self._source, Lines):
                self._document = bytearray(chunk)


class Lines:
    """Takes the bytes of server-sent events, gives an event as soon as its data can be read.

    That is at the end of a line of data, not at the empty line behind it: who reads line by line acts on it then.
    """

    def __init__(self) -> None:
        self._partial = bytearray()
        self._position = 0
        self._line_begins = 0
        self._skips_newline = False
        self._begins: int | None = None
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """The events whose data these bytes complete."""
        base, at = self._position, 0
        self._position += len(chunk)
        if self._skips_newline and chunk:
            self._skips_newline = False
            if chunk[:1] == b"\n":
                at = 1
                self._line_begins = base + 1
        for found in _LINE_END.finditer(chunk, at):
            line = bytes(self._partial) + chunk[at : found.start()]
            self._partial.clear()
            at = found.end()
            begins, self._line_begins = self._line_begins, base + at
            self._skips_newline = found[0] == b"\r" and at == len(chunk)
            yield from self._line(line, begins)
        self._partial += chunk[at:]

    def end(self) -> Iterator[Event]:
        """What the last line says, where no line end came behind it."""
        line = bytes(self._partial)
        self._partial.clear()
        if line:
            yield from self._line(line, self._line_begins)

    @property
    def is_between(self) -> bool:
        """A last line without an end is read like any other, so nothing is ever left."""
        return True

    @property
    def missing(self) -> bytes:
        """The empty line, where the last event has not come to its end."""
        return b"" if self._begins is None else b"\n"

    def _line(self, line: bytes, begins: int) -> Iterator[Event]:
        if begins == 0:
            line = line.removeprefix(_BYTE_ORDER_MARK)
        if not line:
            self._begins, self._name, self._data = None, "", []
            return
        self._begins = begins if self._begins is None else self._begins
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            self._name = value.decode(errors="replace")
        elif field == b"data":
            self._data.append(value)
            yield Event(self._name, b"\n".join(self._data), self._begins)


class _Framed:
    """The same for Amazon's frames."""

    def __init__(self) -> None:
        self._frames = Frames()
        self.missing = b""

    def feed(self, chunk: bytes) -> Iterator[Event]:
        for frame in self._frames.feed(chunk):
            yield Event(frame.name, frame.payload, frame.begins, frame.is_exception)

    def end(self) -> Iterator[Event]:
        return iter(())

    @property
    def is_between(self) -> bool:
        return self._frames.is_between


def events_in(body: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of a streamed answer that say something: the name and the object of each.

    The body may be server-sent events, Amazon's frames, or a list in JSON.
    """
    if body.lstrip()[:1] in (b"{", b"["):
        value = _decoded(body)
        yield from (("", each) for each in (value if isinstance(value, list) else [value]) if isinstance(each, dict))
        return
    source: Lines | _Framed = _Framed() if is_framed(body) else Lines()
    for event in (*source.feed(body), *source.end()):
        value = _decoded(event.data)
        if isinstance(value, dict):
            yield event.name, value


def _decoded(data: bytes) -> Any:
    try:
        return _value(data)
    except _UNREADABLE:
        return None


def _is_document(body: bytes) -> bool:
    return isinstance(_decoded(body), (dict, list))
