"""Scripts that know nothing of perdure, killed at one moment, executed again until they are done, and judged."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import certifi

from perdure.testing.model_server import ModelServer
from tests.crash import killer
from tests.crash.evidence import Entry, Journal, read_journal
from tests.crash.nursery import Ended, Nursery
from tests.crash.person import settle

RUN_ID: Final = "trial"
SCRIPTS: Final = Path(__file__).parent / "scripts"
IN_DOUBT: Final = 4
MOST_ROUNDS: Final = 12
AT_A_HANDOFF: Final = "handed over"
_UNCOMMITTED: Final = ("before", "inside")


@dataclass
class Trial:
    """One run of a script, from its first process to its last, in a folder of its own."""

    folder: Path
    nursery: Nursery
    model: ModelServer
    script: str
    arguments: Sequence[str] = ()
    settings: dict[str, str] = field(default_factory=dict)
    doubted: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)

    def run(self, *, kill_at: str = "", moments: bool = False, **settings: str) -> Ended:
        """One process of this run, to its end or its death."""
        told = {
            **self.model.environment(),
            "PERDURE_STORE": str(self.store),
            "PERDURE_DURABILITY": "process",
            "SSL_CERT_FILE": str(certificate(self.folder)),
            "STAGE_RUN": RUN_ID,
            "STAGE_SCRIPT": str(SCRIPTS / self.script),
            "STAGE_ARGUMENTS": json.dumps(list(self.arguments)),
            **self.settings,
            **settings,
        }
        if kill_at:
            told[killer.AT] = kill_at
        if moments:
            told[killer.MOMENTS] = str(self.folder / "moments")
        return self.nursery.run(self.folder, told)

    def finish(self) -> Ended:
        """Execute it until it is done; a person settles what is in doubt by looking at what really happened."""
        for _ in range(MOST_ROUNDS):
            ended = self.run()
            if ended.returncode == 0:
                return ended
            assert ended.returncode == IN_DOUBT, ended.err
            doubtful = self.journal().open_intents()
            assert doubtful, ended.err
            self.doubted += [entry.name for entry in doubtful]
            settle(self.store, RUN_ID, doubtful, self._found)
        raise AssertionError(ended.err)

    @property
    def store(self) -> Path:
        return self.folder / "perdure.db"

    def journal(self) -> Journal:
        return read_journal(self.store, RUN_ID)

    def outside(self) -> Counter[str]:
        """What really happened, and how often."""
        log = self.folder / "outside"
        return Counter(log.read_text().splitlines() if log.exists() else [])

    def moments(self) -> list[str]:
        """Where a kill can matter: on either side of every record of a model call or a tool."""
        passed = (self.folder / "moments").read_text().splitlines()
        return [name for name in dict.fromkeys(passed) if ":=" in name]

    def _found(self, entry: Entry) -> str | None:
        arguments = entry.body["arguments"]["arguments"].values()
        what = AT_A_HANDOFF if entry.name.startswith("transfer_to_") else " ".join(map(str, (entry.name, *arguments)))
        return f"{what}: done" if self.outside()[what] else None


@dataclass(frozen=True)
class Whole:
    """A run that nobody interrupted."""

    out: str
    outside: Counter[str]
    requests: int
    moments: list[str]


@contextmanager
def loaded(*frameworks: str, python: str = "") -> Iterator[Nursery]:
    """A process that has loaded these modules, and forks every process of a trial."""
    os.environ["STAGE_FRAMEWORKS"] = " ".join(frameworks)
    try:
        nursery = Nursery("tests.adapters.run.stage", **({"python": python} if python else {}))
    finally:
        del os.environ["STAGE_FRAMEWORKS"]
    with nursery as opened:
        yield opened


def uninterrupted(trial: Trial) -> Whole:
    """Execute it without a kill: everything it does is protected, and a second time nothing is done."""
    before = trial.model.count()
    ended = trial.run(moments=True)
    assert ended.returncode == 0, ended.err
    assert "not protected: the" not in ended.err, ended.err
    assert set(trial.outside().values()) <= {1}, trial.outside()
    return Whole(ended.out, trial.outside(), trial.model.count() - before, trial.moments())


def judge(trial: Trial, whole: Whole, *, at: str) -> None:
    """Kill it there, finish it, and hold it to what is promised."""
    before = trial.model.count()
    killed = trial.run(kill_at=at)
    assert killed.returncode == -signal.SIGKILL, (at, killed)
    ended = trial.finish()
    assert ended.out == whole.out or _is_told_apart(trial), (at, ended.out, whole.out)
    assert trial.outside() == whole.outside, (at, trial.outside())
    assert trial.model.count() - before == whole.requests + asked_again(at), (at, trial.model.requests[-8:])


def asked_again(moment: str) -> int:
    """How many requests must be sent a second time: one, if its answer was not recorded yet."""
    side, _, what = moment.partition(":")
    return int(side in _UNCOMMITTED and ":=model:" in what)


def _is_told_apart(trial: Trial) -> bool:
    """Whether a person said of a tool that it happened: what it changed in memory, nobody recorded."""
    return any(entry.body["outcome"] == "happened" for entry in trial.journal().verdicts())


def certificate(folder: Path) -> Path:
    """One certificate in place of all: nobody here speaks TLS, and to load them takes longer than the rest."""
    path = folder / "certificate.pem"
    if not path.exists():
        end = "-----END CERTIFICATE-----\n"
        path.write_text(Path(certifi.where()).read_text().partition(end)[0] + end)
    return path
