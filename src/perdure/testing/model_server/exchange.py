"""One request over HTTP and its answer: noted when it has come, sent as the script says, noted how it ended."""

from __future__ import annotations

import contextlib
import json
import math
from http.server import BaseHTTPRequestHandler
from io import BufferedIOBase
from typing import TYPE_CHECKING, Any, Final

from perdure.testing.model_server import control
from perdure.testing.model_server.answers import Fault
from perdure.testing.model_server.conversation import Conversation, digest
from perdure.testing.model_server.dialect import Dialect, Malformed, encoded
from perdure.testing.model_server.endpoints import dialect_of, not_found, small_answer, small_of
from perdure.testing.model_server.ledger import Request, State, path_without_keys, without_keys
from perdure.testing.model_server.openai_chat import CHAT
from perdure.testing.model_server.script import Chosen
from perdure.testing.model_server.stream import frame_of, frames_of, has_hung_up, send_stream, send_whole

if TYPE_CHECKING:
    from perdure.testing.model_server.server import ModelServer, _Server

_REFUSED: Final = (Malformed, AttributeError, KeyError, TypeError, ValueError)
"""What reading a request that is not as the interface has it can raise."""


class Exchange(BaseHTTPRequestHandler):
    """Serves one connection. It is the `Outgoing` of the answers that go over it."""

    server: _Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        """Serve a request of any method."""
        self._number = self._chunks = self._status = 0
        self._fault: Fault | None = None
        content, is_whole = self._content()
        if self.path.startswith(control.PREFIX):
            status, told = control.answer(self._model, self.command, self.path)
            send_whole(self, status, encoded(told))
            return
        self._number = self._model.ledger.begin(self._noted(content, is_whole=is_whole))
        if not is_whole:
            self.close_connection = True
            return
        try:
            self._answer(_parsed(content))
        except OSError:
            self.ends("abandoned")
            self.close_connection = True

    do_GET = do_PUT = do_PATCH = do_DELETE = do_HEAD = do_OPTIONS = do_POST  # noqa: N815 - as http.server has them

    def _content(self) -> tuple[bytes, bool]:
        """What was sent, and whether it came whole: a client can die in the middle of its request."""
        try:
            if "chunked" in str(self.headers.get("Transfer-Encoding")):
                return _joined(self.rfile)
            length = self.headers.get("Content-Length") or "0"
            content = self.rfile.read(int(length) if length.isdigit() else 0)
            return content, len(content) == int(length)
        except (OSError, ValueError):
            return b"", False

    def _noted(self, content: bytes, *, is_whole: bool) -> Request:
        address = self.path.split("?")[0]
        dialect = dialect_of(self.command, address)
        return Request(
            number=0,
            method=self.command,
            path=path_without_keys(self.path),
            headers=without_keys(self.headers.items()),
            body=_parsed(content),
            dialect=dialect.name if dialect is not None else small_of(self.command, address),
            state="in flight" if is_whole else "partial",
        )

    def _answer(self, body: Any) -> None:
        address = self.path.split("?")[0]
        dialect = dialect_of(self.command, address)
        if dialect is not None:
            self._converse(dialect, body, address)
        elif small := small_of(self.command, address):
            self._answer_small(small, body, address)
        else:
            told = not_found(self.command, address)
            self._note(unexpected=told["error"]["message"])
            send_whole(self, 404, encoded(told), state="failed")

    def _answer_small(self, name: str, body: Any, address: str) -> None:
        try:
            told = small_answer(name, address, body)
        except _REFUSED as error:
            self._refuse(CHAT, 400, f"The request cannot be read: {error!r}.")
        else:
            send_whole(self, 200, encoded(told))

    def _converse(self, dialect: Dialect, body: Any, address: str) -> None:
        try:
            if not isinstance(body, dict):
                raise Malformed("The body of the request must be a JSON object.")
            heard = self._model.heard(body) if dialect.name == "openai.responses" else body
            conversation = dialect.read(heard, address)
        except _REFUSED as error:
            why = str(error) if isinstance(error, Malformed) else f"The request cannot be read: {error!r}."
            self._refuse(dialect, 400, why)
            return
        self._note(turn=conversation.turn)
        try:
            chosen = self._model.choose(conversation)
        except Exception as error:  # noqa: BLE001 - whatever a function of the script raises
            self._refuse(dialect, 500, f"The script raised {error!r}.")
            return
        if chosen is None:
            self._refuse(dialect, 400, self._model.expected(conversation))
        elif not self._fail(dialect, chosen, streams=conversation.stream):
            self._say(dialect, conversation, chosen, address)

    def _refuse(self, dialect: Dialect, status: int, why: str) -> None:
        self._note(unexpected=why)
        send_whole(self, status, encoded(dialect.error(status, why)), state="failed")

    def _fail(self, dialect: Dialect, chosen: Chosen, *, streams: bool) -> bool:
        """Play a fault that needs no answer; whether there was one."""
        fault = chosen.fault
        if fault is None or fault.kind == "cut" or (streams and fault.after is not None):
            return False
        self._fault = fault
        if fault.kind == "hang_up":
            self.ends("cut")
            self.hang_up()
            return True
        told = fault.text.encode() if fault.kind == "garble" else encoded(dialect.error(fault.status, fault.text))
        send_whole(self, fault.status, told, holds=chosen.holds, state="failed")
        return True

    def _say(self, dialect: Dialect, conversation: Conversation, chosen: Chosen, address: str) -> None:
        turn = self._model.turn(conversation, chosen.answer, address)
        fault, holds = chosen.fault, chosen.holds
        if not conversation.stream:
            state: State = "answered" if fault is None else "cut"
            send_whole(self, 200, encoded(dialect.whole(turn)), holds=holds, state=state)
            return
        is_array = dialect.name == "gemini" and "alt=sse" not in self.path
        frames = frames_of(dialect.events(turn), dialect, is_array=is_array)
        error = b"" if fault is None else _error_frame(dialect, fault)
        send_stream(self, frames, fault=fault, error=error, holds=holds)

    def head(self, status: int, *, kind: str, length: int | None) -> None:
        self._status = status
        self.send_response(status)
        self.send_header("Content-Type", kind)
        request_id = f"req_{digest(str(self._number))}"
        self.send_header("x-request-id", request_id)
        self.send_header("request-id", request_id)
        if self._fault is not None and self._fault.retry_after is not None:
            self.send_header("retry-after", str(math.ceil(self._fault.retry_after)))
            self.send_header("retry-after-ms", str(round(self._fault.retry_after * 1_000)))
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def body(self, content: bytes) -> None:
        if self.command != "HEAD":
            self.wfile.write(content)

    def chunk(self, content: bytes) -> None:
        self._chunks += 1
        self._note(chunks=self._chunks)
        self.wfile.write(b"%x\r\n%s\r\n" % (len(content), content))

    def end(self) -> None:
        with contextlib.suppress(OSError):  # a client may leave when it has read the last event
            self.wfile.write(b"0\r\n\r\n")

    def ends(self, state: State) -> None:
        self._note(state=state, status=self._status)

    def hang_up(self) -> None:
        self.close_connection = True

    def is_gone(self) -> bool:
        return self.server.is_closing or has_hung_up(self.connection)

    def log_message(self, *_: object) -> None:
        """Say nothing: the requests are kept."""

    @property
    def _model(self) -> ModelServer:
        return self.server.model

    def _note(self, **changes: Any) -> None:
        if self._number:  # what a test asks of the server itself is not noted
            self._model.ledger.note(self._number, **changes)


def _parsed(content: bytes) -> Any:
    text = content.decode(errors="replace")
    try:
        return json.loads(text)
    except ValueError:
        return text


def _error_frame(dialect: Dialect, fault: Fault) -> bytes:
    return frame_of(dialect.error_event(fault.status, fault.text, fault.after or 0), dialect)


def _joined(lines: BufferedIOBase) -> tuple[bytes, bool]:
    """A body that came in chunks, and whether its end came, too."""
    content = b""
    while line := lines.readline():
        size = int(line.split(b";")[0], 16)
        content += lines.read(size)
        lines.readline()
        if size == 0:
            return content, True
    return content, False
