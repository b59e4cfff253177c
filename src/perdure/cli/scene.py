"""The processes of a demo: how they are started, and what they tell as lines for a person."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import msgspec
from msgspec import Raw

import perdure
from perdure import demo, events, typed
from perdure.cli.mode import is_terminal, mode
from perdure.cli.progress import intent_line, step_line
from perdure.cli.screen import dim, doubtful, say
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Iterator

_REWRITE: Final = "\r\x1b[K"
_EVENTS: Final[dict[str, type[events.Event]]] = {
    kind.__name__: kind for kind in (events.RunStarted, events.StepCompleted, events.IntentRecorded, events.WaitOpened)
}


class Process:
    """A process that plays its part of a scenario."""

    def __init__(self, store: str, *words: str) -> None:
        arguments = [sys.executable, "-P", "-m", "perdure.demo", *words]
        environment = ours(store)
        self.child = subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment)  # noqa: S603 - our own module
        self.names: list[str] = []
        """The runs it began."""
        self.steps = 0
        """How many steps it completed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever went wrong here: nothing is left running."""
        if self.child.poll() is None:
            self.child.kill()
        self.child.communicate()

    def heard(self) -> Iterator[events.Event]:
        """What it tells, until it ends."""
        for line in self.child.stdout or ():
            name, body = msgspec.json.decode(line, type=tuple[str, Raw])
            event = typed.read(body, _EVENTS[name]) if name in _EVENTS else None
            if isinstance(event, events.RunStarted):
                self.names.append(event.run_name)
            self.steps += isinstance(event, events.StepCompleted)
            if event is not None:
                yield event
        self.child.wait()

    @property
    def was_killed(self) -> bool:
        """Whether it ended as it was meant to."""
        return self.child.returncode == -signal.SIGKILL


def ours(store: str) -> dict[str, str]:
    """The environment in which Python finds this very perdure, and nothing that merely lies in the folder."""
    own = str(Path(perdure.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (own, os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path, "PERDURE_STORE": store}


class Watched:
    """Events as lines: the first and the last of a row of like steps, the rest only while it happens."""

    def __init__(self) -> None:
        self._before = ""
        self._row = 0
        self._pending = ""
        self._number = 0

    def show(self, event: events.Event) -> None:
        """Show what happened."""
        match event:
            case events.StepCompleted():
                self._step(event)
            case events.IntentRecorded():
                self.settle()
                line(intent_line(event.number, event))
            case events.WaitOpened(shown=shown):
                self.settle()
                asked = legible(shown.removeprefix("waits for an answer: "))
                line(f"  {doubtful('◦')} {self._number + 1:>2} asks a person      {asked}")

    def settle(self) -> None:
        """The row of like steps has ended: show its last."""
        if self._row > 1:
            if is_terminal():
                line(_REWRITE, newline=False)
            if self._row > 2:  # noqa: PLR2004 - nothing was left out between the first two
                line(dim("     …"))
            line(self._pending)
        self._before, self._row = "", 0

    def _step(self, event: events.StepCompleted) -> None:
        self._number = event.number
        shown = step_line(event.number, event, demo.described(event.step, event.kind))
        if event.step != self._before:
            self.settle()
            line(shown)
        elif is_terminal():
            line(f"{_REWRITE}{shown}", newline=False)
        self._before, self._row, self._pending = event.step, self._row + 1, shown


def line(text: str = "", *, newline: bool = True) -> None:
    """A line of the story; programs get an object at its end instead."""
    if not mode.as_json:
        say(text, newline=newline)


def passing(text: str) -> None:
    """A line that the next one replaces; only where somebody watches."""
    if is_terminal() and not mode.as_json:
        say(f"{_REWRITE}{text}", newline=False)
