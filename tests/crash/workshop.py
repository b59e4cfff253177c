"""Where the labour is done and disturbed: its store in one place, its notes in another that no fault reaches."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from perdure.store.sqlite.store import SqliteStore
from tests import warm
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
        return warm.Popen(
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

    def saved(self) -> set[str]:
        """The steps and effects that the store has, opened anew, its chain verified by perdure itself."""
        if not self.store.exists():
            return set()
        store = SqliteStore(self.store)
        try:
            if store.read_run(labour.RUN_ID) is not None:
                store.load_journal(labour.RUN_ID)
        finally:
            store.close()
        values = [str(value) for value in self.journal().completed().values()]
        return {value.partition(":")[0] for value in values}

    def acknowledged(self) -> set[str]:
        """The steps and effects whose values were handed to the agent."""
        steps = {str(number) for number in self.noted("acknowledged")}
        return steps | {f"announced {number}" for number in self.noted("confirmed")}

    def lost(self) -> set[str]:
        """What was acknowledged and is not saved."""
        return self.acknowledged() - self.saved()

    def finish(self, **settings: str) -> int:
        """Resume undisturbed to the end, settling what is in doubt by the notes; how many effects were in doubt."""
        bodies = len(self.noted("bodies"))
        saved = self.saved()
        ended = self.run(**settings)
        doubtful = self.journal().open_intents() if ended.returncode == IN_DOUBT else []
        if doubtful:
            person.settle(self.store, labour.RUN_ID, doubtful, self._find_out)
            ended = self.run(**settings)
        assert ended.returncode == 0, ended.err
        assert ended.out == f"{self.count}\n"
        assert not saved & {str(number) for number in self.noted("bodies")[bodies:]}, "a saved step ran again"
        expected = range(labour.EFFECT_EVERY - 1, self.count, labour.EFFECT_EVERY)
        assert Counter(self.noted("performed")) == Counter(expected), "an effect was repeated or lost"
        return len(doubtful)

    def _find_out(self, entry: Entry) -> str | None:
        number = entry.body["arguments"]["number"]
        return f"announced {number}" if number in self.noted("performed") else None

    def expect_refusal(self, ended: Ended) -> None:
        """The store failed: three lines say so, and no effect was performed after a step that was not acknowledged."""
        assert ended.returncode == STORE, ended.err
        assert "Traceback" not in ended.err
        happened, safe, hint = ended.err.splitlines()[-3:]
        assert happened.startswith("perdure: ")
        assert safe.startswith("   safe: ")
        assert hint.startswith("     do: ")
        assert set(self.noted("performed")) <= set(self.noted("acknowledged"))
