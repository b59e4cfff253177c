"""`perdure demo`: watch an agent be killed in the middle of an effect."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import click
import msgspec
from msgspec import Raw

import perdure
from perdure import demo as scenario
from perdure import events
from perdure.cli.mode import is_terminal
from perdure.cli.options import command, store_option
from perdure.cli.progress import intent_line, step_line
from perdure.cli.screen import bad, bold, dim, say, spread
from perdure.errors import InternalError, UsageError
from perdure.settings import current_settings

_REWRITE: Final = "\r\x1b[K"
_EVENTS: Final[dict[str, type[events.Event]]] = {
    kind.__name__: kind for kind in (events.RunStarted, events.StepCompleted, events.IntentRecorded)
}


@click.command()
@click.option("--after-send", is_flag=True, help="Kill it after the mail was sent, before that was recorded.")
@click.option("--fast", is_flag=True, help="Without the pauses that let you watch.")
@store_option
def demo(*, after_send: bool, fast: bool) -> int:
    """Run an agent of 50 steps that is killed (SIGKILL) while it sends a mail; then resume it.

    The model, its tokens and its prices are made up. The kill, the journal and the outbox file are real.
    """
    settings = current_settings()
    if settings.store.startswith("memory:"):
        raise UsageError(
            "The store is memory:, which would die with the demo.",
            safe="nothing was started.",
            hint="perdure demo --store ./.perdure/perdure.db",
        )
    child = _start(settings.store, death="after" if after_send else "before", pace=0.0 if fast else 1.0)
    watched = Watched(Path(settings.store).parent)
    with child:
        for line in child.stdout or ():
            watched.show(line)
        watched.settle()
    code = child.returncode
    if code != -signal.SIGKILL:
        return _not_killed(code)
    say(spread(f"  {bad('killed')} (SIGKILL, that was us).", f"next: {bold(command('resume'))}"))
    return 0


class Watched:
    """The child's events as lines: the first and the last of a row of like steps, the rest only while it happens."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._before = ""
        self._row = 0
        self._pending = ""

    def show(self, line: bytes) -> None:
        """Show what this line of the child says."""
        name, body = msgspec.json.decode(line, type=tuple[str, Raw])
        if name not in _EVENTS:
            return
        match msgspec.json.decode(body, type=_EVENTS[name]):
            case events.RunStarted() as event:
                kept = self._folder if self._folder.is_absolute() else f"./{self._folder}"
                say(spread(f"run {bold(event.run_name)}  {event.agent}  {scenario.STEPS} steps", f"state: {kept}"))
                say(dim("  a demo: the model, its tokens and its prices are made up"))
            case events.StepCompleted() as event:
                self._step(event)
            case events.IntentRecorded() as event:
                self.settle()
                say(intent_line(event.number, event))

    def settle(self) -> None:
        """The row of like steps has ended: show its last."""
        if self._row > 1:
            if is_terminal():
                say(_REWRITE, newline=False)
            if self._row > 2:  # noqa: PLR2004 - nothing was left out between the first two
                say(dim("     …"))
            say(self._pending)
        self._before, self._row = "", 0

    def _step(self, event: events.StepCompleted) -> None:
        line = step_line(event.number, event, scenario.described(event.step, event.kind))
        if event.step != self._before:
            self.settle()
            say(line)
        elif is_terminal():
            say(f"{_REWRITE}{line}", newline=False)
        self._before, self._row, self._pending = event.step, self._row + 1, line


def _start(store: str, *, death: str, pace: float) -> subprocess.Popen[bytes]:
    """The agent in a process of its own, which finds this very perdure and nothing that merely lies in the folder."""
    own = str(Path(perdure.__file__).parent.parent)
    path = os.pathsep.join(filter(None, (own, os.environ.get("PYTHONPATH"))))
    arguments = [sys.executable, "-P", "-m", "perdure.demo", death, str(pace)]
    environment = {**os.environ, "PYTHONPATH": path, "PERDURE_STORE": store}
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, env=environment)  # noqa: S603 - our own module


def _not_killed(code: int) -> int:
    """The child has said on standard error what went wrong, unless it was ended or simply went on."""
    if code > 0:
        return code
    raise InternalError(
        f"The demo's process ended with {code} instead of being killed.",
        safe="nothing but the demo's own run was touched.",
        hint="perdure show; then perdure demo again",
    )
