"""Answers of models as the messages that a whole answer has, also where they came as a stream.

Of a stream only what tools are called with is put together: texts are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from perdure.adapters.http.endpoints import Dialect
from perdure.adapters.http.stream import events_in

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_value: Final = msgspec.json.Decoder().decode

Object = dict[str, Any]


def messages_in(dialect: Dialect, body: bytes, *, is_stream: bool) -> list[Object]:
    """What the model said, as messages or items of its dialect."""
    whole = whole_answer(body)
    if whole is not None or not is_stream:
        return list(_messages(dialect, whole or {}))
    events = [value for _, value in events_in(body)]
    match dialect:
        case Dialect.OPENAI_CHAT | Dialect.OPENAI_COMPLETIONS:
            return _chat(events)
        case Dialect.OPENAI_RESPONSES:
            return _responses(events)
        case Dialect.GEMINI:
            return [message for event in events for message in _messages(dialect, event)]
        case _:
            return _blocks(events)


def whole_answer(body: bytes) -> Object | None:
    """An answer in one piece; None where it is none."""
    if body.lstrip()[:1] != b"{":
        return None
    try:
        value = _value(body)
    except _UNREADABLE:
        return None
    return value if isinstance(value, dict) else None


def _messages(dialect: Dialect, answer: Object) -> Iterator[Object]:
    match dialect:
        case Dialect.OPENAI_CHAT:
            yield from (_legacy(_object(choice.get("message"))) for choice in objects(answer.get("choices")))
        case Dialect.OPENAI_RESPONSES:
            yield from objects(answer.get("output"))
        case Dialect.GEMINI:
            yield from (_object(each.get("content")) for each in objects(answer.get("candidates")))
        case Dialect.BEDROCK:
            yield _object(_object(answer.get("output")).get("message"))
        case Dialect.ANTHROPIC | Dialect.BEDROCK_INVOKE:
            yield from (_legacy(_object(choice.get("message"))) for choice in objects(answer.get("choices")))
            yield answer
        case _:
            return


def _legacy(message: Object) -> Object:
    """A message with the one call of the oldest interface where the others are."""
    call = message.get("function_call")
    return message | {"tool_calls": [{"id": "", "function": call}]} if isinstance(call, dict) else message


def _chat(events: list[Object]) -> list[Object]:
    """The calls of each choice, put together from their pieces."""
    choices: dict[int, list[Object]] = {}
    for event in events:
        for choice in objects(event.get("choices")):
            calls = choices.setdefault(_index(choice), [])
            delta = _legacy(_object(choice.get("delta") or choice.get("message")))
            for piece in objects(delta.get("tool_calls")):
                _add(calls, piece)
    return [{"tool_calls": calls} for _, calls in sorted(choices.items())]


def _add(calls: list[Object], piece: Object) -> None:
    """A piece belongs to the call with its index, unless it begins one: some servers give all calls the same index."""
    index = piece.get("index", len(calls) - 1 if not piece.get("id") else None)
    call = next((each for each in reversed(calls) if each["index"] == index), None)
    if call is None or (piece.get("id") and call["id"] and piece["id"] != call["id"]):
        call = {"id": "", "index": len(calls) if index is None else index, "function": {"name": "", "arguments": ""}}
        calls.append(call)
    function = _object(piece.get("function") or piece.get("custom"))
    call["id"] = call["id"] or piece.get("id") or ""
    made = call["function"]
    made["name"] = made["name"] or function.get("name") or ""
    arguments = function.get("arguments", function.get("input"))
    if isinstance(arguments, dict):
        made["arguments"] = arguments
    elif isinstance(arguments, str) and isinstance(made["arguments"], str):
        made["arguments"] += arguments


def _responses(events: list[Object]) -> list[Object]:
    """The items of the last event, or those that were done before where that has none."""
    done: list[Object] = []
    for event in events:
        if event.get("type") == "response.output_item.done":
            done.append(_object(event.get("item")))
        whole = list(objects(_object(event.get("response")).get("output")))
        if whole:
            done = whole
    return done


def _blocks(events: list[Object]) -> list[Object]:
    """The calls in the blocks of Anthropic and Amazon, put together from their pieces."""
    blocks: dict[Any, Object] = {}
    texts: dict[Any, str] = {}
    for event in events:
        place = event.get("index", event.get("contentBlockIndex"))
        begun = event.get("content_block") or _object(event.get("start")).get("toolUse")
        if isinstance(begun, dict):
            blocks[place] = _as_tool_use(begun)
        delta = _object(event.get("delta"))
        piece = delta.get("partial_json", _object(delta.get("toolUse")).get("input"))
        if isinstance(piece, str):
            texts[place] = texts.get(place, "") + piece
    made = [block | ({"input": texts[place]} if texts.get(place) else {}) for place, block in blocks.items()]
    return [{"content": made}]


def _as_tool_use(begun: Object) -> Object:
    if "toolUseId" not in begun:
        return begun
    return {"type": "tool_use", "id": begun["toolUseId"], "name": begun.get("name"), "input": begun.get("input", {})}


def objects(value: Any) -> Iterator[Object]:
    """The objects in a list; none where it is no list."""
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


def _object(value: Any) -> Object:
    return value if isinstance(value, dict) else {}


def _index(choice: Object) -> int:
    index = choice.get("index", 0)
    return index if isinstance(index, int) else 0
