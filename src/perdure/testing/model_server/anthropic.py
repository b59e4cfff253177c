"""Anthropic's messages: `POST /v1/messages`."""

from __future__ import annotations

from typing import Any, Final

from perdure.testing.model_server.answers import Tool, pieces
from perdure.testing.model_server.conversation import (
    ANY_TOOL,
    Called,
    Conversation,
    Message,
    Result,
    text_of,
    with_tool_names,
)
from perdure.testing.model_server.dialect import Dialect, Event, Malformed, Turn, calls_of, listed

_REASONS: Final = {"end": "end_turn", "length": "max_tokens", "filter": "refusal"}
_ERRORS: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def read(body: dict[str, Any], path: str) -> Conversation:
    """The conversation of a request."""
    del path
    messages = listed(body.get("messages"), "messages")
    if not messages:
        raise Malformed("messages: at least one message is required")
    _refuse_unanswered_calls(messages)
    system = [Message("system", text_of(body["system"]))] if body.get("system") else []
    return Conversation(
        dialect="anthropic",
        model=str(body.get("model", "")),
        messages=with_tool_names([*system, *(_message(each) for each in messages)]),
        tools={each["name"]: each.get("input_schema") for each in body.get("tools") or () if "name" in each},
        body=body,
        stream=bool(body.get("stream")),
        schema=_schema(body),
        must_call=_must_call(body.get("tool_choice") or {}),
    )


def whole(turn: Turn) -> dict[str, Any]:
    """The answer in one piece."""
    content: list[dict[str, Any]] = [{"type": "text", "text": turn.answer.text}] if turn.answer.chunks else []
    content += [_tool_use(turn, at, call, call.broken or call.arguments) for at, call in calls_of(turn.answer)]
    return _frame(turn) | {"content": content, "stop_reason": _reason(turn), "usage": _usage(turn)}


def events(turn: Turn) -> list[Event]:
    """The answer as a stream."""
    begun = _frame(turn) | {"content": [], "stop_reason": None, "usage": _usage(turn) | {"output_tokens": 1}}
    said: list[dict[str, Any]] = [{"type": "message_start", "message": begun}, {"type": "ping"}]
    blocks = 0
    if turn.answer.chunks:
        deltas = [{"type": "text_delta", "text": chunk} for chunk in turn.answer.chunks]
        said += _block(0, {"type": "text", "text": ""}, deltas)
        blocks = 1
    for at, call in calls_of(turn.answer):
        deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in ["", *pieces(call.text)]]
        said += _block(blocks + at, _tool_use(turn, at, call, {}), deltas)
    took = {"output_tokens": turn.usage.output_tokens}
    ended = {"stop_reason": _reason(turn), "stop_sequence": None}
    said += [{"type": "message_delta", "delta": ended, "usage": took}, {"type": "message_stop"}]
    return [Event(each, str(each["type"])) for each in said]


def error(status: int, text: str) -> dict[str, Any]:
    """An error as Anthropic words it."""
    return {"type": "error", "error": {"type": _ERRORS.get(status, "api_error"), "message": text}, "request_id": None}


def _block(index: int, begun: dict[str, Any], deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "index": index, "content_block": begun},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def _frame(turn: Turn) -> dict[str, Any]:
    return {
        "id": turn.made_id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": turn.conversation.model,
        "stop_sequence": None,
    }


def _tool_use(turn: Turn, at: int, call: Tool, arguments: object) -> dict[str, Any]:
    return {"type": "tool_use", "id": turn.call_id("toolu_", at), "name": call.name, "input": arguments}


def _reason(turn: Turn) -> str:
    return "tool_use" if turn.answer.tools and turn.answer.stop == "end" else _REASONS[turn.answer.stop]


def _usage(turn: Turn) -> dict[str, Any]:
    took = turn.usage
    return {
        "input_tokens": took.input_tokens - took.cached_tokens,
        "output_tokens": took.output_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": took.cached_tokens,
        "service_tier": "standard",
    }


def _message(message: dict[str, Any]) -> Message:
    role: Any = message.get("role")
    parts = _parts(message)
    text = "".join(text_of(part) for part in parts if part.get("type") == "text")
    calls = tuple(
        Called(str(part.get("id")), str(part.get("name")), part.get("input"))
        for part in parts
        if part.get("type") == "tool_use"
    )
    results = tuple(
        Result(str(part.get("tool_use_id")), text_of(part.get("content")))
        for part in parts
        if part.get("type") == "tool_result"
    )
    return Message("tool" if results and not text else role, text, calls, results)


def _parts(message: dict[str, Any]) -> list[dict[str, Any]]:
    content = message.get("content")
    return [{"type": "text", "text": content}] if isinstance(content, str) else listed(content, "messages.content")


def _schema(body: dict[str, Any]) -> Any:
    wanted = (body.get("output_config") or {}).get("format") or body.get("output_format") or {}
    return wanted.get("schema", {}) if wanted.get("type") == "json_schema" else None


def _must_call(choice: dict[str, Any]) -> str:
    return str(choice.get("name", "")) if choice.get("type") == "tool" else ANY_TOOL * (choice.get("type") == "any")


def _refuse_unanswered_calls(messages: list[dict[str, Any]]) -> None:
    """A real server refuses a call without its result in the next message."""
    for at, message in enumerate(messages):
        called = {str(part.get("id")) for part in _parts(message) if part.get("type") == "tool_use"}
        after = _parts(messages[at + 1]) if at + 1 < len(messages) else []
        answered = {str(part.get("tool_use_id")) for part in after if part.get("type") == "tool_result"}
        if called - answered:
            missing = ", ".join(sorted(called - answered))
            raise Malformed(
                f"messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {missing}. "
                "Each `tool_use` block must have a corresponding `tool_result` block in the next message."
            )


MESSAGES: Final = Dialect(
    name="anthropic",
    read=read,
    whole=whole,
    events=events,
    error=error,
    error_event=lambda status, text, _: Event(error(status, text), "error"),
)
