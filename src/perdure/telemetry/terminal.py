"""The few lines that a plain script shows on standard error: where state is kept, and what a resume did not repeat.

A closed stream or a missing console never disturbs the run: what cannot be shown is left out.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Final

from perdure import events
from perdure.errors import PerdureError
from perdure.settings import current_settings
from perdure.telemetry.bar import Bar
from perdure.telemetry.saving import not_repeated
from perdure.telemetry.text import age, counted, duration, legible

MAX_LINES: Final = 8
"""A script's own output must not drown in ours: after so many lines this process is silent."""

_WORDS_CHARACTERS: Final = 300
_IN_A_SCRIPT: Final = ", then start again"
"""What a hint adds for a process that has ended, and this one has not."""

_SHOWN: Final = (
    events.StoreOpened,
    events.StoreAwaited,
    events.StoreReached,
    events.RunResumed,
    events.RunPassedOver,
    events.RunBeside,
    events.DoubtLeft,
    events.RunEnded,
    events.MapAdvanced,
    events.DoubtPending,
    events.RunLeft,
    events.DoubtSettled,
    events.ResourceSettled,
)

_OUTCOMES: Final = {
    "happened": "it happened, so it is not done again",
    "did_not_happen": "it did not happen, so it is done now",
    "fail": "the run fails here",
}


class Terminal:
    """A subscriber that prints at most MAX_LINES lines."""

    def __init__(self) -> None:
        self._printed = 0
        self._bar = Bar()

    def __call__(self, event: events.Observable) -> None:
        line = self._bar.line(event) if isinstance(event, events.MapAdvanced) else describe(event)
        with contextlib.suppress(OSError, ValueError, AttributeError):
            self._move_bar(event, line)
        if not line or self._printed >= MAX_LINES or _is_quiet():
            return
        self._printed += 1
        if self._printed == MAX_LINES:
            line = "further lines are left out; perdure ls lists the runs"
        with contextlib.suppress(OSError, ValueError, AttributeError):
            sys.stderr.write(f"perdure: {line}\n")
            sys.stderr.flush()

    def _move_bar(self, event: events.Observable, line: str) -> None:
        if line or not isinstance(event, events.MapAdvanced) or event.stage == "ended":
            self._bar.clear()
        elif self._bar.is_due(event) and not _is_quiet():  # settings take longer to read than most batches to commit
            self._bar.draw(event)


def _is_quiet() -> bool:
    """Settings that became unusable since the run began are reported where they are used, not here."""
    try:
        return current_settings().quiet
    except PerdureError:
        return True


_installed: list[Terminal] = []


def install() -> None:
    """Show the lines of this process from now on, once."""
    if not _installed:
        _installed.append(Terminal())
        events.subscribe(_installed[0], *_SHOWN)


def describe(event: events.Observable) -> str:
    """The line an event is worth; empty for most."""
    match event:
        case events.StoreOpened(location, created=True):
            return f"state is kept in {legible(location)}"
        case events.StoreAwaited() | events.StoreReached():
            return _of_the_store(event)
        case events.RunResumed():
            return _resumed(event)
        case events.RunPassedOver() | events.DoubtLeft() | events.RunBeside():
            return _of_another(event)
        case events.RunEnded(_, name, "queued", _, steps):
            return f"{legible(name)} was stopped, {counted(steps, 'step')} saved: start again to resume it"
        case events.RunLeft(_, _, "human" | "signal", words, hint):
            return f"{legible(words.rstrip('.'))}; it goes on after: {legible(hint.removesuffix(_IN_A_SCRIPT))}"
        case events.DoubtPending(_, _, step, seconds):
            return (
                f"{legible(step)} is not found; asking again in {duration(seconds)}, when nothing on its way can land"
            )
        case events.DoubtSettled(_, _, step, outcome, by):
            return f"{legible(step)} was in doubt; by {legible(by)}: {_OUTCOMES.get(outcome, outcome)}"
        case events.ResourceSettled(_, _, words, outcome):
            return f"{outcome}: {legible(words, _WORDS_CHARACTERS)}"
        case _:
            return ""


def _of_the_store(event: events.StoreAwaited | events.StoreReached) -> str:
    """What is said of a store that is away, or was."""
    where = legible(event.location)
    match event:
        case events.StoreAwaited(location, error, seconds):
            why = legible(error.removeprefix(location).strip().rstrip("."))
            return f"waiting for {where}, {duration(seconds)} at most: it {why}"
        case events.StoreReached():
            return f"{where} is back"


def _of_another(event: events.RunPassedOver | events.DoubtLeft | events.RunBeside) -> str:
    """What is said of an earlier run of the same call."""
    match event:
        case events.RunPassedOver():
            return _passed_over(event)
        case events.DoubtLeft(_, name, effect):
            return doubt_left(name, effect)
        case events.RunBeside(_, name, holder):
            return f"the same call is running as {legible(name)} ({legible(holder)}); this is a new run beside it"


def doubt_left(name: str, effect: str) -> str:
    """What is said before a call is made again of which nobody knows whether it happened."""
    name = legible(name)
    return f"{name} was cancelled with {legible(effect)} in doubt: it may have happened (perdure show {name})"


def _resumed(event: events.RunResumed) -> str:
    saved = not_repeated(
        event.steps, seconds=event.saved_seconds, dollars=event.saved_dollars, tokens=event.saved_tokens
    )
    where = f"resumed {legible(event.run_name)} at step {event.steps + 1}"
    return f"{where}: {saved} ({legible(event.before)})" if event.steps else f"{where}: {legible(event.before)}"


def _passed_over(event: events.RunPassedOver) -> str:
    how = f'run_id="{legible(event.run_id)}"'
    if script := _script():
        how = f"perdure resume {legible(event.run_name)} --app {script}, or {how}"
    return f"left {legible(event.run_name)} alone, unfinished for {age(event.age_seconds)}; to resume it: {how}"


def _script() -> str:
    """The script this process was started with, as a person would name it."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    if not file or getattr(sys.modules["__main__"], "__spec__", None) is not None:
        return ""
    path = Path(file)
    return legible(str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path))
