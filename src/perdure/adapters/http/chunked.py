"""An answer in chunks as Python's own HTTP client reads it, from chunks that come from anywhere.

Libraries that read through `http.client` look below its surface to hand on each chunk when it comes; so this is such an
answer, with a stream of bytes in place of a socket.
"""

from __future__ import annotations

import http.client
import io
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHUNKED: Final = ("Transfer-Encoding", "chunked")
_END: Final = b"0\r\n\r\n"


def chunked_answer(
    status: int, reason: str, headers: Iterable[tuple[str, str]], chunks: Iterable[bytes]
) -> http.client.HTTPResponse:
    """An answer with its head read; the chunks are asked for one by one, when somebody reads that far."""
    lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in (*headers, CHUNKED))]
    head = "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
    answer = http.client.HTTPResponse(_Socket(io.BufferedReader(_Bytes(head, chunks))), method="POST")  # type: ignore[arg-type]
    answer.begin()
    return answer


class _Socket:
    def __init__(self, file: io.BufferedReader) -> None:
        self._file = file

    def makefile(self, *_: Any) -> io.BufferedReader:
        return self._file


class _Bytes(io.RawIOBase):
    """The head, and each chunk with its size before it."""

    def __init__(self, head: bytes, chunks: Iterable[bytes]) -> None:
        self._left = head
        self._pieces = _sized(chunks)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = next(self._pieces, b"")
        room = memoryview(buffer)
        count = min(len(room), len(self._left))
        room[:count], self._left = self._left[:count], self._left[count:]
        return count


def _sized(chunks: Iterable[bytes]) -> Iterator[bytes]:
    for chunk in chunks:
        if chunk:
            yield b"%x\r\n%b\r\n" % (len(chunk), chunk)
    yield _END
