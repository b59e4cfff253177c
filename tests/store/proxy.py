"""A wire to PostgreSQL that a test can cut: before a request arrives, or when it is done and before the answer came."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal, Self
from urllib.parse import parse_qs, urlsplit

Cut = Literal["", "request", "answer", "stall", "away"]
_CHUNK = 65536


class Proxy:
    """Listens on loopback and passes everything on, until it is told to cut."""

    def __init__(self, url: str) -> None:
        self.target = url
        self._target = urlsplit(url)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lines: set[Wire] = set()
        self._cut: Cut = ""
        self._marker = b""
        self._lock = threading.Lock()
        self.cuts = 0
        self.refused = 0
        self.is_down = False
        self.keep_servers = False
        self.left: list[socket.socket] = []
        """The server's ends of wires whose other end is gone: it cannot know that."""
        self._ended = threading.Event()
        self._flows = threading.Event()
        self._flows.set()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.keep_servers = False
        for end in self.left:
            end.close()
        self._ended.set()
        self._flows.set()
        self._listener.close()
        self.hang_up()

    @property
    def url(self) -> str:
        """The same server, by way of this wire."""
        user = self._target.username or "postgres"
        password = f":{self._target.password}" if self._target.password else ""
        query = "&".join(part for part in self._target.query.split("&") if not part.startswith("host="))
        port = self._listener.getsockname()[1]
        return f"postgresql://{user}{password}@127.0.0.1:{port}{self._target.path}?{query}&sslmode=disable"

    def cut_once(self, when: Cut, marker: bytes) -> None:
        """Cut the wire, let nothing more through, or go away, at the next request that holds these bytes."""
        with self._lock:
            self._cut, self._marker = when, marker

    def stall(self) -> None:
        """Swallow nothing, refuse nobody, and let nothing through: as where packets are dropped."""
        self._flows.clear()

    def freeze(self) -> None:
        """Let nothing more through on the wires there are; new ones work."""
        for wire in list(self._lines):
            wire.is_frozen = True

    def flow(self) -> None:
        """Let through what was held up."""
        self._flows.set()

    def is_stalled(self) -> bool:
        return not self._flows.is_set()

    def wait_to_flow(self, wire: Wire) -> None:
        self._flows.wait()
        if wire.is_frozen:
            self._ended.wait()

    def go_away(self) -> None:
        """Refuse everybody, until `is_down` is taken back."""
        self.is_down = True
        self.hang_up()

    def hang_up(self) -> None:
        """End every connection there is."""
        for wire in list(self._lines):
            wire.close()

    def due(self, request: bytes) -> Cut:
        """What is to be done with this request; asked once for each."""
        with self._lock:
            if not self._cut or self._marker not in request:
                return ""
            when, self._cut = self._cut, ""
            self.cuts += 1
            return when

    def connect(self) -> socket.socket:
        host = parse_qs(self._target.query).get("host", [self._target.hostname or ""])[0]
        if host.startswith("/"):
            server = socket.socket(socket.AF_UNIX)
            server.connect(f"{host}/.s.PGSQL.{self._target.port or 5432}")
            return server
        return socket.create_connection((host, self._target.port or 5432))

    def forget(self, wire: Wire) -> None:
        self._lines.discard(wire)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.is_down:
                self.refused += 1
                client.close()
                continue
            wire = Wire(self, client)
            self._lines.add(wire)
            wire.start()


class Wire:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._server = proxy.connect()
        self._swallows = False
        self.is_frozen = False

    def start(self) -> None:
        threading.Thread(target=self._pass_requests, daemon=True).start()
        threading.Thread(target=self._pass_answers, daemon=True).start()

    def close(self) -> None:
        self._proxy.forget(self)
        if self._proxy.keep_servers:
            self._proxy.left.append(self._server)
        for end in (self._client,) if self._proxy.keep_servers else (self._client, self._server):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _pass_requests(self) -> None:
        with contextlib.suppress(OSError):
            while request := self._client.recv(_CHUNK):
                when = self._proxy.due(request)
                if when == "stall":
                    self._proxy.stall()
                if when == "away":
                    self._proxy.go_away()
                    break
                self._proxy.wait_to_flow(self)
                if when == "request":
                    break
                self._swallows = when == "answer"
                self._server.sendall(request)
                if self._swallows:
                    return  # the other direction ends the wire once the server has answered
        self.close()

    def _pass_answers(self) -> None:
        with contextlib.suppress(OSError):
            while answer := self._server.recv(_CHUNK):
                if self._swallows:
                    break
                self._proxy.wait_to_flow(self)
                self._client.sendall(answer)
        self.close()
