"""The lines a person watches while a run goes on: one for each step, effects and doubts as they come."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from perdure import events
from perdure.cli.screen import bad, doubtful, good, tell
from perdure.telemetry.text import legible

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


def step_line(number: int, event: events.StepCompleted, described: tuple[str, str]) -> str:
    """A completed step on one line."""
    kind, note = described
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
    """A subscriber that prints each event of one run as it happens."""

    def __init__(self, numbers: dict[str, int], open_steps: dict[str, int], describe: Describe = kind_only) -> None:
        self._numbers = dict(numbers)
        self._open = dict(open_steps)
        self._describe = describe
        self._in_doubt: set[str] = set()
        self.ended: events.RunEnded | None = None

    def __call__(self, event: events.Observable) -> None:
        if isinstance(event, events.RunEnded):
            self.ended = event
        line = self._line(event)
        if line:
            tell(line)

    def _line(self, event: events.Observable) -> str:
        match event:
            case events.StepCompleted():
                number = self._numbers.setdefault(event.key, len(self._numbers) + 1)
                return step_line(number, event, self._describe(event.step, event.kind))
            case events.IntentRecorded():
                number = self._open.get(event.step, len(self._numbers) + 1)
                again = event.step in self._in_doubt
                self._in_doubt.discard(event.step)
                return intent_line(number, event, "sent again under the same key" if again else "")
            case events.AttemptFailed():
                number = len(self._numbers) + 1
                then = f"; the next in {event.next_in_seconds:.1f} s"
                what = f"attempt {event.attempt} failed: {legible(event.error, 120)}{then}"
                return f"  {bad('✘')} {_place(number, event.step)} {what}"
            case events.DoubtFound():
                self._in_doubt.add(event.step)
                number = self._open.get(event.step, len(self._numbers) + 1)
                return f"  {doubtful('?')} {_place(number, event.step)} {doubtful('IN DOUBT')}: {_why(event.why)}"
            case events.DoubtSettled():
                self._in_doubt.discard(event.step)
                if event.outcome == "happened" and event.step not in self._open:
                    self._numbers[f"settled {len(self._numbers)}"] = len(self._numbers) + 1
                by = "Checked" if event.by == "check" else f"{legible(event.by)} says"
                return f"    {'':>{_NAME_COLUMNS + 3}} {by}: {_OUTCOMES[event.outcome]}"
            case events.ResourceSettled():
                return f"  {doubtful('!')} {event.outcome}: {legible(event.words, _WORDS_CHARACTERS)}"
            case _:
                return ""


def _why(why: str) -> str:
    return "started, never confirmed." if why.startswith("started") else f"started, never confirmed ({legible(why)})."


def _place(number: int, step: str) -> str:
    return f"{number:>2} {legible(step, _NAME_COLUMNS):<{_NAME_COLUMNS}}"
