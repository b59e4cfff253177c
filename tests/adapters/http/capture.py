"""Genuine exchanges: what the real SDKs send to the model server, and the bytes that come back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx2

from perdure.adapters.http.endpoints import Dialect, dialect_of
from perdure.testing.model_server import ModelServer
from tests.adapters.asking import GEMINI, GEMINI_STREAM, ask, question
from tests.adapters.lazily import Lazily

if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic = Lazily("anthropic")
    openai = Lazily("openai")

SECRET = "sk-proj-0123456789abcdefghij"


@dataclass
class Exchange:
    method: str
    url: str
    headers: dict[str, str]
    body: bytes
    status: int = 0
    answer_headers: dict[str, str] = field(default_factory=dict)
    chunks: list[bytes] = field(default_factory=list)

    @property
    def dialect(self) -> Dialect:
        found = dialect_of(self.method, self.url)
        assert found is not None
        return found

    @property
    def answer(self) -> bytes:
        return b"".join(self.chunks)

    @property
    def is_stream(self) -> bool:
        return "text/event-stream" in self.answer_headers.get("content-type", "")


class _Watched(httpx2.SyncByteStream):
    def __init__(self, inner: Any, exchange: Exchange) -> None:
        self._inner = inner
        self._exchange = exchange

    def __iter__(self) -> Iterator[bytes]:
        for chunk in self._inner:
            self._exchange.chunks.append(chunk)
            yield chunk

    def close(self) -> None:
        self._inner.close()


class Watch(httpx2.HTTPTransport):
    """Sends as ever, and keeps what went over the wire."""

    def __init__(self) -> None:
        super().__init__()
        self.exchanges: list[Exchange] = []

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        made = Exchange(request.method, str(request.url), dict(request.headers), request.read())
        self.exchanges.append(made)
        response = super().handle_request(request)
        made.status, made.answer_headers = response.status_code, dict(response.headers)
        response.stream = _Watched(response.stream, made)
        return response


CHAT_TOOL: Any = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}
RESPONSES_TOOL: Any = {"type": "function", "name": "search", "parameters": {"type": "object"}, "strict": False}
ANTHROPIC_TOOL: Any = {"name": "search", "input_schema": {"type": "object"}}


def openai_client(model: ModelServer, watch: Watch) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=model.openai_url, api_key=SECRET, max_retries=0, http_client=openai.DefaultHttpxClient(transport=watch)
    )


def anthropic_client(model: ModelServer, watch: Watch) -> anthropic.Anthropic:
    http = anthropic.DefaultHttpxClient(transport=watch)
    return anthropic.Anthropic(base_url=model.url, api_key=SECRET, max_retries=0, http_client=http)


def chat(model: ModelServer, watch: Watch, messages: Any, *, stream: bool) -> None:
    options: Any = {"model": "gpt-4o", "messages": messages, "tools": [CHAT_TOOL]}
    with openai_client(model, watch) as client:
        if not stream:
            client.chat.completions.create(**options)
            return
        with client.chat.completions.stream(**options, stream_options={"include_usage": True}) as told:
            told.until_done()


def responses(model: ModelServer, watch: Watch, items: Any, *, stream: bool) -> None:
    options: Any = {"model": "gpt-5", "input": items, "tools": [RESPONSES_TOOL]}
    with openai_client(model, watch) as client:
        if not stream:
            client.responses.create(**options)
            return
        with client.responses.stream(**options) as told:
            told.until_done()


def messages(model: ModelServer, watch: Watch, said: Any, *, stream: bool) -> None:
    options: Any = {"model": "claude-x", "max_tokens": 100, "messages": said, "tools": [ANTHROPIC_TOOL]}
    with anthropic_client(model, watch) as client:
        if not stream:
            client.messages.create(**options)
            return
        with client.messages.stream(**options) as told:
            told.until_done()


def gemini(model: ModelServer, watch: Watch, contents: Any, *, stream: bool) -> None:
    """No SDK of Google's is at hand: the same bytes by hand."""
    path = GEMINI_STREAM if stream else GEMINI
    body = {**question(path), "contents": contents}
    told = ask(model.url, path, body)
    made = Exchange("POST", model.url + path, {}, json.dumps(body).encode(), told.status, told.headers)
    made.chunks = [told.text.encode()]
    watch.exchanges.append(made)


Caller = Callable[..., None]
CALLERS: dict[str, Caller] = {"chat": chat, "responses": responses, "anthropic": messages, "gemini": gemini}


def first(caller: str, text: str = "go") -> list[dict[str, Any]]:
    """A conversation with one message of the user."""
    if caller == "gemini":
        return [{"role": "user", "parts": [{"text": text}]}]
    return [{"role": "user", "content": text}]


def exchange(model: ModelServer, caller: str, *, stream: bool, said: Any = None) -> Exchange:
    """One exchange with the model server, in the words of this caller."""
    watch = Watch()
    CALLERS[caller](model, watch, first(caller) if said is None else said, stream=stream)
    (made,) = watch.exchanges
    return made
