"""A real HTTP server on loopback that reacts to each request as the test has planned, and keeps a ledger of keys."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True)
class Received:
    """One request as it arrived."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str:
        return self.headers.get("idempotency-key", "")


Reaction = Callable[["Handler", Received], None]


def answer(status: int, body: bytes = b"", **headers: str) -> Reaction:
    """Answer with this, and do nothing."""

    def react(handler: Handler, received: Received) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        if received.method != "HEAD":
            handler.wfile.write(body)

    return react


def hang_up(handler: Handler, received: Received) -> None:
    """Close the connection without an answer."""
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)


def carry_out(handler: Handler, received: Received) -> None:
    """Do what the request asks, once for each key, and give every later request with the key the same answer."""
    ledger = handler.owner.ledger
    with handler.owner.lock:
        number = ledger.setdefault(received.key, len(ledger) + 1)
    answer(201, f"order {number}".encode())(handler, received)


class Server:
    """The server; reactions are used up in order, and the last one stays."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.reactions: list[Reaction] = [carry_out]
        self.ledger: dict[str, int] = {}
        self.lock = threading.Lock()
        owner = self

        class Bound(Handler):
            pass

        Bound.owner = owner
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def plan(self, *reactions: Reaction) -> None:
        self.reactions = list(reactions)

    def next_reaction(self) -> Reaction:
        with self.lock:
            return self.reactions.pop(0) if len(self.reactions) > 1 else self.reactions[0]

    def stop(self) -> None:
        """Refuse every connection from now on."""
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class Handler(BaseHTTPRequestHandler):
    """Reads a request whole, notes it, and reacts."""

    owner: Server

    def react(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.command, self.path, headers, self.rfile.read(length))
        self.owner.received.append(received)
        self.owner.next_reaction()(self, received)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = react  # noqa: N815 - the names http.server calls

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as inherited
        """Keep quiet."""
