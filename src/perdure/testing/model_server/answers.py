"""What the model can say, and what can go wrong with it; pure data, made by a script."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal

from msgspec import Struct

from perdure.testing.model_server.conversation import Conversation, canonical

Stop = Literal["end", "length", "filter"]
GARBAGE: Final = '{"id": "this answer ends in the midd'
_WORDS: Final = re.compile(r"\S+\s*|\s+")
_LETTERS_PER_TOKEN: Final = 4


class Tool(Struct, frozen=True):
    """A tool call that the model makes."""

    name: str
    arguments: dict[str, Any] = {}
    id: str = ""
    """Its id on the wire; made up where it is empty."""
    broken: str = ""
    """What is sent instead of the arguments: a text that need not be JSON."""

    @property
    def text(self) -> str:
        """The arguments as they travel."""
        return self.broken or canonical(self.arguments)


class Usage(Struct, frozen=True):
    """The tokens that an answer says it took."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0
    """How many of the input came from a cache."""


class Answer(Struct, frozen=True):
    """One turn of the model: text, tool calls, or both."""

    chunks: tuple[str, ...] = ()
    """The text, in the pieces in which a stream sends it."""
    tools: tuple[Tool, ...] = ()
    stop: Stop = "end"
    usage: Usage | None = None
    """Counted from the texts where it is not given."""

    @property
    def text(self) -> str:
        return "".join(self.chunks)


class Fault(Struct, frozen=True):
    """What happens to a request instead of its answer, or to the answer on its way."""

    kind: Literal["error", "cut", "hang_up", "garble"]
    times: int | None = 1
    """How many requests it hits; None for every one."""
    status: int = 500
    text: str = ""
    """The message of an error, or the garbage."""
    retry_after: float | None = None
    after: int | None = None
    """How many chunks of a stream go out first."""


Reply = Callable[[Conversation], "Answer | str"]
"""An answer that is made from the conversation."""


def answer(text: str | Sequence[str] = "", *tools: Tool, stop: Stop = "end", usage: Usage | None = None) -> Answer:
    """What the model says in one turn, for a function that makes answers. A list is sent in these pieces."""
    chunks = tuple(_WORDS.findall(text)) if isinstance(text, str) else tuple(text)
    return Answer(chunks, tools, stop, usage)


def tool(name: str, /, **arguments: Any) -> Tool:
    """A call of this tool."""
    return Tool(name, arguments)


def broken_tool(name: str, text: str) -> Tool:
    """A call of this tool whose arguments are this text, which need not be JSON."""
    return Tool(name, broken=text)


def usage_of(given: Answer, conversation: Conversation) -> Usage:
    """What the answer says it took; about a token for every four letters where the script is silent."""
    if given.usage is not None:
        return given.usage
    spoken = len(given.text) + sum(len(call.name) + len(call.text) for call in given.tools)
    return Usage(_tokens(len(canonical(conversation.body))), _tokens(spoken))


def pieces(text: str, size: int = 16) -> list[str]:
    """A text in short pieces, as a stream sends the arguments of a tool call."""
    return [text[start : start + size] for start in range(0, len(text), size)]


def _tokens(letters: int) -> int:
    return -(-letters // _LETTERS_PER_TOKEN)
