"""What of a script was protected, and what was not, by name: nothing that can be seen is passed over in silence."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from perdure.engine.active import Active, Stop
from perdure.errors import UnprotectedCall, saved_steps
from perdure.records import RunState, WaitReason
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.adapters.http.wire import ToolResult
    from perdure.adapters.tools.pending import Pending
    from perdure.adapters.userland.outside import Seen


class Coverage:
    """The account of one script; safe from any thread."""

    def __init__(self, active: Active, *, strict: bool) -> None:
        self._active = active
        self._strict = strict
        self._lock = threading.Lock()
        self._unprotected: dict[str, str] = {}

    def audit(self, pending: Pending, results: Iterable[ToolResult]) -> None:
        """Look at the tool results that go to a model: one whose tool nobody saw performed was not protected."""
        for result in results:
            awaited = pending.answered(result.id, result.name)
            if awaited is not None:
                name = awaited.call.name
                self.report(f"tool {name}", f"the tool {name}: nothing of it was recorded, a resume performs it again")

    def lost(self, name: str, what: str) -> None:
        """A tool was performed, and what it returned cannot be kept."""
        self.report(f"result {name}", f"the result of {name} ({what}): a resume cannot go past it")

    def outside(self, seen: Seen) -> None:
        """The script's own code did something outside of any tool."""
        self.report(f"{seen.what} {seen.place}", f"{seen.what} ({Path(seen.file).name}:{seen.line})")

    def report(self, what: str, words: str) -> None:
        """Something is not protected: it is said once, and stops a strict run."""
        with self._lock:
            if what in self._unprotected:
                return
            self._unprotected[what] = legible(words)
        if self._strict:
            row = self._active.row
            problem = UnprotectedCall(
                f"Run {row.name}: not protected is {legible(words)}.",
                safe=f"{saved_steps(row.steps)}; nothing more is performed.",
                hint="protect it (docs: guides/any-script), or run without --strict",
            )
            raise self._active.halt(Stop(RunState.WAITING, WaitReason.PARKED, problem))

    def unprotected(self) -> list[str]:
        """What was not protected, in words."""
        with self._lock:
            return list(self._unprotected.values())
