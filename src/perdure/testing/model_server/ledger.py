"""Everything that came in, in order, and how it ended. It is counted where the agents' deaths cannot reach it."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from perdure.testing.model_server.conversation import canonical, digest

State = Literal["partial", "in flight", "answered", "failed", "cut", "abandoned"]
_SECRET: Final = ("authorization", "api-key", "cookie", "token", "secret")
_KEY_IN_QUERY: Final = re.compile(r"([?&]key=)[^&]*")
_NO_QUESTIONS: Final = ("", "models", "tokens")
HIDDEN: Final = "(hidden)"
"""What is kept instead of a key."""


class Request(Struct, frozen=True):
    """One request as it was when it was looked at."""

    number: int
    """1 for the first."""
    method: str
    path: str
    """With its query, without keys."""
    headers: dict[str, str]
    """With names in lower case; what they say of keys and cookies is not kept."""
    body: Any
    """Read, where it is JSON; else its text."""
    dialect: str = ""
    """`openai.chat`, `openai.responses`, `anthropic`, `gemini`, `embeddings`, …; empty at an unknown address."""
    turn: int = 0
    """How often the model had spoken in the conversation."""
    state: State = "in flight"
    """`answered`: the whole answer was handed over. `failed`: an error was. `cut`: the script broke it off.
    `abandoned`: the client went away first. `in flight`: none of these yet. `partial`: the client died before it had
    sent all of it."""
    status: int = 0
    """Of the answer; 0 where there was none."""
    chunks: int = 0
    """How many chunks of a stream were handed over."""
    unexpected: str = ""
    """Why the script did not expect it; empty where it did."""
    began: int = 0
    """Its place among all beginnings and ends."""
    ended: int = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing more will become of it."""
        return self.state != "in flight"

    @property
    def is_question(self) -> bool:
        """Whether it asks something of a model, and came whole."""
        return self.dialect not in _NO_QUESTIONS and self.state != "partial"

    @property
    def fingerprint(self) -> str:
        """The same for requests of one method, address and body."""
        return self.fingerprint_without(())

    def fingerprint_without(self, fields: Sequence[str]) -> str:
        """The same, if these fields of the body are left out of account."""
        body = self.body
        if isinstance(body, dict):
            body = {name: value for name, value in body.items() if name not in fields}
        return digest(self.method, self.path, canonical(body))

    def __repr__(self) -> str:
        why = f" unexpected: {self.unexpected}" if self.unexpected else ""
        asked = self.dialect and f" turn {self.turn}"
        return f"<{self.number}: {self.method} {self.path}{asked} {self.state} {self.fingerprint[:8]}{why}>"


class Readings:
    """What a test may ask about the requests, wherever the server runs."""

    @property
    def requests(self) -> list[Request]:
        """Every request, in the order in which they came."""
        raise NotImplementedError

    @property
    def unexpected(self) -> list[Request]:
        """The requests that the script did not expect, or that went to an unknown address."""
        return [each for each in self.requests if each.unexpected]

    def count(self, state: State | None = None) -> int:
        """How many requests the model got, those in flight when their client died included; or those in one state."""
        return sum(each.is_question and state in (None, each.state) for each in self.requests)

    def repeated(self, *, ignoring: Sequence[str] = ()) -> list[Request]:
        """The requests that had been answered already when they were sent again, body for body."""
        requests = [each for each in self.requests if each.is_question]
        marks = [each.fingerprint_without(ignoring) for each in requests]
        answered: dict[str, int] = {}
        for mark, each in zip(marks, requests, strict=True):
            if each.state == "answered":
                answered[mark] = min(each.ended, answered.get(mark, each.ended))
        return [
            each for mark, each in zip(marks, requests, strict=True) if mark in answered and answered[mark] < each.began
        ]


class Ledger:
    """Keeps the requests; written by the threads that serve them."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._moments = 0

    def requests(self) -> list[Request]:
        """All of them, as they are now."""
        with self._changed:
            return list(self._requests)

    def begin(self, request: Request) -> int:
        """Note a request that has arrived; its number."""
        with self._changed:
            self._moments += 1
            number = len(self._requests) + 1
            self._requests.append(msgspec.structs.replace(request, number=number, began=self._moments))
            self._changed.notify_all()
            return number

    def note(self, number: int, **changes: Any) -> None:
        """Something more is known of a request."""
        with self._changed:
            if changes.get("state", "in flight") != "in flight":
                self._moments += 1
                changes["ended"] = self._moments
            self._requests[number - 1] = msgspec.structs.replace(self._requests[number - 1], **changes)
            self._changed.notify_all()

    def wait(self, until: Callable[[list[Request]], bool], *, seconds: float) -> bool:
        """Wait until the requests are so; whether they came to be."""
        with self._changed:
            return self._changed.wait_for(lambda: until(list(self._requests)), seconds)


def without_keys(headers: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Headers that can be shown to anybody."""
    lower = [(name.lower(), value) for name, value in headers]
    return {name: HIDDEN if any(word in name for word in _SECRET) else value for name, value in lower}


def path_without_keys(path: str) -> str:
    """An address that can be shown to anybody: Gemini takes its key in the query."""
    return _KEY_IN_QUERY.sub(rf"\1{HIDDEN}", path)
