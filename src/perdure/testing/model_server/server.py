"""The model server: listens on this machine, has a script, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
from http.server import ThreadingHTTPServer
from typing import Any, Final, Self

from perdure import clock
from perdure.errors import UsageError
from perdure.testing.model_server.answers import Answer, Reply
from perdure.testing.model_server.conversation import Conversation, canonical, digest
from perdure.testing.model_server.dialect import Malformed, Turn
from perdure.testing.model_server.exchange import Exchange
from perdure.testing.model_server.gate import PATIENCE_SECONDS, Gate
from perdure.testing.model_server.invent import plain
from perdure.testing.model_server.ledger import Ledger, Readings, Request
from perdure.testing.model_server.openai_responses import input_items, output_items
from perdure.testing.model_server.script import Scripts

_HOST: Final = "127.0.0.1"
_ENDING_SECONDS: Final = 5.0


class ModelServer(Scripts, Readings):
    """A model of which a test decides what it says, at a real address.

    Its verbs (`says`, `calls`, `fails`, …) write the script; without one it answers from the conversation alone. With
    `fresh_ids` every answer carries new ids, even to the same request.
    """

    def __init__(self, *, port: int = 0, fresh_ids: bool = False, default: Reply = plain) -> None:
        super().__init__(default)
        self.ledger = Ledger()
        self._port = port
        self._fresh_ids = fresh_ids
        self._gates: dict[str, Gate] = {}
        self._responses: dict[str, list[dict[str, Any]]] = {}
        self._server: _Server | None = None

    def start(self) -> Self:
        """Listen, on a thread of its own."""
        try:
            self._server = _Server(self, self._port)
        except OSError as error:
            raise UsageError(
                f"The model server cannot listen on port {self._port}: {error}.",
                safe="nothing was started.",
                hint="take port 0: any port that is free",
            ) from error
        serving = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="perdure-model", daemon=True)
        serving.start()
        return self

    def close(self) -> None:
        """Listen no more, and end what is in flight."""
        if self._server is not None:
            self._server.close()

    @property
    def url(self) -> str:
        """Where it listens: the base address for Anthropic and Gemini."""
        if self._server is None:
            raise UsageError(
                "The model server has no address before it is started.",
                safe="its script is kept.",
                hint="write: with ModelServer() as model: …",
            )
        return f"http://{_HOST}:{self._server.server_address[1]}"

    @property
    def openai_url(self) -> str:
        """The base address for OpenAI."""
        return f"{self.url}/v1"

    def environment(self) -> dict[str, str]:
        """The variables by which the SDKs find it."""
        return environment_of(self.url)

    def gate(self, name: str = "gate") -> Gate:
        """The gate of this name, for `holds`."""
        return self._gates.setdefault(name, Gate(name))

    def has_gate(self, name: str) -> bool:
        """Whether the script has such a gate."""
        return name in self._gates

    @property
    def requests(self) -> list[Request]:
        return self.ledger.requests()

    def settled(self, *, seconds: float = PATIENCE_SECONDS) -> list[Request]:
        """Wait until nothing is in flight, as after a kill; every request."""
        if not self.ledger.wait(lambda requests: all(each.is_over for each in requests), seconds=seconds):
            raise UsageError(
                f"Requests are still in flight after {seconds:g} s.",
                safe="the model server goes on.",
                hint="open the gate at which they stand",
            )
        return self.requests

    def heard(self, body: dict[str, Any]) -> dict[str, Any]:
        """A request to the responses, with all that it builds on in its input."""
        earlier = body.get("previous_response_id")
        if not earlier:
            return body
        if earlier not in self._responses:
            raise Malformed(f"Previous response with id '{earlier}' not found.")
        return body | {"input": [*self._responses[earlier], *input_items(body)]}

    def turn(self, conversation: Conversation, answer: Answer, path: str) -> Turn:
        """The answer with its ids; a response is remembered, because the next request may build on it."""
        if self._fresh_ids:
            turn = Turn(conversation, answer, clock.new_token(24), int(clock.wall_seconds()))
        else:
            turn = Turn(conversation, answer, digest(path, canonical(conversation.body)))
        if conversation.dialect == "openai.responses":
            self._responses[turn.made_id("resp_")] = [*input_items(conversation.body), *output_items(turn)]
        return turn

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()


def environment_of(url: str) -> dict[str, str]:
    """The variables by which the SDKs find a model server, with keys that open nothing."""
    return {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": "no-key-needed",
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "no-key-needed",
        "GOOGLE_GEMINI_BASE_URL": url,
        "GEMINI_API_KEY": "no-key-needed",
        **{
            name: ",".join(filter(None, [os.environ.get(name), _HOST, "localhost"]))
            for name in ("NO_PROXY", "no_proxy")
        },
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 512

    def __init__(self, model: ModelServer, port: int) -> None:
        self.model = model
        self.is_closing = False
        self._connections: set[socket.socket] = set()
        self._ended = threading.Condition()
        super().__init__((_HOST, port), Exchange)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self._ended:
            self._connections.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._ended:
                self._connections.discard(request)
                self._ended.notify_all()

    def close(self) -> None:
        """End every connection, and wait until what became of each request is written down."""
        self.is_closing = True
        self.shutdown()
        self.server_close()
        with self._ended:
            for connection in self._connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
            self._ended.wait_for(lambda: not self._connections, _ENDING_SECONDS)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that died is no news here."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)
