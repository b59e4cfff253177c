"""Requests to the model server without any SDK: what is sent and what comes back can be seen byte by byte."""

from __future__ import annotations

import contextlib
import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit

CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
GEMINI = "/v1beta/models/gemini-x:generateContent"
GEMINI_STREAM = "/v1beta/models/gemini-x:streamGenerateContent?alt=sse"
EVERY = (CHAT, RESPONSES, MESSAGES, GEMINI)


class Told(NamedTuple):
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def events(self) -> list[str]:
        """The data of every event of a stream."""
        return [line[6:] for line in self.text.splitlines() if line.startswith("data: ")]


def ask(url: str, path: str, body: Any, *, method: str = "POST", headers: dict[str, str] | None = None) -> Told:
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
    with contextlib.closing(connection):
        content = body if isinstance(body, (str, bytes)) else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json", **(headers or {})})
        response = connection.getresponse()
        text = response.read().decode()
        return Told(response.status, {name.lower(): value for name, value in response.getheaders()}, text)


def question(path: str, *said: str, stream: bool = False) -> dict[str, Any]:
    """A conversation in the dialect of this address: what the user and the model said in turn."""
    roles = ("user", "model" if ":" in path else "assistant")
    spoken = [(roles[at % 2], text) for at, text in enumerate(said)]
    if ":" in path:
        return {"contents": [{"role": role, "parts": [{"text": text}]} for role, text in spoken]}
    messages = [{"role": role, "content": text} for role, text in spoken]
    body: dict[str, Any] = {"model": "x", ("input" if path == RESPONSES else "messages"): messages}
    if path == MESSAGES:
        body["max_tokens"] = 100
    return body | ({"stream": True} if stream else {})


def chat(url: str, *said: str, stream: bool = False) -> Told:
    return ask(url, CHAT, question(CHAT, *said, stream=stream))


def spoken(path: str, told: Told) -> str:
    """The text of an answer."""
    match path:
        case "/v1/chat/completions":
            return str(told.json["choices"][0]["message"]["content"])
        case "/v1/responses":
            return str(told.json["output"][0]["content"][0]["text"])
        case "/v1/messages":
            return str(told.json["content"][0]["text"])
    return str(told.json["candidates"][0]["content"]["parts"][0]["text"])
