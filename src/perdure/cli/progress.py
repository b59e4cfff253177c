"""The lines a person watches while a run goes on: one for each step, effects and doubts as they come."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Final

from perdure import clock, events
from perdure.cli.mode import mode
from perdure.cli.options import commands, looking
from perdure.cli.screen import bad, bold, dim, doubtful, good, tell
from perdure.engine.whereabouts import whole_id
from perdure.errors import PerdureError
from perdure.replay import UNSEEN, Journal
from perdure.status import numbers_of
from perdure.telemetry import terminal
from perdure.telemetry.bar import Bar
from perdure.telemetry.saving import money, not_repeated
from perdure.telemetry.text import age, counted, legible, utc

Describe = Callable[[str, str], tuple[str, str]]
"""How a step is shown, given its name and kind: what it is called, and a note."""

_OUTCOMES: Final = {
    "happened": "it happened. Not doing it again.",
    "did_not_happen": "it did not happen. Doing it.",
    "fail": "the run fails here.",
}
_NAME_COLUMNS: Final = 18
_NOTE_COLUMNS: Final = 24
_WORDS_CHARACTERS: Final = 300
_LEFT_OUT: Final = dim("     …")

ROW_SECONDS: Final = 1.0
"""In a row of like steps a line is shown so often."""


def step_line(number: int, event: events.StepCompleted, described: tuple[str, str]) -> str:
    """A completed step on one line."""
    kind, note = described
    note = note or _cost(event)
    if event.attempt > 1:
        note = f"{note}  attempt {event.attempt}".strip()
    if event.failed:
        note = f"{note}  failed".strip()
    mark = bad("✘") if event.failed else good("✔")
    return f"  {mark} {_place(number, event.step)} {kind:<7} {note:<{_NOTE_COLUMNS}} {event.seconds:>6.1f}s"


def intent_line(number: int, event: events.IntentRecorded, note: str = "") -> str:
    """An effect that is about to be performed."""
    what = note or "intent recorded"
    return f"  {doubtful('▸')} {_place(number, event.step)} effect  {what}"


def kind_only(step: str, kind: str) -> tuple[str, str]:
    """A step of which nothing more is known than its kind."""
    del step
    return kind, ""


class Progress:
    """A subscriber that prints what happens to one run; of a row of like steps the first, some, and the last.

    What its children do is theirs; only how each of them ended is said.
    """

    def __init__(
        self, journal: Journal | None = None, *, run_id: str = "", app: str = "", describe: Describe = kind_only
    ) -> None:
        self.run_id = run_id
        self._app = app
        self._commands = commands()
        self.is_announced = journal is not None
        self.started: events.RunStarted | None = None
        self.resumed: events.RunResumed | None = None
        self.ended: events.RunEnded | None = None
        self._numbers = numbers_of(journal) if journal else {}
        self._describe = describe
        self._in_doubt: set[str] = set()
        self._row = Row()
        self._bar = Bar()

    def __call__(self, event: events.Observable) -> None:
        if isinstance(event, events.MapAdvanced):
            self._advance(event)
            return
        if isinstance(event, (events.StoreOpened, events.RunPassedOver, events.RunBeside, events.DoubtLeft)):
            self._show(self._aside(event))
            return
        if not isinstance(event, events.Event):
            return
        if not self._is_mine(event):
            self._show(_child_line(event))
            return
        self._remember(event)
        if isinstance(event, events.StepCompleted):
            self._step(event, step_line(self._number(event.key), event, self._describe(event.step, event.kind)))
        else:
            self._show(self._line(event))

    def close(self) -> None:
        """Nothing more comes: show what was held back."""
        self._clear_bar()
        for line in self._row.ended():
            tell(line)

    def _is_mine(self, event: events.Event) -> bool:
        """Whether this is about the run, or one that goes on in its place; the first that is heard of is the run."""
        self.run_id = self.run_id or event.run_id
        return whole_id(event.run_id) == whole_id(self.run_id)

    def _remember(self, event: events.Event) -> None:
        match event:
            case events.RunStarted():
                self.started = event
                self._numbers = {}
            case events.RunResumed():
                self.resumed = event
                self._numbers = self._numbers or _numbers_in(event.run_id)
            case events.RunEnded():
                self.ended = event
            case _:
                pass

    def _number(self, key: str) -> int:
        """The number of the step: its place in the order in which the journal first names each."""
        return self._numbers.setdefault(key or f"unnamed {len(self._numbers)}", len(self._numbers) + 1)

    def _aside(self, event: events.Observable) -> str:
        """What is said of the store, and of other runs of the same call."""
        if isinstance(event, events.DoubtLeft):
            return terminal.doubt_left(event.run_name, event.effect)
        if isinstance(event, events.RunPassedOver):
            resume = self._commands("resume", event.run_name, "--app", self._app or "FILE")
            return (
                f"{bold(event.run_name)}  left alone, unfinished for {age(event.age_seconds)}; to resume it: {resume}"
            )
        return terminal.describe(event)

    def _advance(self, event: events.MapAdvanced) -> None:
        line = self._bar.line(event)
        if line:
            self._show(f"  {line}")
        elif not mode.as_json and self._bar.is_due(event):
            with contextlib.suppress(OSError, ValueError):
                self._bar.draw(event)

    def _step(self, event: events.StepCompleted, line: str) -> None:
        self._clear_bar()
        for each in self._row.line(event.step, line, is_notable=event.failed or event.attempt > 1):
            tell(each)

    def _show(self, line: str) -> None:
        if line:
            self.close()
            tell(line)

    def _clear_bar(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._bar.clear()

    def _line(self, event: events.Event) -> str:
        match event:
            case events.RunStarted():
                return f"{bold(event.run_name)}  {legible(event.agent)}"
            case events.RunResumed():
                return "" if self.is_announced else _resumed_lines(event)
            case events.DoubtFound() | events.DoubtSettled():
                return self._doubt_line(event)
            case events.DoubtPending():
                return f"  {terminal.describe(event)}"
            case events.IntentRecorded():
                number = self._number(event.key)
                again = event.step in self._in_doubt
                self._in_doubt.discard(event.step)
                return intent_line(number, event, "sent again under the same key" if again else "")
            case events.AttemptFailed():
                number = self._number(event.key) if event.key else len(self._numbers) + 1
                then = f"; the next in {event.next_in_seconds:.1f} s"
                what = f"attempt {event.attempt} failed: {legible(event.error, 120)}{then}"
                return f"  {bad('✘')} {_place(number, event.step)} {what}"
            case events.WaitOpened():
                number, until = self._number(event.key), f"until {utc(event.due_at)}"
                line = f"  {doubtful('▸')} {_place(number, event.step)} wait    {until}"
                return line if event.reason == "time" else ""
            case events.ResourceSettled():
                return f"  {doubtful('!')} {event.outcome}: {legible(event.words, _WORDS_CHARACTERS)}"
            case _:
                return ""

    def _doubt_line(self, event: events.DoubtFound | events.DoubtSettled) -> str:
        if isinstance(event, events.DoubtFound):
            self._in_doubt.add(event.step)
            place = _place(self._number(event.key), event.step)
            return f"  {doubtful('?')} {place} {doubtful('IN DOUBT')}: {_why(event.why)}"
        self._in_doubt.discard(event.step)
        by = "Checked" if event.by == "check" else f"{legible(event.by)} says"
        return f"    {'':>{_NAME_COLUMNS + 3}} {by}: {_OUTCOMES[event.outcome]}"


class Row:
    """Steps of one name after another: a long row is not worth a line for each."""

    def __init__(self) -> None:
        self._step = ""
        self._held = ""
        self._left_out = 0
        self._shown_at = -math.inf

    def line(self, step: str, line: str, *, is_notable: bool) -> list[str]:
        """What to show now that this step has completed."""
        now = clock.elapsed_seconds()
        if step != self._step:
            shown = [*self.ended(), line]
        elif is_notable or now - self._shown_at >= ROW_SECONDS:
            shown = [_LEFT_OUT, line] if self._held else [line]
        else:
            self._left_out += bool(self._held)
            self._held = line
            return []
        self._step, self._shown_at, self._held, self._left_out = step, now, "", 0
        return shown

    def ended(self) -> list[str]:
        """The last of the row, if it was held back."""
        last = [self._held] if self._held else []
        shown = [_LEFT_OUT, *last] if self._left_out else last
        self._step, self._held, self._left_out = "", "", 0
        return shown


def _numbers_in(run_id: str) -> dict[str, int]:
    """The numbers of the steps that a run had when it was resumed."""
    with contextlib.suppress(PerdureError), looking() as store:  # a line of ours never stops a run
        return numbers_of(Journal(store.load_journal(run_id)))
    return {}


def _resumed_lines(event: events.RunResumed) -> str:
    """Where a run goes on, and below it what was not repeated."""
    where = f"{bold(event.run_name)}  resumed at step {event.steps + 1}: {legible(event.before)}"
    saved = not_repeated(
        event.steps, seconds=event.saved_seconds, dollars=event.saved_dollars, tokens=event.saved_tokens
    )
    return f"{where}\n  {saved}" if event.steps else where


def _child_line(event: events.Event) -> str:
    if not isinstance(event, events.RunEnded):
        return ""
    reason = f": {event.reason.replace('_', ' ')}" if event.reason else ""
    return f"  {dim('child')} {legible(event.run_name)}  {event.state}{reason}, {counted(event.steps, 'step')}"


def _cost(event: events.StepCompleted) -> str:
    """What the step says it took."""
    tokens = f"{event.tokens:>5,} tokens" if event.tokens else ""
    dollars = money(event.dollars) if event.dollars else ""
    return "  ".join(filter(None, (tokens, dollars)))


def _why(why: str) -> str:
    if why.startswith(UNSEEN):
        return f"it may have been performed ({legible(why)})."
    return "started, never confirmed." if why.startswith("started") else f"started, never confirmed ({legible(why)})."


def _place(number: int, step: str) -> str:
    return f"{number:>2} {legible(step, _NAME_COLUMNS):<{_NAME_COLUMNS}}"
