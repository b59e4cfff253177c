"""OpenAI's responses: `POST /v1/responses`."""

from __future__ import annotations

from typing import Any, Final

from perdure.testing.model_server.answers import Tool, pieces
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
from perdure.testing.model_server.dialect import Dialect, Event, Malformed, Turn, calls_of, listed
from perdure.testing.model_server.openai_chat import error

_ECHOED: Final[dict[str, Any]] = {
    "instructions": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}
"""What a response repeats of its request, and what it says where the request was silent."""


def read(body: dict[str, Any], path: str) -> Conversation:
    """The conversation of a request whose earlier responses, if it builds on any, are in its input."""
    del path
    if body.get("conversation"):
        raise Malformed("This model server keeps no conversations; send the input, or a previous_response_id.")
    items = input_items(body)
    _refuse_orphans(items)
    instructions = [Message("system", body["instructions"])] if body.get("instructions") else []
    return Conversation(
        dialect="openai.responses",
        model=str(body.get("model", "")),
        messages=with_tool_names([*instructions, *_messages(items)]),
        tools={each["name"]: each.get("parameters") for each in body.get("tools") or () if "name" in each},
        body=body,
        stream=bool(body.get("stream")),
        schema=_schema((body.get("text") or {}).get("format") or {}),
        must_call=_must_call(body.get("tool_choice")),
    )


def input_items(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The input of a request as a list."""
    given = body.get("input", [])
    return [{"role": "user", "content": given}] if isinstance(given, str) else listed(given, "input")


def whole(turn: Turn) -> dict[str, Any]:
    """The answer in one piece."""
    stop = turn.answer.stop
    reason = {"length": "max_output_tokens", "filter": "content_filter"}.get(stop)
    return _frame(turn) | {
        "status": "completed" if stop == "end" else "incomplete",
        "incomplete_details": None if reason is None else {"reason": reason},
        "output": output_items(turn),
        "usage": _usage(turn),
    }


def output_items(turn: Turn) -> list[dict[str, Any]]:
    """What the answer adds to the conversation."""
    said = [_spoken(turn, _part(turn.answer.text))] if turn.answer.chunks or not turn.answer.tools else []
    return said + [_function_call(turn, at, call, call.text) for at, call in calls_of(turn.answer)]


def events(turn: Turn) -> list[Event]:
    """The answer as a stream."""
    begun = _frame(turn) | {"status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    said: list[dict[str, Any]] = [
        {"type": "response.created", "response": begun},
        {"type": "response.in_progress", "response": begun},
    ]
    speaks = bool(turn.answer.chunks) or not turn.answer.tools
    if speaks:
        said += _speaking(turn)
    for at, call in calls_of(turn.answer):
        said += _calling(turn, at, call, at + int(speaks))
    ended = whole(turn)
    said.append({"type": f"response.{ended['status']}", "response": ended})
    return [Event(each | {"sequence_number": number}, str(each["type"])) for number, each in enumerate(said)]


def error_event(status: int, text: str, number: int) -> Event:
    """An error in the middle of a stream."""
    code = "rate_limit_exceeded" if status == 429 else "server_error"  # noqa: PLR2004 - a status of HTTP
    return Event({"type": "error", "code": code, "message": text, "param": None, "sequence_number": number}, "error")


def _speaking(turn: Turn) -> list[dict[str, Any]]:
    at = {"item_id": turn.made_id("msg_"), "output_index": 0, "content_index": 0}
    text, part = turn.answer.text, _part(turn.answer.text)
    item = _spoken(turn, part)
    return [
        {
            "type": "response.output_item.added",
            "output_index": 0,
            "item": item | {"status": "in_progress", "content": []},
        },
        {"type": "response.content_part.added", **at, "part": _part("")},
        *({"type": "response.output_text.delta", **at, "delta": each, "logprobs": []} for each in turn.answer.chunks),
        {"type": "response.output_text.done", **at, "text": text, "logprobs": []},
        {"type": "response.content_part.done", **at, "part": part},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
    ]


def _calling(turn: Turn, index: int, call: Tool, place: int) -> list[dict[str, Any]]:
    at = {"item_id": turn.made_id("fc_", index), "output_index": place}
    done = {"type": "response.function_call_arguments.done", **at, "name": call.name, "arguments": call.text}
    begun = _function_call(turn, index, call, "") | {"status": "in_progress"}
    return [
        {"type": "response.output_item.added", "output_index": place, "item": begun},
        *({"type": "response.function_call_arguments.delta", **at, "delta": piece} for piece in pieces(call.text)),
        done,
        {
            "type": "response.output_item.done",
            "output_index": place,
            "item": _function_call(turn, index, call, call.text),
        },
    ]


def _frame(turn: Turn) -> dict[str, Any]:
    body = turn.conversation.body
    repeated = {name: silent if body.get(name) is None else body[name] for name, silent in _ECHOED.items()}
    return {
        "id": turn.made_id("resp_"),
        "object": "response",
        "created_at": turn.created_at,
        "model": turn.conversation.model,
        "error": None,
        **repeated,
    }


def _spoken(turn: Turn, part: dict[str, Any]) -> dict[str, Any]:
    shared = {"id": turn.made_id("msg_"), "type": "message", "status": "completed", "role": "assistant"}
    return shared | {"content": [part]}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _function_call(turn: Turn, at: int, call: Tool, arguments: str) -> dict[str, Any]:
    return {
        "id": turn.made_id("fc_", at),
        "type": "function_call",
        "status": "completed",
        "call_id": turn.call_id("call_", at),
        "name": call.name,
        "arguments": arguments,
    }


def _usage(turn: Turn) -> dict[str, Any]:
    took = turn.usage
    return {
        "input_tokens": took.input_tokens,
        "input_tokens_details": {"cached_tokens": took.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": took.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": took.input_tokens + took.output_tokens,
    }


def _messages(items: list[dict[str, Any]]) -> list[Message]:
    """The items as messages; what the model said in one turn arrives as several items and is one message."""
    found: list[Message] = []
    for item in items:
        message = _message(item)
        if message is None:
            continue
        if found and message.role == found[-1].role == "assistant":
            last = found.pop()
            message = Message("assistant", last.text + message.text, last.calls + message.calls)
        found.append(message)
    return found


def _message(item: dict[str, Any]) -> Message | None:
    kind = item.get("type", "message")
    if kind == "function_call":
        called = Called(str(item.get("call_id")), str(item.get("name")), arguments_of(item.get("arguments")))
        return Message("assistant", calls=(called,))
    if kind == "function_call_output":
        return Message("tool", results=(Result(str(item.get("call_id")), text_of(item.get("output"))),))
    if kind != "message":
        return None
    role = item.get("role")
    text = text_of(item.get("content"))
    return Message("assistant" if role == "assistant" else "user" if role == "user" else "system", text)


def _schema(wanted: dict[str, Any]) -> Any:
    if wanted.get("type") == "json_schema":
        return wanted.get("schema", {})
    return {} if wanted.get("type") == "json_object" else None


def _must_call(choice: object) -> str:
    if isinstance(choice, dict):
        return str(choice.get("name", ANY_TOOL))
    return ANY_TOOL if choice == "required" else ""


def _refuse_orphans(items: list[dict[str, Any]]) -> None:
    """A real server refuses a call without its output, and an output without its call."""
    called = [str(item.get("call_id")) for item in items if item.get("type") == "function_call"]
    given = [str(item.get("call_id")) for item in items if item.get("type") == "function_call_output"]
    for call_id in called:
        if call_id not in given:
            raise Malformed(f"No tool output found for function call {call_id}.")
    for call_id in given:
        if call_id not in called:
            raise Malformed(f"No tool call found for function call output with call_id {call_id}.")


RESPONSES: Final = Dialect(
    name="openai.responses", read=read, whole=whole, events=events, error=error, error_event=error_event
)
