"""Answers for a model without a script: made from the conversation alone, so the same one is answered the same."""

from __future__ import annotations

from typing import Any, Final

from perdure.testing.model_server.answers import Answer, Tool, answer
from perdure.testing.model_server.conversation import ANY_TOOL, Conversation, canonical

_DEEPEST: Final = 8
"""A schema that refers to itself is followed so far."""


def plain(conversation: Conversation) -> Answer:
    """Say what was said or found last; fit the schema or call the tool that is asked for."""
    if conversation.must_call and conversation.tools and not conversation.results:
        name = conversation.must_call
        return answer("", _call(conversation, next(iter(conversation.tools)) if name == ANY_TOOL else name))
    if conversation.schema is not None:
        return answer(canonical(invented(conversation.schema)))
    if conversation.results:
        found = "; ".join(f"{result.name or 'tool'}: {result.text}" for result in conversation.results)
        return answer(f"The tools say: {found}")
    return answer(f"You said: {conversation.text}")


def use_tools(conversation: Conversation) -> Answer:
    """Call every tool on offer, one a turn, with invented arguments; then say what was found."""
    called = {call.name for message in conversation.messages for call in message.calls}
    left = [name for name in conversation.tools if name not in called]
    return answer("", _call(conversation, left[0])) if left else plain(conversation)


def invented(schema: object, *, depth: int = 0, root: object = None) -> Any:
    """A value that fits a JSON schema, the same one every time."""
    root = schema if root is None else root
    if not isinstance(schema, dict) or depth > _DEEPEST:
        return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return schema["enum"][0]
    if "$ref" in schema:
        return invented(_referred(str(schema["$ref"]), root), depth=depth + 1, root=root)
    for choice in ("anyOf", "oneOf", "allOf"):
        if schema.get(choice):
            return invented(schema[choice][0], depth=depth + 1, root=root)
    return _of_kind(schema, depth=depth, root=root)


def _of_kind(schema: dict[str, Any], *, depth: int, root: object) -> Any:
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = kind[0] if isinstance(kind, list) else kind
    match str(kind).lower():  # Gemini writes them in capitals
        case "object":
            wanted = schema.get("required") or list(schema.get("properties") or {})
            properties = schema.get("properties") or {}
            return {name: invented(properties.get(name), depth=depth + 1, root=root) for name in wanted}
        case "array":
            each = invented(schema.get("items") or {"type": "string"}, depth=depth + 1, root=root)
            return [each] * max(1, int(schema.get("minItems", 1)))
        case "integer" | "number":
            return schema.get("minimum", schema.get("maximum", 1))
        case "boolean":
            return True
        case "null":
            return None
    return "text".ljust(int(schema.get("minLength", 0)), "t")[: int(schema.get("maxLength", 1_000))]


def _referred(reference: str, root: object) -> object:
    found = root
    for name in reference.removeprefix("#/").split("/"):
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _call(conversation: Conversation, name: str) -> Tool:
    arguments = invented(conversation.tools.get(name) or {"type": "object"})
    return Tool(name, arguments if isinstance(arguments, dict) else {})
