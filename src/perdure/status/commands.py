"""Commands as a person can paste them: to resume, settle, answer, signal, undo."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from perdure.engine.whereabouts import UNDO_AGENT, undone_by
from perdure.errors import (
    CheckpointCorrupt,
)
from perdure.forms import approving
from perdure.records import Run
from perdure.store import shown
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from perdure.bodies import Question
    from perdure.store.protocol import Store
from perdure.status.open_calls import OpenEffect, OpenWait

DEMO_AGENT: Final = "perdure.demo"
"""The agent whose code needs no naming, like those whose names begin with it and a dot."""


class Commands:
    """Commands as a person can paste them; with `store`, they name it."""

    def __init__(self, store: str = "", *, runs: Store | None = None) -> None:
        self._location = store
        self._store = ("--store", shown(store)) if store else ()
        self._runs = runs

    def __call__(self, *words: str) -> str:
        return shlex.join(("perdure", *words, *self._store))

    def among(self, runs: Store) -> Commands:
        """The same for the runs of this store: one that shares its name with another is called by its id."""
        return Commands(self._location, runs=runs)

    def named(self, run: Run) -> str:
        """What to call this run, so that no other is meant."""
        if self._runs is None:
            return run.name
        with contextlib.suppress(CheckpointCorrupt):
            if len(self._runs.list_runs(name=run.name, limit=2)) <= 1:
                return run.name
        return run.run_id

    def resume(self, run: Run, *options: str) -> str:
        """How to resume; the demo's code is known, any other must be named."""
        if run.agent == UNDO_AGENT:
            other = undone_by(self._runs, run) if self._runs is not None else None
            return self.undo(run, of=other or run)
        if is_demo(run.agent):
            return self("resume", self.named(run), *options)
        return self("resume", self.named(run), *options, "--app", likely_app(run.agent) or "FILE")

    def undo(self, run: Run, *, of: Run | None = None) -> str:
        """How to take back what a run did; where this one is to do that, `of` is the run whose code knows how."""
        agent = (of or run).agent
        app = () if is_demo(agent) else ("--app", likely_app(agent) or "FILE")
        return self("undo", self.named(run), *app)

    def settle(self, run: Run, effect: OpenEffect, others: list[OpenEffect]) -> str:
        """How to settle this effect, by its name where that is enough."""
        is_alone = sum(other.name == effect.name for other in others) <= 1 and not effect.name.isdecimal()
        step = effect.name if is_alone else str(effect.number)
        return f"{self('settle', self.named(run), step)} <--happened [JSON] | --did-not-happen>"

    def answer(self, run: Run, wait: OpenWait, others: list[OpenWait]) -> str:
        """How to answer this question; it ends in <> or (), so that no shell takes it before a person has chosen."""
        question = wait.opened.question
        if question is not None and approving(question) is not None:
            return f"{self.reply('approve', run, wait, others)} (or: {self.reply('reject', run, wait, others)})"
        return f"{self.reply('answer', run, wait, others)} {'<text>' if question is None else answer_words(question)}"

    def reply(self, verb: str, run: Run, wait: OpenWait, others: list[OpenWait]) -> str:
        """The command of this verb for this question; its number is named where there are several."""
        questions = sum(bool(other.question_number) for other in others)
        which = ("--question", str(wait.question_number)) if questions > 1 else ()
        return self(verb, self.named(run), *which)

    def signal(self, run: Run, wait: OpenWait) -> str:
        """How to send what this wait is for."""
        return f"{self('signal', self.named(run), wait.opened.signal)} <json>"


def is_demo(agent: str) -> bool:
    """Whether this is an agent of perdure's own."""
    return agent == DEMO_AGENT or agent.startswith(f"{DEMO_AGENT}.")


def answer_words(question: Question) -> str:
    """What a person writes as the answer to this question."""
    if question.options:
        return f"<{'|'.join(legible(shlex.quote(option)) for option in question.options)}>"
    return "<text>" if bytes(question.form) == b"null" else "--value <json>"


def likely_app(agent: str) -> str:
    """The code to name, where a file here has the name that the agent's module must have; looked for, never opened."""
    if agent.endswith(".py") and Path(agent).is_file():
        return agent
    parts = agent.split(".")
    if all(part.isidentifier() for part in parts):
        for length in range(len(parts) - 1, 0, -1):
            if Path(*parts[:length]).with_suffix(".py").is_file():
                return f"{parts[0]}.py" if length == 1 else ".".join(parts[:length])
    return ""
