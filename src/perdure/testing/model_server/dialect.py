"""What a dialect must be able to do: read a request, and write an answer whole, as a stream, or as an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Struct

from perdure.testing.model_server.answers import Answer, Tool, Usage, usage_of
from perdure.testing.model_server.conversation import Conversation, digest

DONE: Final = "[DONE]"
"""How OpenAI ends a stream of chat completions."""

_CREATED_AT: Final = 1_750_000_000


class Malformed(Exception):
    """A request that a real server would refuse, too."""


class Event(Struct, frozen=True):
    """One chunk of a stream."""

    data: dict[str, Any] | str
    name: str = ""


class Turn(Struct, frozen=True):
    """An answer about to be written down: what was asked, what is said, and the ids it will carry."""

    conversation: Conversation
    answer: Answer
    seed: str
    """All ids are made of it: of the request, so that they stay the same, or fresh."""
    created_at: int = _CREATED_AT

    @property
    def usage(self) -> Usage:
        return usage_of(self.answer, self.conversation)

    def made_id(self, prefix: str, index: int = 0) -> str:
        """An id of this answer."""
        return f"{prefix}{digest(self.seed, prefix, str(index))}"

    def call_id(self, prefix: str, index: int) -> str:
        """The id of one of its tool calls."""
        return self.answer.tools[index].id or self.made_id(prefix, index)


class Dialect(Struct, frozen=True):
    """How one provider's interface is spoken."""

    name: str
    read: Callable[[dict[str, Any], str], Conversation]
    """From the body and the path."""
    whole: Callable[[Turn], dict[str, Any]]
    events: Callable[[Turn], list[Event]]
    error: Callable[[int, str], dict[str, Any]]
    error_event: Callable[[int, str, int], Event]
    """An error in the middle of a stream, after so many chunks."""


def calls_of(answer: Answer) -> list[tuple[int, Tool]]:
    """The tool calls of an answer with their places."""
    return list(enumerate(answer.tools))


def listed(value: object, what: str) -> list[dict[str, Any]]:
    """A list of objects of a request."""
    if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
        raise Malformed(f"{what} must be a list of objects.")
    return value


def encoded(value: object) -> bytes:
    """A value as JSON."""
    return msgspec.json.encode(value)
