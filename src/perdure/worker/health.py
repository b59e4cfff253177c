"""A small answer over HTTP: whether this worker works, for whoever restarts those that do not."""

from __future__ import annotations

import http.server
import socket
import threading
from typing import TYPE_CHECKING, Final, Self

import msgspec
from msgspec import Struct

from perdure import clock
from perdure.errors import UsageError
from perdure.telemetry.text import duration

if TYPE_CHECKING:
    from perdure.worker.worker import Worker

PATIENCE_SECONDS: Final = 10.0
"""How long one who asks may take to say what."""

SILENT_SECONDS: Final = 60.0
"""A worker that has not reached its store for so long is not healthy."""

_HOST: Final = "127.0.0.1"


class Standing(Struct, frozen=True):
    """Where a worker stands, as it is told to whoever asks."""

    why: str = ""
    """Why it is not well; empty where it is."""
    worker_id: str = ""
    """Empty while there is no worker: one loads its code, or will be started."""
    draining: bool = False
    runs: int = 0
    seconds_since_store: float | None = None


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
            timeout = PATIENCE_SECONDS

            def do_GET(self) -> None:
                standing = standing_of(worker)
                body = encoded(standing)
                self.send_response(503 if standing.why else 200)
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


def encoded(standing: Standing) -> bytes:
    """What is answered."""
    return msgspec.json.encode({"ok": not standing.why, **msgspec.structs.asdict(standing)})


def standing_of(worker: Worker) -> Standing:
    """Where this worker stands."""
    silence = clock.boot_seconds() - worker.looked_at
    why = f"its store was not reached for {duration(silence)}" if silence >= SILENT_SECONDS else ""
    return Standing(
        why="it drains" if worker.is_draining else why,
        worker_id=worker.worker_id,
        draining=worker.is_draining,
        runs=len(worker.moving()),
        seconds_since_store=round(silence, 3),
    )


def _parsed(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 2**16):
        raise UsageError(
            f"--health {address!r} names no port.", safe="nothing was started.", hint="--health 8080, or 0.0.0.0:8080"
        )
    return host or _HOST, int(port)
