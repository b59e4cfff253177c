"""Counts from outside how many runs are inside a step at once: each holds a connection, which dies with its process.

Runs that enter are let go in groups of the size that the test asks for, so that so many are seen together for certain.
"""

from __future__ import annotations

import collections
import json
import socket
import socketserver
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, Self


class Gauge:
    """The counter, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline())
        (folder / "gauge.port").write_text(str(self.port))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.__exit__(None, None, None)

    def ask(self, **question: Any) -> Any:
        """Say something to the counter; its answer."""
        with (
            socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection,
            connection.makefile("rw") as file,
        ):
            file.write(json.dumps(question) + "\n")
            file.flush()
            return json.loads(file.readline())


class House:
    """Who is inside, and who ever was."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.order: list[str] = []
        self.peaks: collections.Counter[str] = collections.Counter()
        self.inside: collections.Counter[str] = collections.Counter()
        self.waiting: list[str] = []
        self.free: set[str] = set()
        self.group = 1

    def enter(self, name: str, places: tuple[str, ...]) -> None:
        with self.changed:
            self.order.append(name)
            self.waiting.append(name)
            for place in places:
                self.inside[place] += 1
                self.peaks[place] = max(self.peaks[place], self.inside[place])
            self._let_go()
            self.changed.wait_for(lambda: name in self.free)

    def leave(self, places: tuple[str, ...]) -> None:
        with self.changed:
            for place in places:
                self.inside[place] -= 1

    def answer(self, question: dict[str, Any]) -> dict[str, Any]:
        with self.changed:
            if "group" in question:
                self.group = question["group"]
                self._let_go()
            return {"order": self.order, "peaks": self.peaks, "inside": self.inside, "waiting": self.waiting}

    def _let_go(self) -> None:
        while self.group and len(self.waiting) >= self.group:
            self.free.update(self.waiting[: self.group])
            del self.waiting[: self.group]
        self.changed.notify_all()


class Guest(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        said = json.loads(self.rfile.readline())
        if "enter" not in said:
            self.wfile.write(json.dumps(house.answer(said)).encode() + b"\n")
            return
        places = (said["queue"], f"{said['queue']} {said['pid']}")
        threading.Thread(target=self._admit, args=(said["enter"], places), daemon=True).start()
        self.rfile.read()  # until its process closes the connection, or dies
        house.leave(places)

    def _admit(self, name: str, places: tuple[str, ...]) -> None:
        house.enter(name, places)
        self.wfile.write(b"go\n")


class Door(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 200


if __name__ == "__main__":
    house = House()
    with Door(("127.0.0.1", 0), Guest) as door:
        print(door.server_address[1], flush=True)
        door.serve_forever()
