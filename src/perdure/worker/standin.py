"""The answer to whoever asks for a worker's health while there is none: not ready, and why.

The parent of a worker gives it. That one has a single thread, so that nothing here ever waits for somebody.
"""

from __future__ import annotations

import contextlib
import socket
from typing import Final

from perdure import clock
from perdure.worker.health import PATIENCE_SECONDS, Standing, encoded

MOST_ASKERS: Final = 64
"""So many are listened to at a time; the others wait until one of them was answered, or has been silent for long."""

_READ_BYTES: Final = 8192
_ENDS_OF_HEAD: Final = (b"\r\n\r\n", b"\n\n")


class Standin:
    """Answers at a listener, for as long as nobody else does."""

    def __init__(self, listener: socket.socket | None) -> None:
        self._listener = listener
        self._asking: dict[socket.socket, _Asker] = {}
        if listener is not None:
            listener.settimeout(0.0)

    @property
    def ends(self) -> tuple[int, ...]:
        """What to wait on: it can be read when there is something to do here."""
        if self._listener is None:
            return ()
        listeners = (self._listener,) if len(self._asking) < MOST_ASKERS else ()
        return tuple(each.fileno() for each in (*listeners, *self._asking))

    def answer(self, why: str) -> None:
        """Answer everybody who has asked by now: there is no worker, and this is why."""
        if self._listener is None:
            return
        self._let_in(self._listener)
        for asker in list(self._asking.values()):
            if asker.has_asked():
                asker.tell(_head_and_body(why))
        self.hang_up(only_over=True)

    def hang_up(self, *, only_over: bool = False) -> None:
        """Let go of all who ask, or only of those who were answered, went away, or took too long to say what."""
        for connection in [each for each, asker in self._asking.items() if asker.is_over or not only_over]:
            del self._asking[connection]
            connection.close()

    def _let_in(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):  # there is nobody, or who was there has gone
            while len(self._asking) < MOST_ASKERS:
                connection, _ = listener.accept()
                connection.settimeout(0.0)
                self._asking[connection] = _Asker(connection)


class _Asker:
    """Somebody who asks, and what was heard so far."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._until = clock.boot_seconds() + PATIENCE_SECONDS
        self._heard = b""
        self._is_done = False

    @property
    def is_over(self) -> bool:
        return self._is_done or clock.boot_seconds() >= self._until

    def has_asked(self) -> bool:
        """Whether the question has come to its end."""
        try:
            text = self._connection.recv(_READ_BYTES)
        except BlockingIOError:
            return False
        except OSError:
            text = b""
        self._is_done = not text
        self._heard = (self._heard + text)[-_READ_BYTES:]
        return any(end in self._heard for end in _ENDS_OF_HEAD)

    def tell(self, text: bytes) -> None:
        """Answer: it is short enough to be taken over whole."""
        self._is_done = True
        with contextlib.suppress(OSError):
            self._connection.sendall(text)
            self._connection.shutdown(socket.SHUT_WR)


def _head_and_body(why: str) -> bytes:
    body = encoded(Standing(why=why))
    head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Connection: close\r\n\r\n".encode() + body
