"""A timeline on the screen: the tree of its moments, one line for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.cli.rows import cost_words
from perdure.cli.screen import bad, bold, columns, dim, doubtful, good
from perdure.cli.timeline import Moment
from perdure.cli.tree import Branch, Leaf
from perdure.records import Kind, RunState
from perdure.telemetry.text import age, duration, legible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.records import Run

_MARKS: Final = {
    Kind.STEP: good("✔"),
    Kind.RECEIPT: good("✔"),
    Kind.BATCH: good("✔"),
    Kind.ATTEMPT: bad("✘"),
    Kind.INTENT: doubtful("▸"),
    Kind.DOUBT: doubtful("?"),
    Kind.VERDICT: good("="),
    Kind.WAIT: doubtful("◦"),
    Kind.ANSWER: good("✔"),
    Kind.NOTE: dim("·"),
}
_ALIGNED: Final = frozenset({Kind.STEP, Kind.INTENT, Kind.RECEIPT})
_OTHER_COLUMNS: Final = 46
_CALL_COLUMNS: Final = (20, 60)
_TEXT_CHARACTERS: Final = 240
_DIGITS: Final = 4
_OFFSET_COLUMNS: Final = 7


def leaf_lines(leaf: Leaf, *, run: Run, digits: int = 0, is_own: bool = True) -> Iterator[str]:
    """One line of the tree; what is not the page's own run is told without numbers, which would be another's."""
    rails = dim("│ " * leaf.depth)
    digits = max(_DIGITS, digits)
    nowhere = " " * (digits + _OFFSET_COLUMNS + 1)
    if isinstance(leaf.what, Branch):
        yield f"{nowhere}  {rails}{dim('╭')} {bold(legible(leaf.what.label, 60))}"
        return
    moment = leaf.what
    place = f"{moment.number or '':>{digits}} {offset(moment.at - run.created_at):>{_OFFSET_COLUMNS}}"
    left = f"{place if is_own else nowhere}  {rails}"
    if moment.number:
        yield f"{left}{_step(moment, leaf.depth)}".rstrip()
    elif moment.record == Kind.NOTE:
        yield f"{left}{dim(f'· {legible(moment.text, _TEXT_CHARACTERS)}')}"
    elif is_own:
        yield from _mark(moment, run)


def offset(seconds: float) -> str:
    """How long after the beginning."""
    if seconds <= -0.05:  # noqa: PLR2004 - what a fork has from the run it comes from
        return "before"
    seconds = abs(seconds)
    return f"+{seconds:.1f}s" if seconds < 1000 else f"+{age(seconds).replace(' ', '')}"  # noqa: PLR2004


def _step(moment: Moment, depth: int) -> str:
    mark = bad("✘") if moment.failed else _MARKS.get(Kind(moment.record), " ")
    if moment.record not in _ALIGNED or moment.failed:
        cost = cost_words(dollars=moment.dollars, tokens=moment.tokens)
        return f"{mark} {legible(moment.name)}  {legible(moment.text, _TEXT_CHARACTERS)}  {cost}"
    least, most = _CALL_COLUMNS
    width = max(least, min(most, columns() - _OTHER_COLUMNS) - 2 * depth)
    if moment.record == Kind.INTENT:
        facts = ["intent, not confirmed", _attempt(moment)]
    else:
        cost = cost_words(dollars=moment.dollars, tokens=moment.tokens)
        facts = [f"{duration(moment.seconds):>6}", cost, _attempt(moment)]
    return f"{mark} {legible(moment.call, width):<{width}} {moment.kind:<6} {'  '.join(filter(None, facts))}"


def _attempt(moment: Moment) -> str:
    return f"attempt {moment.attempt}" if moment.attempt > 1 else ""


def _mark(moment: Moment, run: Run) -> Iterator[str]:
    """A crash, a resume, a stop: across the tree."""
    if moment.record == Kind.DELIVERY:
        yield from _delivery(moment)
    elif moment.record != Kind.ENDED:
        yield f"  {legible(moment.text)}"
    elif not moment.text.startswith(RunState.COMPLETED):
        text = moment.text.splitlines()[0].replace(f"Run {run.name}: ", "", 1)
        yield dim(f"  — {legible(text, columns() - 6)} —")


def _delivery(moment: Moment) -> Iterator[str]:
    """On one line where there is room, else what went before on a line of its own."""
    before, dot, resumed = legible(moment.text).partition(" · ")
    line = f"  — {legible(moment.text)} —"
    if dot and len(line) > columns():
        yield f"  {doubtful(f'— {before} —')}"
        yield dim(f"  — {resumed} —")
    elif dot:
        yield f"  {doubtful(f'— {before}')}{dim(f' · {resumed} —')}"
    else:
        yield dim(line)
