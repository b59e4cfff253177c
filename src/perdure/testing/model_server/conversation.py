"""What a request asks of the model, in one form for every dialect; pure.

Every answer is chosen by this alone, so that an agent that resumes and asks again is told the same again.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final, Literal

from msgspec import Struct

Role = Literal["system", "user", "assistant", "tool"]
ANY_TOOL: Final = "*"
"""What `must_call` says where any tool will do."""


class Called(Struct, frozen=True):
    """A tool call that the model made in an earlier turn."""

    id: str
    name: str
    arguments: Any


class Result(Struct, frozen=True):
    """What a tool gave, as the agent reports it."""

    id: str
    """The id of its call; empty where the dialect has none."""
    text: str
    name: str = ""
    """The name of the tool."""


class Message(Struct, frozen=True):
    """One entry of the conversation."""

    role: Role
    text: str = ""
    calls: tuple[Called, ...] = ()
    results: tuple[Result, ...] = ()


class Conversation(Struct, frozen=True):
    """All that a request says."""

    dialect: str
    """`openai.chat`, `openai.responses`, `anthropic` or `gemini`."""
    model: str
    messages: tuple[Message, ...]
    tools: dict[str, Any]
    """The schema of the arguments of every tool on offer."""
    body: dict[str, Any]
    """The request as it was sent."""
    stream: bool = False
    schema: Any = None
    """The schema that the answer must fit, if one was asked for."""
    must_call: str = ""
    """The tool that the answer must call, `*` for any; empty where it need not."""

    @property
    def turn(self) -> int:
        """How often the model has spoken in this conversation: 0 for its first answer."""
        return sum(message.role == "assistant" for message in self.messages)

    @property
    def system(self) -> str:
        """The instructions."""
        return "\n".join(message.text for message in self.messages if message.role == "system")

    @property
    def text(self) -> str:
        """The last thing that the user said."""
        return next((message.text for message in reversed(self.messages) if message.role == "user"), "")

    @property
    def results(self) -> tuple[Result, ...]:
        """What the tools gave since the model last spoke."""
        found: list[Result] = []
        for message in reversed(self.messages):
            if message.role == "assistant":
                break
            found[:0] = message.results
        return tuple(found)

    def contains(self, words: str) -> bool:
        """Whether these words stand anywhere in the conversation."""
        return any(
            words in message.text or any(words in result.text for result in message.results)
            for message in self.messages
        )


def with_tool_names(messages: list[Message]) -> tuple[Message, ...]:
    """The same messages; each result carries the name of the tool whose call has its id."""
    names = {call.id: call.name for message in messages for call in message.calls}
    return tuple(
        Message(
            message.role,
            message.text,
            message.calls,
            tuple(Result(each.id, each.text, each.name or names.get(each.id, "")) for each in message.results),
        )
        for message in messages
    )


def text_of(content: object) -> str:
    """The text of a content that is a string, a part, or a list of parts; anything else as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(text_of(part) for part in content)
    if isinstance(content, dict) and isinstance(content.get("text"), str):
        return str(content["text"])
    return canonical(content)


def arguments_of(text: object) -> Any:
    """Arguments that travel as text, read; the text itself where it is no JSON."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text


def canonical(value: object) -> str:
    """One text for equal JSON values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(*parts: str) -> str:
    """A short fingerprint of these texts."""
    return hashlib.sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()[:24]
