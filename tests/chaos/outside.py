"""The outside world of the campaign: a process with a durable log of its own, which knows nothing of perdure.

It does what it was asked some time after it was asked, whether or not the asker still lives, and answers some late or
never. Where it honours a key, the same key is done once. Everything else carries a fencing token: what arrives with a
token older than one it has seen for that run is refused on arrival, but what has arrived is done.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

DELAY_SECONDS: Final = float(os.environ.get("CHAOS_DELAY", "3"))
"""The longest time between the arrival of a request and its being done."""

ANSWER_SECONDS: Final = 6.0
"""How long a sender waits for its answer."""


class Refused(Exception):
    """The outside did not do it, and says so."""


@dataclass(frozen=True)
class Asked:
    """A request to do something, as it arrives."""

    run: str
    place: int
    kind: str
    key: str
    attempt: int
    epoch: int


class Outside:
    """The outside as an agent sees it."""

    def __init__(self, address: tuple[str, int] | str) -> None:
        self._address = address

    def perform(self, asked: Asked) -> str:
        """Have it done; the receipt."""
        return str(self._ask("perform", **asdict(asked))["receipt"])

    def lookup(self, *, run: str, key: str, epoch: int) -> str | None:
        """The receipt of what was done under this key, so far; from now on older tokens of the run are refused."""
        receipt = self._ask("lookup", run=run, key=key, epoch=epoch)["receipt"]
        return None if receipt is None else str(receipt)

    def _ask(self, verb: str, **request: Any) -> dict[str, Any]:
        with self._connected() as connection:
            connection.sendall(_line({"verb": verb, **request}))
            with connection.makefile("rb") as stream:
                line = stream.readline()
        if not line.endswith(b"\n"):
            raise ConnectionResetError("the outside hung up before it answered")
        answer: dict[str, Any] = json.loads(line)
        if "refused" in answer:
            raise Refused(answer["refused"])
        return answer

    def _connected(self) -> socket.socket:
        if isinstance(self._address, str):
            connection = socket.socket(socket.AF_UNIX)
            connection.connect(self._address)
        else:
            connection = socket.create_connection(self._address, timeout=2.0)
            # A closed line forgets what it could not send: nothing may arrive seconds after its sender has given up.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.settimeout(ANSWER_SECONDS)
        return connection


class World:
    """What was asked, refused and done, each line synced before anybody hears of it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)
        self._lock = threading.Lock()
        self._receipts: dict[str, str] = {}
        self._newest: dict[str, int] = {}
        self._count = 0

    def answer(self, request: dict[str, Any]) -> dict[str, Any] | None:
        """What to say; None to hang up."""
        verb = request.pop("verb")
        if verb == "perform":
            return self._perform(Asked(**request))
        with self._lock:
            self._newest[request["run"]] = max(self._newest.get(request["run"], 0), request["epoch"])
            return {"receipt": self._receipts.get(request["key"])}

    def _perform(self, asked: Asked) -> dict[str, Any] | None:
        with self._lock:
            is_stale = asked.kind != "keyed" and asked.epoch < self._newest.get(asked.run, 0)
            self._newest[asked.run] = max(self._newest.get(asked.run, 0), asked.epoch)
            self._write("refused" if is_stale else "asked", asked)
        if is_stale:
            return {"refused": f"token {asked.epoch} of {asked.run} is an old one"}
        before, after, is_mute = manner_of(asked)
        time.sleep(before)
        receipt = self._done(asked)
        time.sleep(after)
        return None if is_mute else {"receipt": receipt}

    def _done(self, asked: Asked) -> str:
        with self._lock:
            if asked.kind == "keyed" and asked.key in self._receipts:
                return self._receipts[asked.key]
            self._count += 1
            receipt = f"r{self._count}"
            self._write("done", asked, receipt=receipt)
            self._receipts[asked.key] = receipt
            return receipt

    def _write(self, what: str, asked: Asked, **more: str) -> None:
        self._file.write(_line({"what": what, "at": time.time(), **asdict(asked), **more}))
        os.fdatasync(self._file.fileno())


def manner_of(asked: Asked) -> tuple[float, float, bool]:
    """How long it takes to be done and to be answered, and whether it is answered at all: chance, but the same chance
    for the same attempt.
    """
    number = sha256(f"{asked.key} {asked.attempt}".encode()).digest()
    share, much = number[0] / 256, number[1] / 256
    if share < (0.6 if asked.kind in ("checked", "late") else 0.2):
        return DELAY_SECONDS * (0.3 + 0.7 * much), 0.0, False
    if share > 0.9:
        return 0.0, 2.0 * much, False
    if share > 0.87:
        return 0.0, 0.0, True
    return 0.02 * much, 0.0, False


class _Handler(socketserver.StreamRequestHandler):
    server: _Far | _Near

    def handle(self) -> None:
        with contextlib.suppress(OSError):  # a sender that died is no news: what it sent is done all the same
            line = self.rfile.readline()
            answer = self.server.world.answer(json.loads(line)) if line.endswith(b"\n") else None
            if answer is not None:
                self.wfile.write(_line(answer))


class _Far(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256
    world: World


class _Near(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 256
    world: World


def read_log(path: Path) -> Iterator[dict[str, Any]]:
    """Every line of the outside's log, in the order in which it was written."""
    with path.open() as file:
        for line in file:
            yield json.loads(line)


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _serve(log: Path, host: str, near: str) -> None:
    world = World(log)
    far = _Far((host, 0), _Handler)
    beside = _Near(near, _Handler)
    for server in (far, beside):
        server.world = world
        threading.Thread(target=server.serve_forever, daemon=True).start()
    print(far.server_address[1], flush=True)
    sys.stdin.read()  # until whoever started this process is gone
    os._exit(0)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
