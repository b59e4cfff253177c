"""One trial of a campaign: the fifty steps killed and resumed in a folder of their own, and what is left, judged.

The judge reads the database by itself, the bodies' log and the outside's ledger; perdure only takes its verdicts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.crash import agent50, killer, person
from tests.crash.evidence import Entry, Journal, effect_key, read_journal, read_letters
from tests.crash.nursery import Ended, Nursery
from tests.crash.outside import World
from tests.summary import note

KILLED: Final = -9
IN_DOUBT: Final = 4
MOST_ROUNDS: Final = 12


@dataclass
class Tally:
    """What a campaign counted; its text is the summary."""

    name: str
    points: int = 0
    planned: int = 0
    landed: int = 0
    resumed: int = 0
    rerun: int = 0
    repeated: int = 0
    in_doubt: int = 0
    reported: int = 0
    verdicts: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        for name in ("points", "planned", "landed", "resumed", "rerun", "repeated", "in_doubt", "reported", "verdicts"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.wrong += other.wrong

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.points} points, {self.planned} kills planned, {self.landed} landed,"
            f" {self.resumed} resumed, {self.rerun} steps re-run, {self.repeated} effects repeated,"
            f" {self.in_doubt} in doubt, {self.reported} reported, {self.verdicts} verdicts, {len(self.wrong)} wrong"
        )

    def check(self) -> None:
        """Hold the campaign to its promises."""
        print(f"\n{self}")
        note(
            self.name,
            trials=self.points,
            landed={"kills": self.landed},
            planned=self.planned,
            in_doubt=self.in_doubt,
            rerun=self.rerun,
            repeated=self.repeated,
            wrong=len(self.wrong),
        )
        assert not self.wrong, "\n".join([str(self), *self.wrong[:20]])
        assert self.planned > 0, str(self)
        assert self.landed == self.planned, str(self)
        assert (self.rerun, self.repeated) == (0, 0), str(self)
        assert self.reported == self.in_doubt, str(self)


@dataclass(frozen=True)
class Reference:
    """A run that nobody interrupted: its result, its values by key, what the outside saw, the moments it passed."""

    out: str
    values: dict[str, Any]
    done: list[tuple[str, str]]
    moments: tuple[str, ...]


@dataclass
class Trial:
    """A run of the fifty steps, from its first process to its last."""

    folder: Path
    nursery: Nursery
    world: World
    reference: Reference | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.tally = Tally(self.folder.name, points=1)

    @property
    def database(self) -> Path:
        return self.folder / ".perdure" / "perdure.db"

    def kill(self, at: str) -> Ended:
        """Run until this moment, and see that the kill landed there."""
        self.tally.planned += 1
        ended = self.run({killer.AT: at})
        if ended.returncode == KILLED:
            self.tally.landed += 1
        else:
            self._wrong(f"not killed at {at}: exit code {ended.returncode}\n{ended.err}")
        return ended

    def run(self, settings: Mapping[str, str] | None = None) -> Ended:
        """One process of this run, judged by what its bodies did to calls that were recorded before it began."""
        before = self.journal()
        chosen = {
            "CRASH_PORT": str(self.world.port),
            "CRASH_WORLD": self.world.name,
            "CRASH_BODIES": str(self.folder / "bodies"),
            **self.settings,
            **(settings or {}),
        }
        ended = self.nursery.run(self.folder, chosen)
        recorded = {effect_key(agent50.RUN_ID, key) for key in before.completed()}
        failed = {(effect_key(agent50.RUN_ID, key), attempt) for key, attempt in before.failed_attempts()}
        for pid, key, attempt in self.bodies():
            if pid == ended.pid and (key in recorded or (key, attempt) in failed):
                self.tally.rerun += 1
                self._wrong(f"attempt {attempt} of {key} ran again")
        return ended

    def resume_to_the_end(self) -> None:
        """Start the agent again until it is done, as its user would, and settle what it says is in doubt."""
        for _ in range(MOST_ROUNDS):
            before = self.journal()
            ended = self.run()
            self.tally.resumed += 1
            self.judge_report(before, ended)
            if ended.returncode == 0:
                return self.judge(ended)
            if ended.returncode != IN_DOUBT:
                return self._wrong(f"exit code {ended.returncode}\n{ended.err}")
            self.settle()
        return self._wrong(f"not done after {MOST_ROUNDS} rounds\n{ended.err}")

    def settle(self) -> None:
        """Play the person: ask the outside about each effect in doubt."""
        person.settle(self.database, agent50.RUN_ID, self._in_doubt(self.journal()), self._asked_outside)

    def judge(self, last: Ended) -> None:
        """Compare what is left with a run that was never interrupted, and with what the outside saw."""
        journal = self.journal()
        if journal.state != "completed":
            self._wrong(f"the run is {journal.state} {journal.reason}")
        self._judge_outside(journal)
        if self.reference is not None:
            if last.out != self.reference.out:
                self._wrong(f"result {last.out} instead of {self.reference.out}")
            if comparable(journal) != self.reference.values:
                self._wrong(f"values differ: {comparable(journal)}")
            if len(journal.failed_attempts()) != agent50.FAILED_ATTEMPTS:
                self._wrong(f"failed attempts: {journal.failed_attempts()}")
        self._judge_another_resume(last)

    def journal(self) -> Journal:
        """What is committed now."""
        return read_journal(self.database, agent50.RUN_ID)

    def bodies(self) -> list[tuple[int, str, int]]:
        """Every execution of a body: process, key, attempt."""
        path = self.folder / "bodies"
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(pid), key, int(attempt)) for pid, key, attempt in (line.split() for line in lines)]

    def _in_doubt(self, journal: Journal) -> list[Entry]:
        """Open intents of effects that only a person can settle."""
        return [entry for entry in journal.open_intents() if entry.name in agent50.PLAIN]

    def _asked_outside(self, entry: Entry) -> str | None:
        """The receipt, if there is one; if there is none, only once nothing can land any more."""
        key = effect_key(agent50.RUN_ID, entry.key)
        receipt = self.world.lookup(entry.name, key)
        remaining = entry.at + agent50.IN_FLIGHT_SECONDS - time.time()
        if receipt or remaining <= 0:
            return receipt
        time.sleep(remaining)
        return self.world.lookup(entry.name, key)

    def judge_report(self, before: Journal, ended: Ended) -> None:
        """Every effect in doubt that nobody has settled must be reported by the process that finds it."""
        if not before.entries:
            return
        letters = {(key, attempt) for _, key, attempt in read_letters(self.database, agent50.RUN_ID)}
        unsettled = [entry for entry in self._in_doubt(before) if (entry.key, entry.body["attempt"]) not in letters]
        if not unsettled:
            return
        self.tally.in_doubt += len(unsettled)
        after = self.journal()
        still = self._in_doubt(after)
        is_named = any(f"{entry.name}(" in ended.err for entry in still)
        is_counted = len(still) == 1 or f" and {len(still) - 1} more " in ended.err
        is_waiting = (ended.returncode, after.state, after.reason) == (IN_DOUBT, "waiting", "in_doubt")
        if is_waiting and is_named and is_counted:
            keys = {entry.key for entry in still}
            self.tally.reported += sum(entry.key in keys for entry in unsettled)

    def _judge_outside(self, journal: Journal) -> None:
        executions = self.world.executions()
        for (operation, key), count in Counter((found.operation, found.key) for found in executions).items():
            if count > 1:
                self.tally.repeated += count - 1
                self._wrong(f"{operation} happened {count} times under key {key}")
        done = sorted((found.operation, found.payload) for found in executions)
        if self.reference is not None and done != self.reference.done:
            self._wrong(f"the outside saw {done}")
        seen = {(found.key, found.attempt) for found in executions}
        for entry in journal.verdicts():
            self.tally.verdicts += 1
            happened = (effect_key(agent50.RUN_ID, entry.key), entry.body["attempt"]) in seen
            if happened != (entry.body["outcome"] == "happened"):
                self._wrong(f"verdict {entry.body['outcome']} on {entry.name}, but the outside says {happened}")

    def _judge_another_resume(self, last: Ended) -> None:
        """Starting a completed run again returns its result and does nothing."""
        before = (self.journal(), len(self.bodies()), self.world.requests())
        again = self.run()
        if (again.returncode, again.out) != (0, last.out):
            self._wrong(f"resumed once more: exit code {again.returncode}, {again.out}\n{again.err}")
        if (self.journal(), len(self.bodies()), self.world.requests()) != before:
            self._wrong("resumed once more, it did something")

    def _wrong(self, what: str) -> None:
        self.tally.wrong.append(f"{self.folder.name}: {what}")


def uninterrupted(folder: Path, nursery: Nursery, world: World) -> Reference:
    """Run the agent once without a kill."""
    trial = Trial(folder, nursery, world)
    moments = folder / "moments"
    ended = trial.run({killer.MOMENTS: str(moments)})
    assert ended.returncode == 0, ended.err
    passed = tuple(moments.read_text().splitlines())
    trial.judge(ended)
    assert not trial.tally.wrong, trial.tally.wrong
    assert len(trial.journal().completed()) == agent50.STEPS
    assert len(trial.journal().failed_attempts()) == agent50.FAILED_ATTEMPTS
    done = sorted((found.operation, found.payload) for found in world.executions())
    return Reference(ended.out, comparable(trial.journal()), done, passed)


def comparable(journal: Journal) -> dict[str, Any]:
    """The values by key, but those that are random by nature."""
    drawn = {entry.key for entry in journal.entries if entry.name == "perdure.uuid"}
    return {key: value for key, value in journal.completed().items() if key not in drawn}
