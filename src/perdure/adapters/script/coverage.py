"""What of a script was protected, and what was not, by name: nothing that can be seen is passed over in silence."""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure.adapters.http.matching import TOOL
from perdure.bodies import Note
from perdure.engine.active import Active, Stop
from perdure.errors import UnprotectedCall, saved_steps
from perdure.records import RunState, WaitReason
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from perdure.adapters.http.wire import ToolResult
    from perdure.adapters.tools.pending import Pending
    from perdure.adapters.userland.outside import Seen

_SHOWN: Final = 5
"""How many things are named; of more it is said how many they are."""


class Coverage:
    """The account of one script; safe from any thread."""

    def __init__(self, active: Active, *, strict: bool, clean: Callable[[str], str]) -> None:
        self._active = active
        self._strict = strict
        self._clean = clean
        self._lock = threading.RLock()  # a hook of Python may come in the middle of this, too
        self._unprotected: set[str] = set()
        self._noted = {note.text for _, note in active.journal.notes if note.about == "unprotected"}
        self._unwritten: list[Note] = []

    def audit(self, pending: Pending, results: Iterable[ToolResult]) -> bool:
        """Look at the tool results that go to a model: one whose tool nobody saw performed was not protected.

        Whether there are such tools that no record tells of: nobody is to start the run again without knowing of them.
        """
        for result in results:
            awaited = pending.answered(result.id, result.name)
            if awaited is not None:
                name = awaited.call.name
                if (entry := self._active.journal.entries.get(f"{TOOL}{awaited.place}")) is not None:
                    other = f"{name} was performed where it is not seen (renamed?), and may have acted a second time"
                    raise self._active.diverge(entry.shown_call(), other)
                words = f"the tool {name}: nothing of it was recorded, a resume performs it again"
                self.report(f"tool {name}", words, tool=name)
        with self._lock:
            return any(note.by for note in self._unwritten)

    def lost(self, name: str, what: str) -> None:
        """A tool was performed, and what it returned cannot be kept."""
        self.report(f"result {name}", f"the result of {name} ({what}): a resume cannot go past it")

    def outside(self, seen: Seen) -> None:
        """The script's own code did something outside of any tool."""
        self.report(f"{seen.what} {seen.place}", f"{seen.what} ({Path(seen.file).name}:{seen.line})")

    def report(self, what: str, words: str, *, tool: str = "") -> None:
        """Something is not protected: it is said once, kept with the run, and stops a strict one."""
        with self._lock:
            if what in self._unprotected:
                return
            self._unprotected.add(what)
            number = len(self._unprotected)
            text = f"not protected: {self._clean(words)}"
            if text not in self._noted:
                self._noted.add(text)
                self._unwritten.append(Note(about="unprotected", text=text, by=self._clean(tool)))
        if number <= _SHOWN:
            sys.stderr.write(f"perdure: not protected: {legible(words)}\n")
        if self._strict:
            row = self._active.row
            problem = UnprotectedCall(
                f"Run {row.name}: not protected is {legible(words)}.",
                safe=f"{saved_steps(row.steps)}; nothing more is performed.",
                hint="protect it (docs: guides/any-script), or run without --strict",
            )
            raise self._active.halt(Stop(RunState.WAITING, WaitReason.PARKED, problem))

    def take_unwritten(self) -> list[Note]:
        """What no process of the run has written yet: it is written with the next record, and not in a hook of Python,
        which may be called in the middle of anything.
        """
        with self._lock:
            taken, self._unwritten = self._unwritten, []
            return taken

    def unsaid(self) -> int:
        """How many things were not protected beyond those that were named."""
        with self._lock:
            return max(0, len(self._unprotected) - _SHOWN)
