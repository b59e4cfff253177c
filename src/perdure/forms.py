"""Forms: the shape an answer must have, as JSON Schema, and what is wrong with an answer that does not fit, in words.

The part of JSON Schema that forms need is understood here, and a keyword that is not is refused when the question is
asked, never ignored when it is answered.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.bodies import Question

_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
    "array": (list,),
    "object": (dict,),
}
_ANNOTATIONS: Final = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "examples", "format", "deprecated", "readOnly"}
)
_KEYWORDS: Final = frozenset(
    {
        "$ref", "$defs", "definitions", "type", "enum", "const", "anyOf", "oneOf", "allOf", "properties", "required",
        "additionalProperties", "items", "prefixItems", "minItems", "maxItems", "minLength", "maxLength", "pattern",
        "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "discriminator",
    }
)  # fmt: skip
_MAX_DEPTH: Final = 50
_SUBSCHEMAS: Final = frozenset({"items", "additionalProperties"})
_NAMED_SUBSCHEMAS: Final = frozenset({"properties", "$defs", "definitions"})
_LISTED_SUBSCHEMAS: Final = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_COUNTS: Final = frozenset({"minItems", "maxItems", "minLength", "maxLength"})
_LIMITS: Final = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"})
_SHOWN_CHARACTERS: Final = 60
_YES: Final = frozenset({"accept", "agree", "allow", "approve", "confirm", "ok", "okay", "y", "yes"})
_NO: Final = frozenset({"decline", "deny", "disallow", "disagree", "n", "no", "refuse", "reject"})


def schema_of(form: object) -> dict[str, Any]:
    """The JSON Schema of a form: one given as such, or that of a dataclass, a msgspec struct or a pydantic model."""
    if isinstance(form, dict):
        schema = form
    elif hasattr(form, "model_json_schema"):
        schema = form.model_json_schema()
    else:
        try:
            schema = msgspec.json.schema(form)
        except (TypeError, RuntimeError) as error:
            raise UsageError(
                f"form={form!r} is no form: {error}.",
                safe="nothing was asked.",
                hint="a JSON Schema as a dict, a dataclass, a msgspec Struct or a pydantic model",
            ) from None
    _refuse_unknown(schema, schema, 0)
    return schema


def misfits(value: object, schema: dict[str, Any]) -> list[str]:
    """What is wrong with an answer, field by field: empty where it fits."""
    return list(_Check(schema).misfits(value, schema, "answer", 0))


def approving(question: Question) -> tuple[str, str] | None:
    """The option that says yes and the one that says no, where there are just these two and both are plain words.

    Anything else ("send" or "discard", "now" or "later") has no yes that could be guessed: it is answered by its words.
    """
    if len(question.options) != 2:  # noqa: PLR2004 - one that says yes, one that says no
        return None
    first, second = question.options
    for yes, no in ((first, second), (second, first)):
        if yes.strip().lower() in _YES and no.strip().lower() in _NO:
            return yes, no
    return None


def _refuse_unknown(schema: object, root: object, depth: int) -> None:
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        raise UsageError(
            f"The form holds {schema!r:.60} where a JSON Schema belongs.", safe="nothing was asked.", hint="use a dict"
        )
    for keyword, part in schema.items():
        if keyword not in _KEYWORDS and keyword not in _ANNOTATIONS:
            raise UsageError(
                f"The form uses {keyword!r}, which perdure cannot check.",
                safe="nothing was asked.",
                hint=f"leave it out; checked are {', '.join(sorted(_KEYWORDS))}",
            )
        if not _is_usable(keyword, part, root):
            raise UsageError(
                f"The form says {keyword!r}: {part!r:.60}, by which nothing can be checked.",
                safe="nothing was asked.",
                hint="see json-schema.org for what belongs there; a $ref must point into the form itself",
            )
        if keyword in _NAMED_SUBSCHEMAS:
            parts = list(part.values())
        else:
            parts = list(part) if keyword in _LISTED_SUBSCHEMAS else [part] if keyword in _SUBSCHEMAS else []
        for inner in parts:
            _refuse_unknown(inner, root, depth + 1)


def _is_usable(keyword: str, part: Any, root: object) -> bool:  # noqa: ANN401 - what stands there is what is asked
    """Whether this is something the keyword can be followed by."""
    if keyword in _NAMED_SUBSCHEMAS:
        return isinstance(part, dict)
    if keyword in _LISTED_SUBSCHEMAS:
        return isinstance(part, list) and bool(part)
    if keyword in _COUNTS:
        return _is_a(part, "integer") and part >= 0
    if keyword in _LIMITS:
        return _is_a(part, "number")
    if keyword == "type":
        return part in _TYPES if isinstance(part, str) else isinstance(part, list) and set(part) <= _TYPES.keys()
    if keyword == "required":
        return isinstance(part, list) and all(isinstance(name, str) for name in part)
    if keyword == "enum":
        return isinstance(part, list)
    if keyword == "pattern":
        return isinstance(part, str) and _compiles(part)
    return keyword != "$ref" or _referred(part, root) is not None


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


class _Check:
    """One answer against one form; references are looked up in the form itself."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root

    def misfits(self, value: object, schema: object, where: str, depth: int) -> Iterator[str]:
        """Everything wrong with a part of the answer, each with its place."""
        if schema is False:
            yield f"{where} must not be there"
        if depth > _MAX_DEPTH:
            yield f"{where} is nested too deeply"
        if not isinstance(schema, dict) or depth > _MAX_DEPTH:
            return
        if "$ref" in schema:
            yield from self.misfits(value, _referred(schema["$ref"], self._root), where, depth + 1)
        kinds = schema.get("type")
        if kinds is not None and not any(_is_a(value, kind) for kind in _listed(kinds)):
            yield f"{where} must be {_spoken(kinds)}, not {_shown(value)}"
            return
        yield from _value_misfits(value, schema, where)
        for part in schema.get("allOf", ()):
            yield from self.misfits(value, part, where, depth + 1)
        yield from self._alternatives(value, schema, where, depth)
        if isinstance(value, list):
            yield from self._list_misfits(value, schema, where, depth)
        elif isinstance(value, dict):
            yield from self._object_misfits(value, schema, where, depth)

    def _alternatives(self, value: object, schema: dict[str, Any], where: str, depth: int) -> Iterator[str]:
        for keyword in ("anyOf", "oneOf"):
            if keyword not in schema:
                continue
            tried = [list(self.misfits(value, part, where, depth + 1)) for part in schema[keyword]]
            fitting = sum(not problems for problems in tried)
            if fitting == 0:
                yield min(tried, key=len)[0] if tried else f"{where} fits no alternative: there is none"
            elif keyword == "oneOf" and fitting > 1:
                yield f"{where} fits {fitting} of the alternatives, and must fit one"

    def _list_misfits(self, value: list[Any], schema: dict[str, Any], where: str, depth: int) -> Iterator[str]:
        if len(value) < schema.get("minItems", 0):
            yield f"{where} must have at least {schema['minItems']} items, not {len(value)}"
        if len(value) > schema.get("maxItems", len(value)):
            yield f"{where} must have at most {schema['maxItems']} items, not {len(value)}"
        first = schema.get("prefixItems", [])
        for number, item in enumerate(value):
            part = first[number] if number < len(first) else schema.get("items", True)
            yield from self.misfits(item, part, f"{where}[{number}]", depth + 1)

    def _object_misfits(self, value: dict[str, Any], schema: dict[str, Any], where: str, depth: int) -> Iterator[str]:
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{where}.{name} is missing{self._expected(properties.get(name))}"
        for name, item in value.items():
            if name not in properties and others is False:
                yield f"{where}.{name} is unknown; known are {', '.join(properties) or 'no fields'}"
            else:
                yield from self.misfits(item, properties.get(name, others), f"{where}.{name}", depth + 1)

    def _expected(self, schema: object) -> str:
        for _ in range(_MAX_DEPTH):
            if isinstance(schema, dict) and "$ref" in schema:
                schema = _referred(schema["$ref"], self._root)
        kinds = schema.get("type") if isinstance(schema, dict) else None
        return f": {_spoken(kinds)} is expected" if kinds else ""


def _referred(reference: object, root: object) -> object:
    """The part of the form that a reference means; None where it means none."""
    found = root
    if reference == "#":
        return found
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    for part in reference.removeprefix("#/").split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    return found


def _value_misfits(value: object, schema: dict[str, Any], where: str) -> Iterator[str]:
    if "enum" in schema and not any(_same(value, choice) for choice in schema["enum"]):
        yield f"{where} must be one of {', '.join(map(_shown, schema['enum']))}, not {_shown(value)}"
    if "const" in schema and not _same(value, schema["const"]):
        yield f"{where} must be {_shown(schema['const'])}, not {_shown(value)}"
    if isinstance(value, str):
        yield from _text_misfits(value, schema, where)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield from _number_misfits(value, schema, where)


def _text_misfits(value: str, schema: dict[str, Any], where: str) -> Iterator[str]:
    if len(value) < schema.get("minLength", 0):
        yield f"{where} must have at least {schema['minLength']} characters, not {len(value)}"
    if len(value) > schema.get("maxLength", len(value)):
        yield f"{where} must have at most {schema['maxLength']} characters, not {len(value)}"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{where} must match {schema['pattern']!r}, and {_shown(value)} does not"


def _number_misfits(value: float, schema: dict[str, Any], where: str) -> Iterator[str]:
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{where} must be at least {schema['minimum']}, not {value}"
    if "maximum" in schema and value > schema["maximum"]:
        yield f"{where} must be at most {schema['maximum']}, not {value}"
    if "exclusiveMinimum" in schema and value <= schema["exclusiveMinimum"]:
        yield f"{where} must be above {schema['exclusiveMinimum']}, not {value}"
    if "exclusiveMaximum" in schema and value >= schema["exclusiveMaximum"]:
        yield f"{where} must be below {schema['exclusiveMaximum']}, not {value}"


def _is_a(value: object, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(kind, ()))


def _same(one: object, other: object) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _listed(kinds: str | list[str]) -> list[str]:
    return [kinds] if isinstance(kinds, str) else kinds


def _spoken(kinds: str | list[str]) -> str:
    return " or ".join(
        "null" if kind == "null" else f"{'an' if kind[0] in 'aio' else 'a'} {kind}" for kind in _listed(kinds)
    )


def _shown(value: object) -> str:
    text = msgspec.json.encode(value).decode()
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[: _SHOWN_CHARACTERS - 1]}…"
