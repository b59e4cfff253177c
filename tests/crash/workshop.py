"""Where the labour is done and disturbed: its store in one place, its notes in another that no fault reaches."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perdure.store.sqlite.store import SqliteStore
from tests.crash import labour, person
from tests.crash.evidence import Entry, Journal, read_journal
from tests.crash.nursery import Ended, environment
from tests.crash.trial import IN_DOUBT

STORE: Final = 6
PATIENCE_SECONDS: Final = 120.0


@dataclass
class Workshop:
    """The labour's store and its notes."""

    store: Path
    notes: Path
    count: int = 60

    def start(self, *prefix: str, **settings: str) -> subprocess.Popen[str]:
        """Start the labour, behind a command that disturbs it where one is given."""
        return subprocess.Popen(
            [*prefix, sys.executable, "-m", "tests.crash.labour", str(self.count)],
            cwd=self.notes,
            env=environment({"PERDURE_STORE": str(self.store), "CRASH_NOTES": str(self.notes), **settings}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *prefix: str, **settings: str) -> Ended:
        """The labour, to its end."""
        with self.start(*prefix, **settings) as process:
            out, err = process.communicate(timeout=PATIENCE_SECONDS)
            return Ended(process.pid, process.returncode, out, err)

    def noted(self, file: str) -> list[int]:
        """The numbers in one of the notes."""
        path = self.notes / file
        return [int(line) for line in path.read_text().splitlines()] if path.exists() else []

    def journal(self) -> Journal:
        return read_journal(self.store, labour.RUN_ID)

    def lost(self) -> set[int]:
        """Acknowledged steps and effects that the store, opened anew and verified, does not have."""
        acknowledged = {f"work:{number}" for number in self.noted("acknowledged")}
        acknowledged |= {f"announce:{number}" for number in self.noted("confirmed")}
        ...

    def expect_refusal(self, ended: Ended) -> None:
        """The store failed: three lines say so, and no effect was performed after a step that was not acknowledged."""
        assert ended.returncode == STORE, ended.err
        assert "Traceback" not in ended.err
        happened, safe, hint = ended.err.splitlines()[-3:]
        assert happened.startswith("perdure: ")
        assert safe.startswith("   safe: ")
        assert hint.startswith("     do: ")
        assert set(self.noted("performed")) <= set(self.noted("acknowledged"))
