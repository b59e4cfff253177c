"""A small answer over HTTP: whether this worker works, for whoever restarts those that do not."""

from __future__ import annotations

import http.server
import socket
import threading
from typing import TYPE_CHECKING, Final, Self

import msgspec

from perdure import clock
from perdure.errors import UsageError

if TYPE_CHECKING:
    from perdure.worker.worker import Worker

_PATIENCE_SECONDS: Final = 10.0
"""How long one who asks may take to say what."""

SILENT_SECONDS: Final = 60.0
"""A worker that has not reached its store for so long is not healthy."""

_HOST: Final = "127.0.0.1"


class Health:
    """Answers every GET with where the worker stands: 200 while it works, 503 while it drains or misses its store."""

    def __init__(self, listener: socket.socket | None, worker: Worker) -> None:
        self._worker = worker
        self._server = None if listener is None else self._listening(listener)

    def __enter__(self) -> Self:
        if self._server is not None:
            threading.Thread(target=self._server.serve_forever, name="perdure-health", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()

    def _listening(self, listener: socket.socket) -> http.server.ThreadingHTTPServer:
        worker = self._worker

        class Answer(http.server.BaseHTTPRequestHandler):
            timeout = _PATIENCE_SECONDS

            def do_GET(self) -> None:
                is_well, body = _state_of(worker)
                self.send_response(200 if is_well else 503)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Nobody wants a line for each look."""

        server = _Server(listener.getsockname()[:2], Answer, bind_and_activate=False)
        server.socket.close()
        server.socket = listener
        return server


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """Whoever asked hung up before the answer, and is the only one who could want to know."""


def listener_at(address: str | None) -> socket.socket | None:
    """Listen at `[HOST:]PORT`; None where nobody asked for that. Whoever answers may come and go."""
    if address is None:
        return None
    host, port = _parsed(address)
    try:
        return socket.create_server((host, port))
    except OSError as error:
        raise UsageError(
            f"--health {host}:{port} cannot be listened on: {error}.",
            safe="nothing was started.",
            hint="name a free port",
        ) from error


def _state_of(worker: Worker) -> tuple[bool, bytes]:
    silence = clock.boot_seconds() - worker.looked_at
    is_well = not worker.is_draining and silence < SILENT_SECONDS
    said = {
        "ok": is_well,
        "worker_id": worker.worker_id,
        "draining": worker.is_draining,
        "runs": len(worker.moving()),
        "seconds_since_store": round(silence, 3),
    }
    return is_well, msgspec.json.encode(said)


def _parsed(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 2**16):
        raise UsageError(
            f"--health {address!r} names no port.", safe="nothing was started.", hint="--health 8080, or 0.0.0.0:8080"
        )
    return host or _HOST, int(port)
