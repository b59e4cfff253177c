"""What makes a request of Pydantic AI the same one again: its key in the run, and the content that must be equal."""

from __future__ import annotations

from typing import Any, Final

from pydantic_ai.durable_exec import (
    EventStreamHandlerId,
    ModelRequestId,
    ToolsetCallToolId,
    ToolsetValidateToolArgumentsId,
)
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_ai.tools import RunContext
from pydantic_core import to_jsonable_python

import perdure
from perdure.adapters import calls

_OF_A_MESSAGE: Final = frozenset({"timestamp", "run_id", "conversation_id"})
_OF_A_PART: Final = frozenset({"timestamp"})
"""What Pydantic AI stamps anew whenever it makes a message; none of it is sent to a model."""

_MINE: Final = "perdure:"


def new_run_id(agent: str) -> str:
    """The id of a run of the agent that begins here: the same one whenever this run of ours is replayed."""
    return f"{_MINE}{perdure.current().run_id}:{calls.new_place(agent)}"


def place_of(context: RunContext[Any] | None, *, agent: str) -> str:
    """Which run of the agent this is, in words that no process makes anew.

    An id that the caller gave may be another one each time; then only the agent and the count tell requests apart.
    """
    run_id = (context.run_id if context is not None else None) or ""
    return run_id.split(":", 2)[2] if run_id.startswith(_MINE) else agent


def context_in(cache_key: tuple[object, ...]) -> RunContext[Any] | None:
    """The context of the run among what identifies an operation."""
    return next((each for each in cache_key if isinstance(each, RunContext)), None)


def key_text(operation_id: object, name: str, cache_key: tuple[object, ...], *, agent: str) -> str:
    """The beginning of a key: equal operations are told apart by how often they have come up."""
    context = context_in(cache_key)
    place = place_of(context, agent=agent)
    match operation_id:
        case ToolsetCallToolId():
            return f"{place}/{context.tool_call_id if context is not None else ''}"
        case ToolsetValidateToolArgumentsId():
            return f"{place}/{context.tool_call_id if context is not None else ''}/arguments"
        case EventStreamHandlerId():
            event: Any = cache_key[0]
            part = getattr(event, "part", None) or getattr(event, "result", None)
            return f"{place}/event/{event.event_kind}/{getattr(part, 'tool_call_id', '')}"
        case _:
            return f"{place}/{name}"


def arguments_of(operation_id: object, cache_key: tuple[object, ...]) -> dict[str, Any]:
    """What must be equal for a recorded answer to be the answer: of a request, all that a model can see."""
    match operation_id:
        case ToolsetCallToolId() | ToolsetValidateToolArgumentsId():
            arguments: dict[str, Any] = plain(cache_key[1])
            return arguments
        case ModelRequestId():
            model_id, messages, settings, parameters, *_ = cache_key
            return {
                "messages": canonical(messages),
                "model": model_id,
                "settings": plain(settings),
                "parameters": plain(parameters),
            }
        case _:
            return {}


def canonical(messages: Any) -> list[Any]:
    """Messages as a model sees them."""
    dumped: list[dict[str, Any]] = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    for message in dumped:
        _drop(message, _OF_A_MESSAGE)
        for part in message.get("parts", ()):
            _drop(part, _OF_A_PART)
    return dumped


def plain(value: object) -> Any:
    """As JSON, whatever it is; objects that have no such form by their type."""
    return to_jsonable_python(value, fallback=lambda other: f"<{type(other).__qualname__}>", inf_nan_mode="strings")


def _drop(mapping: dict[str, Any], names: frozenset[str]) -> None:
    for name in names & mapping.keys():
        del mapping[name]
