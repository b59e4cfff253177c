"""OpenAI's chat completions: `POST /v1/chat/completions`."""

from __future__ import annotations

from typing import Any, Final

from perdure.testing.model_server.answers import pieces
from perdure.testing.model_server.conversation import (
    ANY_TOOL,
    Called,
    Conversation,
    Message,
    Result,
    arguments_of,
    text_of,
    with_tool_names,
)
from perdure.testing.model_server.dialect import DONE, Dialect, Event, Malformed, Turn, calls_of, listed

_ROLES: Final = {"developer": "system", "system": "system", "assistant": "assistant", "tool": "tool"}
_REASONS: Final = {"end": "stop", "length": "length", "filter": "content_filter"}
_ERRORS: Final = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}


def read(body: dict[str, Any], path: str) -> Conversation:
    """The conversation of a request."""
    del path
    messages = listed(body.get("messages"), "messages")
    if not messages:
        raise Malformed("messages must not be empty.")
    _refuse_unanswered_calls(messages)
    return Conversation(
        dialect="openai.chat",
        model=str(body.get("model", "")),
        messages=with_tool_names([_message(each) for each in messages]),
        tools={each["function"]["name"]: each["function"].get("parameters") for each in _functions(body)},
        body=body,
        stream=bool(body.get("stream")),
        schema=_schema(body.get("response_format")),
        must_call=_must_call(body.get("tool_choice")),
    )


def whole(turn: Turn) -> dict[str, Any]:
    """The answer in one piece."""
    message: dict[str, Any] = {"role": "assistant", "content": turn.answer.text or None, "refusal": None}
    if turn.answer.tools:
        message["tool_calls"] = [
            {
                "id": turn.call_id("call_", at),
                "type": "function",
                "function": {"name": call.name, "arguments": call.text},
            }
            for at, call in calls_of(turn.answer)
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _reason(turn)}
    return _frame(turn, "chat.completion") | {"choices": [choice], "usage": usage(turn)}


def events(turn: Turn) -> list[Event]:
    """The answer as a stream."""
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if turn.answer.tools else ""}]
    deltas += [{"content": chunk} for chunk in turn.answer.chunks]
    for at, call in calls_of(turn.answer):
        opened = {"id": turn.call_id("call_", at), "type": "function", "function": {"name": call.name, "arguments": ""}}
        deltas.append({"tool_calls": [{"index": at, **opened}]})
        deltas += [{"tool_calls": [{"index": at, "function": {"arguments": piece}}]} for piece in pieces(call.text)]
    asks_usage = bool((turn.conversation.body.get("stream_options") or {}).get("include_usage"))
    frame = _frame(turn, "chat.completion.chunk") | ({"usage": None} if asks_usage else {})
    choices: list[dict[str, Any]] = [
        {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None} for delta in deltas
    ]
    choices.append({"index": 0, "delta": {}, "logprobs": None, "finish_reason": _reason(turn)})
    said = [Event(frame | {"choices": [choice]}) for choice in choices]
    if asks_usage:
        said.append(Event(frame | {"choices": [], "usage": usage(turn)}))
    return [*said, Event(DONE)]


def error(status: int, text: str) -> dict[str, Any]:
    """An error as OpenAI words it."""
    return {"error": {"message": text, "type": _ERRORS.get(status, "server_error"), "param": None, "code": None}}


def usage(turn: Turn) -> dict[str, Any]:
    """What the answer took."""
    took = turn.usage
    return {
        "prompt_tokens": took.input_tokens,
        "completion_tokens": took.output_tokens,
        "total_tokens": took.input_tokens + took.output_tokens,
        "prompt_tokens_details": {"cached_tokens": took.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": 0},
    }


def _frame(turn: Turn, kind: str) -> dict[str, Any]:
    return {
        "id": turn.made_id("chatcmpl-"),
        "object": kind,
        "created": turn.created_at,
        "model": turn.conversation.model,
        "system_fingerprint": "fp_perdure",
    }


def _reason(turn: Turn) -> str:
    return "tool_calls" if turn.answer.tools and turn.answer.stop == "end" else _REASONS[turn.answer.stop]


def _message(message: dict[str, Any]) -> Message:
    role: Any = _ROLES.get(str(message.get("role")), "user")
    text = text_of(message.get("content"))
    if role == "tool":
        return Message("tool", results=(Result(str(message.get("tool_call_id", "")), text),))
    return Message(role, text, calls=tuple(_called(call) for call in message.get("tool_calls") or ()))


def _called(call: dict[str, Any]) -> Called:
    function = call.get("function") or {}
    return Called(str(call.get("id", "")), str(function.get("name", "")), arguments_of(function.get("arguments")))


def _functions(body: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in body.get("tools") or () if each.get("type") == "function"]


def _schema(response_format: dict[str, Any] | None) -> Any:
    kind = (response_format or {}).get("type")
    if kind == "json_schema":
        return (response_format or {})["json_schema"].get("schema", {})
    return {} if kind == "json_object" else None


def _must_call(choice: object) -> str:
    if isinstance(choice, dict):
        return str((choice.get("function") or choice).get("name", ANY_TOOL))
    return ANY_TOOL if choice == "required" else ""


def _refuse_unanswered_calls(messages: list[dict[str, Any]]) -> None:
    """A real server refuses a call without its result, and so every later turn of a session that lost one."""
    for at, message in enumerate(messages):
        called = {str(call.get("id")) for call in message.get("tool_calls") or ()}
        answered = set()
        for later in messages[at + 1 :]:
            if later.get("role") != "tool":
                break
            answered.add(str(later.get("tool_call_id")))
        if called - answered:
            missing = ", ".join(sorted(called - answered))
            raise Malformed(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {missing}"
            )


CHAT: Final = Dialect(
    name="openai.chat",
    read=read,
    whole=whole,
    events=events,
    error=error,
    error_event=lambda status, text, _: Event(error(status, text)),
)
