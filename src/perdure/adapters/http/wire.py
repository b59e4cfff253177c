"""Tool calls on the wire: what an answer asks for, and what a request brings back, in one form for every dialect.

Only tools that the script performs count: those that a provider performs on its own servers are part of its answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from perdure.adapters.http.answers import messages_in
from perdure.adapters.http.canonical import Asked
from perdure.adapters.http.endpoints import Dialect

_UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_value: Final = msgspec.json.Decoder().decode


class ToolCall(Struct, frozen=True):
    """A call of a tool that the model asks for."""

    id: str
    """Empty where the dialect has none."""
    name: str
    arguments: dict[str, Any] | None
    """None where they are no JSON object."""
    raw: str
    """The arguments as they came."""


class ToolResult(Struct, frozen=True):
    """What a tool gave, as the script tells the model."""

    id: str
    """The id of its call; empty where the dialect has none."""
    name: str
    """The name of the tool; empty where neither the result nor the call in front of it says."""
    text: str = ""


def asked_for(dialect: Dialect, body: bytes, *, is_stream: bool) -> list[ToolCall]:
    """The tool calls that an answer asks for, in their order."""
    if not (is_stream or _is_about_tools(body)):
        return []
    return [call for message in messages_in(dialect, body, is_stream=is_stream) for call in _calls(message)]


def results_in(asked: Asked, *, since: int | None = None) -> list[ToolResult]:
    """The results that a request carries, from this message on; those not seen before where none is named."""
    first = asked.known if since is None else since
    found = [each for message in _read(asked.messages[first:]) for each in _results(message)]
    unnamed = {each.id for each in found if not each.name and each.id}
    names = _names(asked, unnamed) if unnamed else {}
    return [ToolResult(each.id, each.name or names.get(each.id, ""), each.text) for each in found]


def orphans(asked: Asked) -> list[ToolCall]:
    """The tool calls in the conversation that have no result behind them: a provider refuses such a request."""
    waiting: dict[str, ToolCall] = {}
    nameless: list[ToolCall] = []
    for message in _read(asked.messages):
        given = list(_results(message))
        for result in given:
            waiting.pop(result.id, None)
        answered = Counter(result.name for result in given)
        nameless = [call for call in nameless if not _takes(answered, call.name)]
        for call in _calls(message):
            if call.id:
                waiting[call.id] = call
            else:
                nameless.append(call)
    return [*waiting.values(), *nameless]


def made(call_id: str, name: str, arguments: Any) -> ToolCall:
    """A tool call from its parts; arguments may be an object or the text of one."""
    if isinstance(arguments, str):
        value = _decoded(arguments.encode(errors="surrogatepass")) if arguments.strip() else {}
        return ToolCall(call_id, name, value if isinstance(value, dict) else None, arguments)
    given = {} if arguments is None else arguments
    raw = msgspec.json.encode(given).decode()
    return ToolCall(call_id, name, given if isinstance(given, dict) else None, raw)


def _takes(answered: Counter[str], name: str) -> bool:
    answered[name] -= 1
    return answered[name] >= 0


def _names(asked: Asked, wanted: set[str]) -> dict[str, str]:
    """The names of the tools whose calls have these ids; looked for from the end, where they usually are."""
    found: dict[str, str] = {}
    for message in _read(reversed(asked.messages)):
        found |= {call.id: call.name for call in _calls(message) if call.id in wanted and call.id not in found}
        if len(found) == len(wanted):
            break
    return found


def _read(messages: Iterable[Raw]) -> Iterator[dict[str, Any]]:
    for raw in messages:
        content = bytes(raw)
        if _is_about_tools(content) and isinstance(value := _decoded(content), dict):
            yield value


def _is_about_tools(content: bytes) -> bool:
    """One without any of these words has nothing to do with tools, and is not read."""
    return b"tool" in content or b"_call" in content or b"function" in content


def _calls(message: dict[str, Any]) -> Iterator[ToolCall]:
    """The calls in one message of any dialect."""
    if message.get("type") in _CALLS:
        yield made(_text(message.get("call_id") or message.get("id")), _name_of(message), _arguments(message))
    for call in _objects(message.get("tool_calls")):
        function = call.get("function") or call.get("custom")
        if isinstance(function, dict):
            yield made(_text(call.get("id")), _text(function.get("name")), _arguments(function))
    for part in (*_objects(message.get("content")), *_objects(message.get("parts"))):
        if part.get("type") == "tool_use":
            yield made(_text(part.get("id")), _text(part.get("name")), part.get("input"))
        elif isinstance(wanted := part.get("functionCall") or part.get("function_call"), dict):
            yield made(_text(wanted.get("id")), _text(wanted.get("name")), wanted.get("args"))
        elif isinstance(wanted := part.get("toolUse"), dict):
            yield made(_text(wanted.get("toolUseId")), _text(wanted.get("name")), wanted.get("input"))


def _results(message: dict[str, Any]) -> Iterator[ToolResult]:
    """The results in one message of any dialect."""
    kind = message.get("type")
    if isinstance(kind, str) and kind in _OUTPUTS:
        yield ToolResult(_text(message.get("call_id")), "", _said(message.get("output")))
    if message.get("role") in ("tool", "function"):
        yield ToolResult(_text(message.get("tool_call_id")), _text(message.get("name")), _said(message.get("content")))
    for part in (*_objects(message.get("content")), *_objects(message.get("parts"))):
        if part.get("type") == "tool_result":
            yield ToolResult(_text(part.get("tool_use_id")), "", _said(part.get("content")))
        elif isinstance(given := part.get("functionResponse") or part.get("function_response"), dict):
            yield ToolResult(_text(given.get("id")), _text(given.get("name")), _said(given.get("response")))
        elif isinstance(given := part.get("toolResult"), dict):
            yield ToolResult(_text(given.get("toolUseId")), "", _said(given.get("content")))


_CALLS: Final = {
    "function_call": "",
    "custom_tool_call": "",
    "computer_call": "computer",
    "local_shell_call": "local_shell",
    "shell_call": "shell",
    "apply_patch_call": "apply_patch",
}
"""The items of a response that the script must perform; the name of the tool where the item has none."""

_OUTPUTS: Final = frozenset(f"{each}_output" for each in _CALLS)


def _name_of(item: dict[str, Any]) -> str:
    return _text(item.get("name")) or _CALLS.get(str(item.get("type")), "")


def _arguments(item: dict[str, Any]) -> Any:
    return next((item[name] for name in ("arguments", "input", "action", "operation") if name in item), None)


def _objects(value: Any) -> Iterator[dict[str, Any]]:
    return (each for each in value if isinstance(each, dict)) if isinstance(value, list) else iter(())


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _said(value: Any) -> str:
    if isinstance(value, str):
        return value
    texts = [_text(part.get("text")) for part in _objects(value)]
    return "".join(texts) or ("" if value is None else msgspec.json.encode(value).decode())


def _decoded(content: bytes) -> Any:
    try:
        return _value(content)
    except _UNREADABLE:
        return None
