"""One step on the screen."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import perdure
from perdure.cli.rows import cost_words
from perdure.cli.screen import bad, bold, columns, dim, doubtful, good, spread
from perdure.cli.value import value_lines
from perdure.cli.wording import OUTCOMES
from perdure.telemetry.text import counted, duration, legible, utc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from msgspec import Raw

    from perdure.cli.account import AttemptObject, Error, Items, StepObject, Word

_LABEL_COLUMNS: Final = 10
_MARGIN: Final = " " * (_LABEL_COLUMNS + 3)
_TRACE_LINES: Final = 12
_ABSENT: Final = b"null"
_PAINT: Final[dict[str, Callable[[str], str]]] = {
    "done": good,
    "settled": good,
    "failed": bad,
    "in doubt": doubtful,
    "waiting": doubtful,
}
_OWN_FOLDER: Final = str(Path(perdure.__file__).parent)


def step_lines(told: StepObject, scopes: list[str], *, of: int, is_whole: bool, is_full: bool) -> Iterator[str]:
    """All of a step; values are shortened unless `is_whole`, traces unless `is_full`."""
    state = _PAINT.get(told.state, str)(told.state)
    left = f"{bold(legible(told.run))}  step {told.number} of {of}  {bold(legible(told.name))}"
    yield spread(left, f"{told.kind}, {state}")
    yield from _identity(told, scopes)
    yield from _value("arguments", told.arguments, is_whole=is_whole)
    yield from _history(told, is_full=is_full)
    for word in told.evidence:
        yield from _said("evidence", word, is_whole=is_whole)
    if told.verdict is not None:
        yield from _said("verdict", told.verdict, is_whole=is_whole)
    if told.doubt:
        yield _fact("in doubt", doubtful(legible(told.doubt)))
    if told.items is not None:
        yield from _items(told.items, is_whole=is_whole)
    else:
        is_done = told.state in ("done", "settled")
        yield from _value("result", told.result, is_whole=is_whole, show_null=is_done)


def _identity(told: StepObject, scopes: list[str]) -> Iterator[str]:
    yield _fact("call", legible(told.call))
    yield _fact("key", legible(told.key))
    if scopes:
        yield _fact("scope", legible(" / ".join(scopes)))
    if told.effect_key:
        yield _fact("effect key", told.effect_key)
    if cost := cost_words(dollars=told.dollars, tokens=told.tokens):
        tokens = f", {counted(told.tokens, 'token')}" if told.dollars and told.tokens else ""
        yield _fact("cost", f"{cost}{tokens}")


def _history(told: StepObject, *, is_full: bool) -> Iterator[str]:
    """Its attempts; a wait has none, and is told by its moments."""
    for attempt in told.attempts:
        yield _fact(f"attempt {attempt.attempt}", _attempt_words(attempt))
        if attempt.error is not None:
            yield from _error(attempt.error, is_full=is_full)
    if not told.attempts:
        for moment in told.moments:
            yield _fact(moment.record, f"{utc(moment.at)}  {legible(moment.text)}")


def _attempt_words(attempt: AttemptObject) -> str:
    how = _PAINT.get(attempt.outcome, str)(attempt.outcome)
    if attempt.outcome == "started":
        how = "intent recorded"
    took = f" after {duration(attempt.seconds)}" if attempt.outcome in ("done", "failed") else ""
    why = f": {legible(attempt.why)}" if attempt.why else ""
    by = f"  (pid {attempt.pid} on {legible(attempt.host)})" if attempt.pid else ""
    return f"{utc(attempt.at)}  {how}{took}{why}{dim(by)}"


def _error(error: Error, *, is_full: bool) -> Iterator[str]:
    """The exception; perdure's own frames, and all but the last of a long trace, only when everything is wanted."""
    yield f"{_MARGIN}{bad(legible(f'{error.type}: {error.message}'))}"
    trace = error.trace.rstrip().splitlines()
    shown = trace if is_full else _without_our_frames(trace)[-_TRACE_LINES:]
    for line in shown:
        yield dim(f"{_MARGIN}{legible(line)}")
    if len(shown) < len(trace):
        yield dim(f"{_MARGIN}… {len(trace) - len(shown)} more lines: --full")


def _without_our_frames(trace: list[str]) -> list[str]:
    kept, is_ours = [], False
    for line in trace:
        is_frame = line.startswith('  File "')
        if is_frame or not line.startswith("    "):
            is_ours = is_frame and line.startswith(f'  File "{_OWN_FOLDER}')
        if not is_ours:
            kept.append(line)
    return kept


def _said(label: str, word: Word, *, is_whole: bool) -> Iterator[str]:
    heard = "" if word.taken else "; the run has not heard it yet"
    note = f" ({legible(word.note)})" if word.note else ""
    words = f"{OUTCOMES[word.outcome]}, by {legible(word.by)}{note}{heard}"
    yield _fact(label, f"{utc(word.at)}  {words}")
    if label == "evidence":
        yield from _value("", word.value, is_whole=is_whole)


def _items(items: Items, *, is_whole: bool) -> Iterator[str]:
    failed = f", {items.failed:,} failed" if items.failed else ""
    yield _fact("items", f"{counted(items.count, 'item')} done{failed}")
    for number, value in enumerate(items.first):
        yield from _value(f"[{number}]", value, is_whole=is_whole, show_null=True)
    if left := items.count - len(items.first):
        yield dim(f"{_MARGIN}… {left:,} more: --full")


def _value(label: str, value: Raw, *, is_whole: bool, show_null: bool = False) -> Iterator[str]:
    if bytes(value) == _ABSENT and not show_null:
        return
    first, *more = value_lines(bytes(value), width=columns() - len(_MARGIN), is_whole=is_whole)
    yield _fact(label, first)
    for line in more:
        yield f"{_MARGIN}{line}"


def _fact(label: str, text: str) -> str:
    return f"  {dim(f'{label:<{_LABEL_COLUMNS}}')} {text}".rstrip()
