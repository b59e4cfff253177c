"""Agents of frameworks that are killed at one moment, resumed in other processes, and judged from outside.

A trial has a folder of its own: the store, `world` (a line for each thing a tool did to the outside, appended before
anything else happens), `moments` and `result`. The model is a server in the process of the test.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from perdure.testing.model_server import ModelServer
from tests import summary
from tests.crash import killer
from tests.crash.evidence import Entry, Journal, read_journal
from tests.crash.nursery import Ended, Nursery
from tests.crash.person import settle
from tests.sampling import points

RUN_ID: Final = "trial"
WORLD: Final = "world"
IN_DOUBT: Final = 4
_UNCOMMITTED: Final = ("before", "inside")


def act(name: str, *arguments: object) -> str:
    """Do something to the outside: it has happened once this returns, and the process may die on either side."""
    line = " ".join([name, *map(str, arguments)])
    killer.moment("acting", line)
    descriptor = os.open(WORLD, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(descriptor, f"{line}\n".encode())
    os.close(descriptor)
    killer.moment("acted", line)
    return line


def tell(result: object) -> None:
    """What the process under trial came to."""
    Path("result").write_text(json.dumps(result))


def undergo(agent: Callable[[], object]) -> None:
    """A process under trial, from its first write to its end; taking the frameworks apart again would take longest."""
    killer.arm()
    code: Any = 0
    try:
        tell(agent())
    except BaseException as error:  # noqa: BLE001 - as the interpreter does it
        code = 1
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except SystemExit as leaving:
            code = leaving.code
    sys.stderr.flush()
    os._exit(code)


@dataclass(frozen=True)
class Trial:
    """One run, killed or not, and everything that can be seen of it."""

    folder: Path
    nursery: Nursery
    model: ModelServer
    settings: dict[str, str] = field(default_factory=dict)

    def start(self, *, kill_at: str = "", **settings: str) -> Ended:
        """One process of the run, to its end or its death."""
        chosen = {
            "PERDURE_STORE": str(self.store),
            "PERDURE_DURABILITY": "process",
            killer.MOMENTS: str(self.folder / "moments"),
            killer.AT: kill_at,
        }
        return self.nursery.run(self.folder, self.model.environment() | chosen | self.settings | settings)

    def finish(self) -> int:
        """Resume until it has completed, a person settling what is in doubt by looking; how often one was asked."""
        asked = 0
        for _ in range(8):
            ended = self.start()
            if ended.returncode == 0:
                return asked
            assert ended.returncode == IN_DOUBT, ended.err
            doubtful = self.journal().open_intents()
            assert doubtful, ended.err
            asked += len(doubtful)
            settle(self.store, RUN_ID, doubtful, self._found)
        raise AssertionError("the run does not come to its end")

    def _found(self, entry: Entry) -> str | None:
        """What a person finds who looks whether a letter was sent."""
        line = f"{entry.name} {entry.body['arguments']['to']}"
        return line if self.world()[line] else None

    @property
    def store(self) -> Path:
        return self.folder / "perdure.db"

    def journal(self) -> Journal:
        return read_journal(self.store, RUN_ID)

    def moments(self) -> list[str]:
        return (self.folder / "moments").read_text().splitlines()

    def world(self) -> Counter[str]:
        """What happened outside, and how often."""
        path = self.folder / WORLD
        return Counter(path.read_text().splitlines() if path.exists() else [])

    def result(self) -> Any:
        return json.loads((self.folder / "result").read_text())


@dataclass(frozen=True)
class Subject:
    """An agent under trial, and what an uncrashed run of it comes to."""

    campaign: str
    write: Callable[[ModelServer], object]
    model_step: str
    requests: int
    result: list[Any]
    calls_at: int
    """Where in the result the calls are that tools counted in memory."""


def every_point(subject: Subject, nursery: Nursery, folder: Path, *, stride: int, streamed: bool) -> None:
    """Kill at each chosen moment, resume elsewhere to the end, and judge by what the world and the model saw."""
    settings = {"STREAMED": "yes"} if streamed else {}
    with ModelServer() as model:
        subject.write(model)
        reference = Trial(folder / "whole", nursery, model, settings)
        reference.folder.mkdir()
        ended = reference.start()
        assert ended.returncode == 0, ended.err
        assert (reference.result(), model.count()) == (subject.result, subject.requests)
        found = kills(reference)
        assert len(found) > 40  # however few of them are chosen, the run has that many
        chosen = points(found, stride)
        asked = landed = 0
        for number, moment in enumerate(chosen):
            one = Trial(folder / str(number), nursery, model, settings)
            one.folder.mkdir()
            before = model.count()
            landed += one.start(kill_at=moment).returncode == -signal.SIGKILL
            asked += one.finish()
            again = asked_again(moment, model_step=subject.model_step)
            assert model.count() - before == subject.requests + again, moment
            judge(subject, one, moment)
    planned = len(chosen)
    summary.note(subject.campaign, trials=planned, landed={"kills": landed}, planned=planned, in_doubt=asked)
    assert landed == planned > 0


def one_of_two(subject: Subject, nursery: Nursery, folder: Path) -> None:
    """Of a payment and a letter that are under way at once, the letter is on record when the process dies."""
    with ModelServer() as model:
        subject.write(model)
        reference = Trial(folder / "whole", nursery, model)
        reference.folder.mkdir()
        assert reference.start().returncode == 0
        (paid,) = [name for name in kills(reference) if name.startswith("acted:pay")]
        _, second_letter = [name for name in kills(reference) if name.startswith("after:receipt:") and "=send" in name]
        one = Trial(folder / "one", nursery, model)
        one.folder.mkdir()
        ended = one.start(kill_at=second_letter, **{killer.HOLD_AT: paid})
        assert ended.returncode == -signal.SIGKILL
        before = one.journal()
        assert [entry.name for entry in before.open_intents()] == ["pay"]
        assert [entry.name for entry in receipts_of(before)] == ["send", "send"]
        one.finish()
        assert receipts_of(one.journal())[:2] == receipts_of(before)
        judge(subject, one, second_letter)


def receipts_of(journal: Journal) -> list[Entry]:
    """What effects are known to have done, in the order in which it became known."""
    return [entry for entry in journal.entries if entry.kind == "receipt"]


def judge(subject: Subject, one: Trial, moment: str) -> None:
    """Each letter was sent once, each payment made under one key, and the result is that of an uncrashed run."""
    world = one.world()
    assert {line: count for line, count in world.items() if line.startswith("send")} == {"send ada": 1, "send bob": 1}
    assert sum(line.startswith("pay 900") for line in world) == 1, moment  # again, if at all, under the same key
    journal = one.journal()
    expected = list(subject.result)
    # What a tool changed in memory is on record with what it returned: of a call that a person settled, neither is.
    expected[subject.calls_at] -= sum(entry.body["outcome"] == "happened" for entry in journal.verdicts())
    assert one.result() == expected, moment
    assert one.start().returncode == 0
    assert one.journal() == journal, moment


def kills(reference: Trial) -> list[str]:
    """The moments of an uncrashed run at which a process can die: those of its start and end are others' business."""
    named = [name for name in reference.moments() if "=" in name or name.startswith(("acting", "acted"))]
    return list(dict.fromkeys(named))


def asked_again(moment: str, *, model_step: str) -> int:
    """How many requests must be sent a second time: one, if its answer was not recorded yet."""
    side, _, what = moment.partition(":")
    return int(side in _UNCOMMITTED and f"={model_step}:" in what)
