"""Playing the people around a run: doubts are settled by asking the oracle, questions answered, signals sent.

They write to the run's mailbox, as `perdure settle`, `answer` and `signal` do, and nothing else.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Raw

from perdure.engine.ask import fitting
from perdure.engine.mailbox import Letter, mail_key
from perdure.errors import UsageError
from perdure.records import Mail, RunState, WaitReason
from perdure.replay import Journal
from perdure.status import open_effects, open_waits
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.records import Run
    from perdure.status import OpenEffect, OpenWait
    from perdure.store.protocol import Store
    from perdure.testing.crash.options import Options
    from perdure.testing.crash.place import Place

    FindOut = Callable[[Run, OpenEffect], str | None]

NAME: Final = "crash kit"
"""Who speaks."""


class Attended:
    """What was done for the runs of a trial."""

    def __init__(self) -> None:
        self.now = 0.0
        self.settled = 0
        self.answered = 0
        self.was_helped = False
        """Whether something was done before, that no process may have heard of yet."""
        self.is_parked = False
        """Whether a run is parked for its deliveries, so that somebody must ask for it by name."""
        self.passes_at = 0.0
        """When the wait of a run is over that nobody can answer."""

    @property
    def helped(self) -> bool:
        """Whether a resume gets further now."""
        return bool(self.settled or self.answered or self.was_helped or self.is_parked or self.passes_at)


def attend(place: Place, runs: list[Run], options: Options, find_out: FindOut, *, now: float) -> Attended:
    """Do what people can do for these runs; `find_out` gives the result of an effect that happened, as JSON.

    People have the clock of their machine, which is the processes' own: `now` is what it says.
    """
    attended = Attended()
    attended.now = now
    waiting = [run for run in runs if run.state == RunState.WAITING]
    if not waiting:
        return attended
    with contextlib.closing(place.open(create=True)) as store:
        for run in waiting:
            journal = Journal(store.load_journal(run.run_id))
            if run.reason == WaitReason.IN_DOUBT:
                attended.settled += _settle(store, run, journal, find_out, now=now)
            elif run.reason == WaitReason.PARKED:
                attended.is_parked = attended.is_parked or "deliveries" in run.detail
            for wait in open_waits(store, run, journal):
                if wait.mail is None:
                    _answer(store, run, wait, options, attended)
    return attended


def _settle(store: Store, run: Run, journal: Journal, find_out: FindOut, *, now: float) -> int:
    effects = [effect for effect in open_effects(store, run, journal) if effect.letter is None]
    for effect in effects:
        result = find_out(run, effect)
        letter = Letter(effect.attempt, "happened", Raw((result or "null").encode()))
        if result is None:
            letter = Letter(effect.attempt, "did_not_happen")
        _post(store, run, "verdict", effect.key, msgspec.json.encode(letter).decode(), now=now)
    return len(effects)


def _answer(store: Store, run: Run, wait: OpenWait, options: Options, attended: Attended) -> None:
    opened = wait.opened
    if opened.question is not None:
        if options.answer is None and not opened.question.options:
            attended.passes_at = _passes(opened.due_at, f"the question {opened.question.text!r}", "--answer JSON")
            return
        answer = msgspec.json.decode(options.answer) if options.answer is not None else opened.question.options[0]
        try:
            given = fitting(opened.question, answer)
        except ValueError as error:
            raise UsageError(
                f"The answer to {legible(opened.question.text, 100)!r} does not fit: {error}.",
                safe="nothing of yours was touched.",
                hint="--answer JSON is given to every question",
            ) from None
        given = msgspec.structs.replace(given, asked=wait.record.arguments.hex())
        body = msgspec.json.encode(given).decode()
        _post(store, run, "answer", mail_key(wait.record), body, now=attended.now, once=True)
        attended.answered += 1
    elif opened.signal:
        if opened.signal not in options.signals:
            hint = f"--signal {opened.signal}=JSON"
            attended.passes_at = _passes(opened.due_at, f"the signal {opened.signal!r}", hint)
            return
        body = f'{{"payload":{options.signals[opened.signal]}}}'
        _post(store, run, "signal", opened.signal, body, now=attended.now)
        attended.answered += 1


def _passes(due_at: float, what: str, option: str) -> float:
    """When nobody needs to answer any more; without such a time the run waits for ever."""
    if not due_at:
        raise UsageError(
            f"The run waits for {legible(what, 120)}, and nobody answers.",
            safe="nothing of yours was touched.",
            hint=f"say what it gets: {option}",
        )
    return due_at


def _post(store: Store, run: Run, kind: Any, key: str, body: str, *, now: float, once: bool = False) -> None:
    at = max(now, run.updated_at + 0.001)
    store.post(Mail(0, run.run_id, kind, key, body, NAME, at), once=once)
