"""A server on loopback that answers as OpenAI and as Bedrock do, packed as the question wishes.

The words of a question say how it is answered, so that a script decides: `gzip` packs the body, `cut` breaks it off,
`refused` is an error, `echo` repeats what came with the request, `hold` stops after two events until it is let go.
"""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import struct
import threading
import zlib
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

EVENTS = "text/event-stream; charset=utf-8"
FRAMES = "application/vnd.amazon.eventstream"
JSON = "application/json"
WORDS = ("One", " two", " three", " große Grüße", " five.")
HELD_AT = 2
SECONDS = 60
USAGE = {"inputTokens": 3, "outputTokens": 5, "totalTokens": 8}


class Speaking:
    """The server, and the questions that came, in their order."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.asked: list[str] = []
        self.held = threading.Event()
        """Set once it may go on with what it holds."""

    def environment(self) -> dict[str, str]:
        """What a script needs to find it; the keys open nothing."""
        return {
            "SPEAKING_URL": self.url,
            "AWS_ACCESS_KEY_ID": "AKIAABCDEFGHIJKLMNOP",
            "AWS_SECRET_ACCESS_KEY": "signing-key-signing-key-signing-key",
            "AWS_SESSION_TOKEN": "session-token-session-token-session-token",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "NO_PROXY": "127.0.0.1",
        }


@contextlib.contextmanager
def speaking() -> Iterator[Speaking]:
    """Such a server while it is needed."""

    class Handler(_Handler):
        pass

    with _Server(("127.0.0.1", 0), Handler) as server:
        Handler.model = Speaking(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield Handler.model
        finally:
            Handler.model.held.set()
            server.shutdown()
            thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Who is killed hangs up."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    model: Speaking

    def do_POST(self) -> None:
        content = self._content()
        question = _question(content)
        self.model.asked.append(question)
        with contextlib.suppress(ConnectionError):  # who is killed does not wait for the rest
            self._answer(question, content)

    def _answer(self, question: str, content: bytes) -> None:
        if "refused" in question:
            self._refuse(question)
        elif "/model/" in self.path:
            self._speak_as_bedrock(question)
        elif json.loads(content).get("stream"):
            self._stream(EVENTS, question, list(_openai_events()))
        else:
            self._whole(200, question, _openai_answer())

    def log_message(self, *_: object) -> None:
        pass

    def _content(self) -> bytes:
        if "chunked" not in str(self.headers.get("Transfer-Encoding")):
            return self.rfile.read(int(self.headers["Content-Length"]))
        content = b""
        while size := int(self.rfile.readline(), 16):
            content += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return content

    def _refuse(self, question: str) -> None:
        told = {"message": f"No: {self._credentials()}" if "echo" in question else "No.", "error": {"message": "No."}}
        self._whole(403 if "echo" in question else 400, question, told, x_amzn_errortype="ValidationException:")

    def _speak_as_bedrock(self, question: str) -> None:
        verb = self.path.rpartition("/")[2]
        words = (*WORDS, self._credentials()) if "echo" in question else WORDS
        told: dict[str, Any]
        if verb == "converse":
            told = {"output": {"message": {"role": "assistant", "content": [{"text": "".join(words)}]}}}
            self._whole(200, question, told | {"stopReason": "end_turn", "usage": USAGE, "metrics": {"latencyMs": 1}})
        elif verb == "invoke":
            told = {"content": [{"type": "text", "text": "".join(words)}], "stop_reason": "end_turn"}
            self._whole(200, question, told)
        elif verb == "converse-stream":
            self._stream(FRAMES, question, list(_converse_frames(words)))
        else:
            self._stream(FRAMES, question, list(_invoke_frames(words)))

    def _credentials(self) -> str:
        """What came with the request, as a bad answer would repeat it."""
        return " ".join(self.headers.get(name, "") for name in ("Authorization", "X-Amz-Security-Token"))

    def _whole(self, status: int, question: str, told: Any, **headers: str) -> None:
        body = json.dumps(told, ensure_ascii=False).encode()
        packed = gzip.compress(body) if "gzip" in question else body
        self._head(status, JSON, question, Content_Length=str(len(packed)), **headers)
        self.wfile.write(packed[: len(packed) // 2] if "cut" in question else packed)
        self.close_connection = "cut" in question

    def _stream(self, kind: str, question: str, pieces: Sequence[bytes]) -> None:
        """One chunk an event; a cut one breaks off after the second."""
        packer = zlib.compressobj(wbits=31)
        self._head(200, kind, question, Transfer_Encoding="chunked")
        for number, piece in enumerate(pieces[:2] if "cut" in question else pieces):
            if number == HELD_AT and "hold" in question:
                self.model.held.wait(SECONDS)
            sent = packer.compress(piece) + packer.flush(zlib.Z_SYNC_FLUSH) if "gzip" in question else piece
            self._chunk(sent)
        if "cut" in question:
            self.close_connection = True
            return
        if "gzip" in question:
            self._chunk(packer.flush())
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def _head(self, status: int, kind: str, question: str, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("x-request-id", "request-1")
        if "gzip" in question:
            self.send_header("Content-Encoding", "gzip")
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()


def _question(content: bytes) -> str:
    """The words that were asked, whatever the dialect."""
    said = json.loads(content)["messages"][-1]["content"]
    return said if isinstance(said, str) else "".join(part["text"] for part in said)


def _openai_answer() -> dict[str, Any]:
    message = {"role": "assistant", "content": "".join(WORDS)}
    return {"id": "1", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}


def _openai_events() -> Iterator[bytes]:
    for word in WORDS:
        yield _event({"index": 0, "delta": {"content": word}, "finish_reason": None})
    yield _event({"index": 0, "delta": {}, "finish_reason": "stop"})
    yield b"data: [DONE]\n\n"


def _event(choice: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps({"id": "1", "model": "m", "choices": [choice]}, ensure_ascii=False).encode() + b"\n\n"


def _converse_frames(words: Sequence[str]) -> Iterator[bytes]:
    yield frame("messageStart", {"role": "assistant"})
    for word in words:
        yield frame("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": word}})
    yield frame("contentBlockStop", {"contentBlockIndex": 0})
    yield frame("messageStop", {"stopReason": "end_turn"})
    yield frame("metadata", {"usage": USAGE, "metrics": {"latencyMs": 1}})


def _invoke_frames(words: Sequence[str]) -> Iterator[bytes]:
    told: list[dict[str, Any]] = [{"type": "content_block_delta", "delta": {"text": word}} for word in words]
    for each in (*told, {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}, {"type": "message_stop"}):
        yield frame("chunk", {"bytes": base64.b64encode(json.dumps(each).encode()).decode()})


def frame(kind: str, payload: Any) -> bytes:
    """One frame of Amazon's streams."""
    named = {":event-type": kind, ":content-type": JSON, ":message-type": "event"}
    headers = b"".join(_header(name, value) for name, value in named.items())
    body = json.dumps(payload).encode()
    sizes = struct.pack(">II", 16 + len(headers) + len(body), len(headers))
    begun = sizes + struct.pack(">I", zlib.crc32(sizes)) + headers + body
    return begun + struct.pack(">I", zlib.crc32(begun))


def _header(name: str, value: str) -> bytes:
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
