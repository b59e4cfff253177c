"""The outside world: a process of its own, with a ledger of its own, that counts what was really done to it.

A request lands after the world's delay, whether or not its sender still lives, and is acknowledged only once it has
landed. Requests and answers are lines of JSON over a loopback socket. It knows nothing of perdure.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ANSWER_SECONDS: Final = 30.0


@dataclass(frozen=True)
class Execution:
    """One thing that was really done: by which operation, under which key, by which attempt of the sender."""

    operation: str
    key: str
    payload: str
    attempt: int


@dataclass
class World:
    """One agent's view of the outside; several worlds share the process and do not see each other."""

    port: int
    name: str
    on_moment: Callable[[str, str], None] = lambda _side, _what: None

    def perform(self, operation: str, payload: str, *, key: str, attempt: int, honours_key: bool = False) -> str:
        """Have something done; where the key is honoured, the same key is done once however often it is sent."""
        request = {
            "verb": "perform",
            "operation": operation,
            "payload": payload,
            "key": key,
            "attempt": attempt,
            "honours_key": honours_key,
        }
        with self._connected() as connection:
            self.on_moment("unsent", f"{operation}:{payload}")
            connection.sendall(_line({**request, "world": self.name}))
            self.on_moment("sent", f"{operation}:{payload}")
            answer = _read_line(connection)
            self.on_moment("answered", f"{operation}:{payload}")
        if "refused" in answer:
            raise RuntimeError(answer["refused"])
        return str(answer["receipt"])

    def lookup(self, operation: str, key: str) -> str | None:
        """The receipt of what was done under this key; None where nothing was, so far."""
        receipt = self._ask(verb="lookup", operation=operation, key=key)["receipt"]
        return None if receipt is None else str(receipt)

    def delay(self, seconds: float) -> None:
        """From now on, let requests to this world land so long after they were received."""
        self._ask(verb="delay", seconds=seconds)

    def executions(self) -> list[Execution]:
        """Everything that was done to this world, in the order in which it landed."""
        return [Execution(*row) for row in self._ask(verb="executions")["rows"]]

    def requests(self) -> int:
        """How many requests to perform something were received, landed or not."""
        return int(self._ask(verb="requests")["count"])

    def _ask(self, **request: Any) -> dict[str, Any]:
        with self._connected() as connection:
            connection.sendall(_line({**request, "world": self.name}))
            return _read_line(connection)

    def _connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=ANSWER_SECONDS)


class Ledger:
    """What was done, kept in a database that has nothing to do with the one under test."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._database.execute("PRAGMA synchronous = OFF")
        self._database.execute(
            "CREATE TABLE executions (id INTEGER PRIMARY KEY, world, operation, key, payload, attempt)"
        )
        self._delays: dict[str, float] = {}
        self._received: dict[str, int] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        match request["verb"]:
            case "perform":
                return self._perform(request)
            case "lookup":
                return {"receipt": self._lookup(request)}
            case "delay":
                self._delays[request["world"]] = request["seconds"]
                return {}
            case "requests":
                return {"count": self._received.get(request["world"], 0)}
            case "executions":
                columns = "operation, key, payload, attempt"
                found = self._rows(f"SELECT {columns} FROM executions WHERE world = ? ORDER BY id", request["world"])  # noqa: S608
                return {"rows": found}
            case verb:
                return {"refused": f"unknown verb {verb}"}

    def _perform(self, request: dict[str, Any]) -> dict[str, Any]:
        world, operation, key, payload = (request[name] for name in ("world", "operation", "key", "payload"))
        with self._lock:
            self._received[world] = self._received.get(world, 0) + 1
        time.sleep(self._delays.get(world, 0.0))
        with self._lock:
            if request["honours_key"]:
                known = self._database.execute(
                    "SELECT payload FROM executions WHERE world = ? AND operation = ? AND key = ?",
                    (world, operation, key),
                ).fetchall()
                if known and known[0][0] != payload:
                    return {"refused": "key reused with another body"}
                if known:
                    return {"receipt": _receipt(operation, payload)}
            self._database.execute(
                "INSERT INTO executions (world, operation, key, payload, attempt) VALUES (?, ?, ?, ?, ?)",
                (world, operation, key, payload, request["attempt"]),
            )
        return {"receipt": _receipt(operation, payload)}

    def _lookup(self, request: dict[str, Any]) -> str | None:
        found = self._rows(
            "SELECT operation, payload FROM executions WHERE world = ? AND operation = ? AND key = ?",
            *(request[name] for name in ("world", "operation", "key")),
        )
        return _receipt(*found[0]) if found else None

    def _rows(self, query: str, *arguments: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._database.execute(query, arguments).fetchall()


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        super().__init__(("127.0.0.1", 0), Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A sender that died is no news here: what it sent has landed all the same."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class Handler(socketserver.StreamRequestHandler):
    server: Server

    def handle(self) -> None:
        line = self.rfile.readline()
        if line.endswith(b"\n"):  # a sender killed in the middle of its request has sent none
            self.wfile.write(_line(self.server.ledger.answer(json.loads(line))))


@contextlib.contextmanager
def running(ledger: Path) -> Iterator[int]:
    """The port of an outside world that lives as long as the block."""
    command = [sys.executable, str(Path(__file__)), str(ledger)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def _receipt(operation: str, payload: str) -> str:
    return f"{operation}/{payload}"


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _read_line(connection: socket.socket) -> dict[str, Any]:
    with connection.makefile("rb") as stream:
        line = stream.readline()
    if not line.endswith(b"\n"):
        raise ConnectionResetError("the outside went away before it answered")
    answer: dict[str, Any] = json.loads(line)
    return answer


def _serve(ledger: Path) -> None:
    """Serve until the one who started this process is gone."""
    with Server(Ledger(ledger)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(server.server_address[1], flush=True)
        sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]))
