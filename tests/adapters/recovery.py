"""Kills the agents of frameworks, resumes them, and judges: by the model server, by a log outside, by the journal."""

from __future__ import annotations

import fcntl
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perdure.testing.model_server import ModelProcess
from perdure.testing.model_server.ledger import Request
from tests import summary
from tests.crash import killer, person
from tests.crash.evidence import Entry, Journal, read_journal
from tests.crash.nursery import Ended, Nursery
from tests.sampling import points

RUN_ID = "trial"
KILLED = -9
IN_DOUBT = 4
MOST_ROUNDS = 8


@dataclass(frozen=True)
class Reference:
    """A run that nobody interrupted."""

    out: str
    outside: Counter[str]
    moments: tuple[str, ...]
    model_steps: frozenset[str]
    """The keys of the steps that ask the model."""


@dataclass
class Trial:
    """One run, from its first process to its last, in a folder of its own."""

    folder: Path
    nursery: Nursery
    model: ModelProcess
    settings: Mapping[str, str] = field(default_factory=dict)
    doubted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)

    def run(self, **settings: str) -> Ended:
        """One process of this run."""
        told = {
            **self.model.environment(),
            "MODEL": self.folder.name,
            "PERDURE_DURABILITY": "process",
            **self.settings,
            **settings,
        }
        return self.nursery.run(self.folder, told)

    def kill(self, at: str) -> None:
        ended = self.run(**{killer.AT: at})
        assert ended.returncode == KILLED, (at, ended)
        self.wait_for_servers()

    def resume_to_the_end(self) -> Ended:
        """Start it again, and settle what it says is in doubt, as a person would who can see the log."""
        for _ in range(MOST_ROUNDS):
            ended = self.run()
            if ended.returncode == 0:
                return ended
            assert ended.returncode == IN_DOUBT, ended.err
            doubtful = self.journal().open_intents()
            assert any(f"{entry.name}(" in ended.err for entry in doubtful), ended.err
            self.doubted += [entry.name for entry in doubtful]
            person.settle(self.database, RUN_ID, doubtful, self._find_out)
        raise AssertionError(ended.err)

    def wait_for_servers(self) -> None:
        """A server that a dead client started may still be at work; it holds this lock until it ends."""
        with (self.folder / "server-lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)

    @property
    def database(self) -> Path:
        return self.folder / ".perdure" / "perdure.db"

    def journal(self) -> Journal:
        return read_journal(self.database, RUN_ID)

    def outside(self) -> Counter[str]:
        """What really happened, by the log that every tool writes: how often each thing did."""
        log = self.folder / "outside"
        return Counter(log.read_text().splitlines() if log.exists() else [])

    def asked(self) -> list[Request]:
        """What the model was asked by this run."""
        named = self.folder.name
        return [
            each for each in self.model.requests if each.is_question and named in (each.body.get("model"), _in(each))
        ]

    def _find_out(self, entry: Entry) -> str | None:
        what = f"{entry.name.rpartition('.')[2]} {entry.body['arguments']['what']}"
        under_key = f"{what} {entry.body['effect_key'][:8]}"
        return f"{what}: done" if {what, under_key} & {*self.outside()} else None


def end() -> None:
    """End a child whose run is over: taking a framework down piece by piece takes longer than the run."""
    sys.stdout.flush()
    os._exit(0)


def uninterrupted(trial: Trial, *, model_step: str) -> Reference:
    """Run it without a kill; `model_step` begins the names of steps that ask the model."""
    ended = trial.run(**{killer.MOMENTS: str(trial.folder / "moments")})
    assert ended.returncode == 0, ended.err
    steps = [entry for entry in trial.journal().entries if entry.kind == "step"]
    model_steps = frozenset(entry.key for entry in steps if entry.name.startswith(model_step))
    assert len(trial.asked()) == len(model_steps) > 1
    assert set(trial.outside().values()) == {1}
    return Reference(
        ended.out,
        trial.outside(),
        tuple((trial.folder / "moments").read_text().splitlines()),
        model_steps,
    )


def judge(trial: Trial, reference: Reference, *, at: str, free: Sequence[str] = ()) -> Ended:
    """Resume a killed run to its end and hold it to what is promised; `free` begins log lines that may come again."""
    ended = trial.resume_to_the_end()
    assert ended.out == reference.out, (at, ended)
    once = {line: count for line, count in trial.outside().items() if not line.startswith((*free, "\0"))}
    assert once == {line: 1 for line in reference.outside if not line.startswith((*free, "\0"))}, (at, once)
    assert set(trial.outside()) == set(reference.outside), at
    answered = Counter(each.turn for each in trial.asked() if each.state == "answered")
    assert sum(answered.values()) - len(answered) <= _unrecorded(at, reference), (at, answered)
    before = (trial.journal(), trial.outside(), len(trial.asked()))
    again = trial.run()
    assert (again.returncode, again.out) == (0, reference.out), again.err
    assert (trial.journal(), trial.outside(), len(trial.asked())) == before, at
    return ended


def campaign(
    name: str, folder: Path, nursery: Nursery, model: ModelProcess, reference: Reference, **options: Any
) -> None:
    """Kill at every so many moments of the reference, and at the extra ones; judge each."""
    stride, extra, free = options["stride"], options.get("extra", ()), options.get("free", ())
    settings = options.get("settings", {})
    chosen = [*points(reference.moments, stride), *extra]
    doubted = 0
    for number, moment in enumerate(chosen):
        trial = Trial(folder / f"{name}-{number}", nursery, model, settings)
        trial.kill(at=moment)
        judge(trial, reference, at=moment, free=free)
        doubted += len(trial.doubted)
    planned = len(chosen)
    summary.note(name, trials=planned, landed={"kills": planned}, planned=planned, in_doubt=doubted)


def _unrecorded(at: str, reference: Reference) -> int:
    """How many answers a kill at this moment can lose: the one whose record was not committed yet."""
    side, _, what = at.partition(":")
    kind, _, key = what.rpartition("#")[0].partition(":")
    return int(side in ("before", "inside") and kind == "step" and key in reference.model_steps)


def _in(request: Request) -> str:
    """The model's name, where a dialect has it in the address."""
    return request.path.partition("/models/")[2].partition(":")[0]
