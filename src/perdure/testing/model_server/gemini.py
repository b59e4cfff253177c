"""Gemini: `POST /v1beta/models/MODEL:generateContent` and `:streamGenerateContent`."""

from __future__ import annotations

import re
from typing import Any, Final

from perdure.testing.model_server.conversation import (
    ANY_TOOL,
    Called,
    Conversation,
    Message,
    Result,
    canonical,
    text_of,
)
from perdure.testing.model_server.dialect import Dialect, Event, Turn, calls_of, listed

_PATH: Final = re.compile(r"models/([^/:]+):(\w+)$")
_REASONS: Final = {"end": "STOP", "length": "MAX_TOKENS", "filter": "SAFETY"}
_STATUSES: Final = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}


def read(body: dict[str, Any], path: str) -> Conversation:
    """The conversation of a request; the model and whether to stream stand in the path."""
    model, verb = named(path)
    told = body.get("systemInstruction")
    system = [Message("system", text_of(told.get("parts")))] if isinstance(told, dict) else []
    contents = listed(body.get("contents"), "contents")
    settings = body.get("generationConfig") or {}
    return Conversation(
        dialect="gemini",
        model=model,
        messages=(*system, *(_message(each) for each in contents)),
        tools={each["name"]: _parameters(each) for each in _declared(body)},
        body=body,
        stream=verb == "streamGenerateContent",
        schema=_schema(settings),
        must_call=_must_call((body.get("toolConfig") or {}).get("functionCallingConfig") or {}),
    )


def named(path: str) -> tuple[str, str]:
    """The model and the verb of a path."""
    found = _PATH.search(path)
    return (found[1], found[2]) if found else ("", "")


def whole(turn: Turn) -> dict[str, Any]:
    """The answer in one piece."""
    text = [{"text": turn.answer.text}] if turn.answer.chunks else []
    return _frame(turn, [*text, *_calls(turn)], is_last=True)


def events(turn: Turn) -> list[Event]:
    """The answer as a stream: nothing but its end says that it has ended."""
    parts: list[list[dict[str, Any]]] = [[{"text": chunk}] for chunk in turn.answer.chunks]
    parts += [[call] for call in _calls(turn)]
    parts = parts or [[{"text": ""}]]
    return [Event(_frame(turn, part, is_last=at == len(parts))) for at, part in enumerate(parts, 1)]


def error(status: int, text: str) -> dict[str, Any]:
    """An error as Google words it."""
    return {"error": {"code": status, "message": text, "status": _STATUSES.get(status, "INTERNAL")}}


def _frame(turn: Turn, parts: list[dict[str, Any]], *, is_last: bool) -> dict[str, Any]:
    candidate: dict[str, Any] = {"content": {"parts": parts, "role": "model"}, "index": 0}
    if is_last:
        candidate["finishReason"] = _REASONS[turn.answer.stop]
    took = turn.usage
    return {
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": took.input_tokens,
            "candidatesTokenCount": took.output_tokens,
            "totalTokenCount": took.input_tokens + took.output_tokens,
            "cachedContentTokenCount": took.cached_tokens,
        },
        "modelVersion": turn.conversation.model,
        "responseId": turn.made_id(""),
    }


def _calls(turn: Turn) -> list[dict[str, Any]]:
    return [
        {"functionCall": {"id": turn.call_id("", at), "name": call.name, "args": call.broken or call.arguments}}
        for at, call in calls_of(turn.answer)
    ]


def _message(content: dict[str, Any]) -> Message:
    parts = listed(content.get("parts") or [], "contents.parts")
    text = "".join(part["text"] for part in parts if isinstance(part.get("text"), str) and not part.get("thought"))
    calls = tuple(_called(part["functionCall"]) for part in parts if "functionCall" in part)
    results = tuple(_result(part["functionResponse"]) for part in parts if "functionResponse" in part)
    if content.get("role") == "model":
        return Message("assistant", text, calls)
    return Message("tool" if results and not text else "user", text, (), results)


def _called(call: dict[str, Any]) -> Called:
    return Called(str(call.get("id") or ""), str(call.get("name")), call.get("args"))


def _result(given: dict[str, Any]) -> Result:
    response = given.get("response")
    known = response.get("result", response) if isinstance(response, dict) else response
    text = known if isinstance(known, str) else canonical(known)
    return Result(str(given.get("id") or ""), text, str(given.get("name")))


def _declared(body: dict[str, Any]) -> list[dict[str, Any]]:
    offers = listed(body.get("tools") or [], "tools")
    return [each for offer in offers for each in offer.get("functionDeclarations") or ()]


def _parameters(declared: dict[str, Any]) -> Any:
    return declared.get("parametersJsonSchema") or declared.get("parameters")


def _schema(settings: dict[str, Any]) -> Any:
    if settings.get("responseMimeType") != "application/json":
        return None
    return settings.get("responseJsonSchema") or settings.get("responseSchema") or {}


def _must_call(config: dict[str, Any]) -> str:
    if config.get("mode") != "ANY":
        return ""
    allowed = config.get("allowedFunctionNames") or [ANY_TOOL]
    return str(allowed[0])


GEMINI: Final = Dialect(
    name="gemini",
    read=read,
    whole=whole,
    events=events,
    error=error,
    error_event=lambda status, text, _: Event(error(status, text)),
)
