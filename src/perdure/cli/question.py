"""A question as a person sees it: its text, what is shown with it, how to answer, by when."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import msgspec

from perdure import clock
from perdure.cli.screen import bold, columns, dim, doubtful, say
from perdure.telemetry.text import age, legible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.bodies import Question
    from perdure.status import OpenWait

SHORT_LINES: Final = 10
_LINE_CHARACTERS: Final = 2000
_UNITS: Final = (3600, 60)
_SCHEMA_CHARACTERS: Final = 400
_SAID: Final = frozenset({"type", "enum", "title", "description", "default"})
"""Keywords of a field that are put into words, or say nothing to a person."""


def tell_question(wait: OpenWait, *, lines: int = 0) -> None:
    """Show a question; with `lines`, no more than so many of what is shown with it."""
    question = question_of(wait)
    text, *more = question.text.split("\n")
    say(f"  {wait.question_number} {bold(legible(text))}")
    for line in more:
        say(f"    {dim('|')} {bold(legible(line))}")
    facts = "   ".join(_facts(wait, question))
    if facts:
        say(f"    {facts}")
    shown = list(_shown_lines(question))
    cut = lines or len(shown)
    for line in shown[:cut]:
        say(f"    {dim('|')} {line}")
    if len(shown) > cut:
        say(f"    {dim(f'| … {len(shown) - cut} more lines')}")
    for line in _expected(question):
        say(f"    {line}")


def question_of(wait: OpenWait) -> Question:
    """What this wait asks."""
    if wait.opened.question is None:
        raise TypeError(wait)
    return wait.opened.question


def due_words(due_at: float) -> str:
    """How long there is time."""
    left = due_at - clock.wall_seconds()
    if left <= 0:
        return doubtful(f"expired {age(-left)} ago")
    unit = next((seconds for seconds in _UNITS if left > seconds), 1)
    return f"due in {age(math.ceil(left / unit) * unit)}"


def _facts(wait: OpenWait, question: Question) -> Iterator[str]:
    yield dim(f"asked {age(clock.wall_seconds() - wait.record.at)} ago")
    if wait.opened.due_at:
        yield due_words(wait.opened.due_at)
    if question.assignee:
        yield f"for {legible(question.assignee)}"
    if question.escalate_to and question.escalate_at <= clock.wall_seconds():
        yield doubtful(f"escalated to {legible(question.escalate_to)}")
    if wait.mail is not None:
        yield f"answered by {legible(wait.mail.by)}"


def _shown_lines(question: Question) -> Iterator[str]:
    shown = msgspec.json.decode(bytes(question.show))
    if shown is None:
        return
    if isinstance(shown, str):
        text = shown
    else:
        whole = bytes(question.show).decode()
        text = whole if len(whole) <= columns() - 8 else msgspec.json.format(whole, indent=2)
    for line in text.split("\n"):
        yield legible(line, _LINE_CHARACTERS)


def _expected(question: Question) -> Iterator[str]:
    if question.options:
        yield f"{dim('choices:')} {' | '.join(map(legible, question.options))}"
        return
    schema = msgspec.json.decode(bytes(question.form))
    if schema is None:
        return
    fields = _fields(schema)
    if not fields:
        yield f"{dim('form:')} {legible(msgspec.json.encode(schema).decode(), _SCHEMA_CHARACTERS)}"
        return
    yield dim("form:")
    width = max(len(name) for name, _ in fields)
    for name, words in fields:
        yield f"  {name:<{width}}  {words}"


def _fields(schema: dict[str, Any]) -> list[tuple[str, str]]:
    """The fields of a form that is a plain object, each with what is expected of it."""
    inner = schema
    reference = schema.get("$ref", "")
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        inner = schema.get("$defs", {}).get(reference.removeprefix("#/$defs/"), schema)
    properties = inner.get("properties") if isinstance(inner, dict) else None
    if not isinstance(properties, dict):
        return []
    required = inner.get("required", ())
    return [(legible(name, 40), _field_words(part, is_required=name in required)) for name, part in properties.items()]


def _field_words(part: object, *, is_required: bool) -> str:
    optional = "" if is_required else " (may be left out)"
    if not isinstance(part, dict):
        return f"anything{optional}"
    kinds = part.get("type", "")
    words = " or ".join(map(str, kinds)) if isinstance(kinds, list) else str(kinds)
    choices = part.get("enum")
    if isinstance(choices, list):
        words = " | ".join(msgspec.json.encode(choice).decode() for choice in choices)
    rest = {name: value for name, value in part.items() if name not in _SAID}
    limits = f" {msgspec.json.encode(rest).decode()}" if rest else ""
    meaning = f": {part['description']}" if isinstance(part.get("description"), str) else ""
    return legible(f"{words or 'anything'}{limits}{optional}{meaning}", _SCHEMA_CHARACTERS)
