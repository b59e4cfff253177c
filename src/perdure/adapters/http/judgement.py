"""What an event of a streamed answer means for its end, per dialect; pure but for what it has heard."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from perdure.adapters.http.endpoints import Dialect

_DONE: Final = b"[DONE]"
_LAST_RESPONSES: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)
_FAILED_RESPONSES: Final = frozenset({"response.failed", "response.cancelled"})
_CHOICES: Final = frozenset({Dialect.OPENAI_CHAT, Dialect.OPENAI_COMPLETIONS})
_STOPS: Final = ("messageStop", "stop_reason", "stopReason", "completionReason", "finish_reason")
_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_value: Final = msgspec.json.Decoder().decode


class Judge:
    """Hears the events of one answer in their order."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._open: set[str] = set()
        """The alternatives that have begun."""
        self._over: set[str] = set()
        self.terminal_at: int | None = None
        self.finish_at: int | None = None
        self.has_failed = False

    @property
    def is_whole_at_the_end(self) -> bool:
        """Whether the answer is whole if the body ends here."""
        if self.terminal_at is not None or self._dialect is Dialect.MEDIA:
            return True
        needs_its_event = self._dialect in (Dialect.ANTHROPIC, Dialect.OPENAI_RESPONSES)
        return not needs_its_event and self.finish_at is not None and self._open <= self._over

    def hear(self, name: str, data: bytes, begins: int, *, is_exception: bool = False) -> None:
        """One event; what comes behind the terminal one means nothing."""
        if self.terminal_at is not None:
            return
        if is_exception:
            self._fail(begins)
        elif data.strip() == _DONE:
            self._end(begins)
        elif isinstance(value := _decoded(data), dict):
            self._judge(name, value, begins)

    def _judge(self, name: str, value: dict[str, Any], begins: int) -> None:
        kind = value.get("type") or name
        if kind == "error" or value.get("error"):
            self._fail(begins)
        elif self._dialect is Dialect.OPENAI_RESPONSES:
            if kind in _LAST_RESPONSES:
                self.has_failed = kind in _FAILED_RESPONSES
                self._end(begins)
        elif self._dialect in _CHOICES:
            self._follow(value.get("choices"), "finish_reason", begins)
        elif self._dialect is Dialect.GEMINI:
            self._follow_gemini(value, begins)
        elif kind == "message_stop":
            self._end(begins)
        elif _stopped(name, value):
            self._finish(begins)

    def _follow(self, choices: Any, reason: str, begins: int) -> None:
        for choice in choices if isinstance(choices, list) else ():
            if not isinstance(choice, dict):
                continue
            index = str(choice.get("index", 0))
            if choice.get(reason):
                self._over.add(index)
                self._finish(begins)
            self._open.add(index)

    def _follow_gemini(self, value: dict[str, Any], begins: int) -> None:
        self._follow(value.get("candidates"), "finishReason", begins)
        feedback = value.get("promptFeedback")
        if isinstance(feedback, dict) and feedback.get("blockReason"):
            self._finish(begins)

    def _finish(self, begins: int) -> None:
        if self.finish_at is None:
            self.finish_at = begins

    def _end(self, begins: int) -> None:
        self._finish(begins)
        self.terminal_at = begins

    def _fail(self, begins: int) -> None:
        self.has_failed = True
        self._end(begins)


def _stopped(name: str, value: dict[str, Any]) -> bool:
    """Whether an event of Anthropic or Amazon says why the model stopped."""
    delta = value.get("delta")
    inner = delta if isinstance(delta, dict) else {}
    return name == "messageStop" or any(value.get(each) or inner.get(each) for each in _STOPS)


def _decoded(data: bytes) -> Any:
    try:
        return _value(data)
    except _UNREADABLE:
        return None
