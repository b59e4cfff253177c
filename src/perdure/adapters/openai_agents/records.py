"""Answers and streams of a model as plain data, and back to what the SDK works with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from functools import cache
from typing import Any, Final

from agents.items import ModelResponse, TResponseOutputItem, TResponseStreamEvent
from agents.usage import Usage
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_jsonable_python

TERMINAL: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})
"""The events that end a stream: what they say must be on record before anybody acts on it."""

_VOLATILE: Final = frozenset({"prompt_cache_key", "metadata", "user", "safety_identifier"})
_PIECE: Final = "delta"


@cache
def _items() -> TypeAdapter[Any]:
    return TypeAdapter(TResponseOutputItem)


@cache
def _events() -> TypeAdapter[Any]:
    return TypeAdapter(TResponseStreamEvent)


@cache
def _usage() -> TypeAdapter[Usage]:
    return TypeAdapter(Usage)


def dump_response(response: ModelResponse) -> dict[str, Any]:
    """An answer as it is recorded."""
    return {
        "output": [_dumped(item) for item in response.output],
        "usage": _usage().dump_python(response.usage, mode="json"),
        "response_id": response.response_id,
        "request_id": getattr(response, "request_id", None),
        "raw_usage": getattr(response, "raw_usage", None),
    }


def load_response(recorded: Mapping[str, Any]) -> ModelResponse:
    """An answer from its record."""
    more = {name: recorded[name] for name in ("request_id", "raw_usage") if recorded.get(name) is not None}
    return ModelResponse(
        output=[_loaded(item) for item in recorded["output"]],
        usage=_usage().validate_python(recorded["usage"]),
        response_id=recorded["response_id"],
        **more,
    )


def dump_events(events: Iterable[Any]) -> list[dict[str, Any]]:
    """A stream as it is recorded: pieces of the same text that follow each other are one piece."""
    dumped: list[dict[str, Any]] = []
    for each in map(_dumped, events):
        last = dumped[-1] if dumped else None
        if last is not None and _are_pieces_of_one(last, each):
            last[_PIECE] += each[_PIECE]
        else:
            dumped.append(each)
    return dumped


def load_event(recorded: Mapping[str, Any]) -> Any:
    """An event from its record."""
    return _events().validate_python(dict(recorded))


def call_ids(output: Iterable[Any]) -> list[str]:
    """The tool calls among the items of an answer, each as the SDK or as a record has it."""
    found = [each.get("call_id") if isinstance(each, dict) else getattr(each, "call_id", None) for each in output]
    return [each for each in found if isinstance(each, str)]


def visible(*, tools: Iterable[Any], handoffs: Iterable[Any], settings: Any, **rest: Any) -> dict[str, Any]:
    """All that a model can see of a request, without what is made anew each time and says nothing to it."""
    said = _without(plain(settings), _VOLATILE)
    if isinstance(said, dict):
        said = {name: _without(value, _VOLATILE) for name, value in said.items()}
    return {
        **{name: plain(value) for name, value in rest.items()},
        "settings": said,
        "tools": [_tool(tool) for tool in tools],
        "handoffs": [[each.tool_name, each.tool_description, plain(each.input_json_schema)] for each in handoffs],
    }


def plain(value: object) -> Any:
    """As JSON, whatever it is; objects that have no such form by their type."""
    return to_jsonable_python(value, fallback=lambda other: f"<{type(other).__qualname__}>", inf_nan_mode="strings")


def _tool(tool: Any) -> Any:
    schema = getattr(tool, "params_json_schema", None)
    if schema is not None:
        return [tool.name, tool.description, plain(schema)]
    return plain(asdict(tool)) if is_dataclass(tool) and not isinstance(tool, type) and _is_hosted(tool) else tool.name


def _is_hosted(tool: Any) -> bool:
    return not any(callable(value) for value in vars(tool).values())


def _dumped(item: Any) -> dict[str, Any]:
    if isinstance(item, BaseModel):
        return item.model_dump(mode="json", exclude_unset=True, warnings=False)
    dumped: dict[str, Any] = plain(item)
    return dumped


def _loaded(item: Any) -> Any:
    return _items().validate_python(item)


def _without(value: Any, names: frozenset[str]) -> Any:
    return {name: each for name, each in value.items() if name not in names} if isinstance(value, dict) else value


def _are_pieces_of_one(last: dict[str, Any], next_one: dict[str, Any]) -> bool:
    if not (isinstance(last.get(_PIECE), str) and isinstance(next_one.get(_PIECE), str)):
        return False
    apart = frozenset({_PIECE, "sequence_number", "logprobs", "obfuscation"})
    return bool(_without(last, apart) == _without(next_one, apart))
