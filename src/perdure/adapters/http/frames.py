"""The binary event streams of Amazon (`application/vnd.amazon.eventstream`), read as the bytes come.

Layout of a frame: its length (4 bytes), the length of its headers (4), a checksum of these two (4), the headers, the
payload, a checksum of everything before it (4). A header: the length of its name (1), the name, its kind (1), and for a
text (kind 7) its length (2) and the text. Numbers are big-endian.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Iterator
from typing import Final

import msgspec
from msgspec import Struct

_PRELUDE: Final = struct.Struct(">III")
_LEAST_BYTES: Final = _PRELUDE.size + 4
_MOST_BYTES: Final = 32 * 1024 * 1024
_TEXT: Final = 7
_SIZES: Final = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class Frame(Struct, frozen=True):
    """One event of such a stream."""

    name: str
    """The kind of event, or of exception."""
    payload: bytes
    begins: int
    """Where in the stream it begins."""
    is_exception: bool = False


class Frames:
    """Takes bytes, gives frames."""

    def __init__(self) -> None:
        self._left = b""
        self._begins = 0
        self.is_damaged = False

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that these bytes complete; a damaged one ends the stream."""
        self._left += chunk
        while not self.is_damaged and len(self._left) >= _PRELUDE.size:
            size, headers, checksum = _PRELUDE.unpack_from(self._left)
            self.is_damaged = not _is_sound(self._left, size, headers, checksum)
            if self.is_damaged or len(self._left) < size:
                return
            frame = self._left[:size]
            self.is_damaged = zlib.crc32(frame[:-4]) != int.from_bytes(frame[-4:], "big")
            if self.is_damaged:
                return
            self._left = self._left[size:]
            yield _read(frame, headers, self._begins)
            self._begins += size

    @property
    def is_between(self) -> bool:
        """Whether nothing but whole frames came so far."""
        return not self._left and not self.is_damaged


def is_framed(start: bytes) -> bool:
    """Whether a body that starts like this is such a stream."""
    if len(start) < _PRELUDE.size:
        return False
    return _is_sound(start, *_PRELUDE.unpack_from(start))


def _is_sound(content: bytes, size: int, headers: int, checksum: int) -> bool:
    is_sized = _LEAST_BYTES + headers <= size <= _MOST_BYTES
    return is_sized and zlib.crc32(content[:8]) == checksum


def _read(frame: bytes, headers_size: int, begins: int) -> Frame:
    end = _PRELUDE.size + headers_size
    named = _headers(frame[_PRELUDE.size : end])
    payload = _unwrapped(frame[end:-4])
    exception = named.get(":exception-type") or named.get(":error-code") or ""
    return Frame(exception or named.get(":event-type", ""), payload, begins, bool(exception))


def _headers(content: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    while at < len(content):
        name_end = at + 1 + content[at]
        name, kind = content[at + 1 : name_end].decode(errors="replace"), content[name_end]
        at = name_end + 1
        if kind in _SIZES:
            at += _SIZES[kind]
            continue
        size = int.from_bytes(content[at : at + 2], "big")
        if kind == _TEXT:
            found[name] = content[at + 2 : at + 2 + size].decode(errors="replace")
        at += 2 + size
    return found


def _unwrapped(payload: bytes) -> bytes:
    """What a model's maker wrote, out of the envelope in which `invoke-with-response-stream` sends it."""
    try:
        fields = _fields(payload)
        return base64.b64decode(msgspec.json.decode(fields["bytes"], type=str)) if "bytes" in fields else payload
    except (msgspec.DecodeError, UnicodeDecodeError, binascii.Error):
        return payload
