"""Scripted people: who answers what, who sends which signal, who settles a doubt; told by a test before it happens.

A question is answered in the moment it is asked, through the mailbox of the run, as by anybody else. One that nobody in
the script answers stops its run with an error that says so.
"""

from __future__ import annotations

import fnmatch
import threading
from collections.abc import Callable
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from perdure import clock, codec, events
from perdure.bodies import Opened, Question, read_body
from perdure.engine import control
from perdure.engine.active import Stop
from perdure.engine.call import spec_of
from perdure.engine.effect import EffectSpec
from perdure.engine.mailbox import Letter
from perdure.engine.session import Session, open_sessions, session
from perdure.errors import UsageError
from perdure.forms import approving
from perdure.records import Mail, RunState, WaitReason
from perdure.replay import Entry, Journal
from perdure.testing.unheard import has_reached_test

ANYBODY: Final = "scripted person"
_APPROVE: Final = "approve "
"""How the name of the step begins that asks before an effect is performed."""

Named = str | Callable[..., Any]
"""An effect: the decorated function, or the name that its calls carry."""


class UnscriptedQuestion(UsageError):
    """A run asked something that no person of the script answers."""


class Line(Struct):
    """One thing that a person of the script does once, or again and again."""

    kind: str
    """`answer`, `leave`, `signal` or `settle`."""
    wanted: str
    value: Any = None
    step: str = ""
    assignee: str = ""
    by: str = ANYBODY
    note: str = ""
    left: int = 1
    """How often it may still be used; below 0 for ever."""

    def words(self) -> str:
        """The line as a person would describe it."""
        about = self.wanted or self.step or self.assignee
        return f"{self.kind} {about!r}" + ("" if self.kind == "leave" else f" with {self.value!r}")


class People:
    """Everybody whom runs of this test can ask."""

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._lock = threading.RLock()
        self.asked: list[str] = []
        """Every question that was asked, in order."""
        self._refused: list[UsageError] = []

    def answer(
        self,
        question: str = "",
        value: Any = True,  # noqa: FBT002 - most answers are a yes
        *,
        step: str = "",
        assignee: str = "",
        by: str = ANYBODY,
        note: str = "",
        times: int = 1,
    ) -> People:
        """Answer the next question like that: a choice, a text, a form's value; True and False for a yes and a no.

        `question` is a part of its text, or a pattern with `*`; `step` the effect that needs approval, `assignee` who
        was asked. Several answers to like questions are given in the order of the script; `times=-1` for ever.
        """
        return self._add(Line("answer", question, value, step, assignee, by, note, times))

    def approve(self, effect: Named = "", *, by: str = ANYBODY, note: str = "", times: int = 1) -> People:
        """Let an effect be performed that needs an approval: the effect itself, its name, or a pattern with `*`."""
        return self.answer(value=True, step=_name_of(effect) or "*", by=by, note=note, times=times)

    def reject(self, effect: Named = "", *, by: str = ANYBODY, note: str = "", times: int = 1) -> People:
        """Do not let it be performed; its agent is told why with `note`."""
        return self.answer(value=False, step=_name_of(effect) or "*", by=by, note=note, times=times)

    def leave_open(self, question: str = "") -> People:
        """Nobody answers questions like that, and that is meant: the run waits."""
        return self._add(Line("leave", question, left=-1))

    def signal(self, name: str, payload: Any = None, *, by: str = ANYBODY, times: int = 1) -> People:
        """Send this to the next run that waits for a signal of that name."""
        return self._add(Line("signal", name, payload, by=by, left=times))

    def settle(self, effect: Named, outcome: str = "happened", value: Any = None, *, by: str = ANYBODY) -> People:
        """Say of an effect, itself or its name, in doubt: `happened` with this result, `did_not_happen`, or `fail`."""
        if outcome not in ("happened", "did_not_happen", "fail"):
            raise UsageError(
                f"{outcome!r} is no verdict.", safe="nothing was scripted.", hint="happened, did_not_happen or fail"
            )
        return self._add(Line("settle", _name_of(effect), (outcome, value), by=by))

    def forget(self) -> None:
        """Take back what is left of the script."""
        with self._lock:
            self._lines.clear()

    def unused(self) -> list[str]:
        """What was scripted and never needed."""
        return [line.words() for line in self._lines if line.left > 0]

    def unheard(self) -> list[str]:
        """The questions without an answer of which nobody was told: their runs were started, and not asked again."""
        return [f"{error.message}\n  do: {error.hint}" for error in self._refused if not has_reached_test(error)]

    def hear(self, event: events.Observable) -> None:
        """What a subscriber does; given to `perdure.subscribe`."""
        match event:
            case events.WaitOpened(reason="human"):
                self._reply(event)
            case events.WaitOpened(reason="signal"):
                self._send(event)
            case events.DoubtFound():
                self._judge(event)

    def _add(self, line: Line) -> People:
        with self._lock:
            self._lines.append(line)
        return self

    def _reply(self, event: events.WaitOpened) -> None:
        opened = session()
        entry = _entry(opened, event)
        wait: Opened | None = read_body(entry.wait) if entry is not None and entry.wait is not None else None
        if entry is None or wait is None or wait.question is None:
            return
        question = wait.question
        self.asked.append(question.text)
        line = self._taken(lambda each: _fits(each, question, entry.name))
        if line is None:
            self._refuse(opened, event, self._unanswered(event, question, entry.name))
        elif line.kind == "answer":
            try:
                _give(opened, event, question, line)
            except UsageError as error:
                self._refuse(opened, event, error)

    def _send(self, event: events.WaitOpened) -> None:
        opened = session()
        entry = _entry(opened, event)
        wait: Opened | None = read_body(entry.wait) if entry is not None and entry.wait is not None else None
        line = None if wait is None else self._taken(lambda each: (each.kind, each.wanted) == ("signal", wait.signal))
        if line is not None:
            control.signal(event.run_id, line.wanted, line.value, by=line.by)

    def _judge(self, event: events.DoubtFound) -> None:
        opened = session()
        line = self._taken(lambda each: (each.kind, each.wanted) == ("settle", event.step))
        entry = _entry(opened, event) if line is not None else None
        if line is None or entry is None:
            return
        outcome, value = line.value
        letter = Letter(max(1, entry.attempts), outcome, Raw(codec.seal(value)))
        body = msgspec.json.encode(letter).decode()
        opened.store.post(Mail(0, event.run_id, "verdict", event.key, body, line.by, clock.wall_seconds()))

    def _refuse(self, opened: Session, event: events.WaitOpened, error: UsageError) -> None:
        """Stop the run here, and let whoever waits for it hear why."""
        for line in error.lines()[1:]:  # where there is no pytest, its traceback is all that anybody sees
            error.add_note(line)
        self._refused.append(error)
        for active in (each for known in {opened, *open_sessions()} for each in known.held()):
            if active is not None and active.row.run_id == event.run_id:
                active.halt(Stop(RunState.WAITING, WaitReason.HUMAN, error))

    def _taken(self, fits: Callable[[Line], bool]) -> Line | None:
        """The first line that fits, which is used up by that."""
        with self._lock:
            line = next((each for each in self._lines if each.left and fits(each)), None)
            if line is not None:
                line.left -= 1
            return line

    def _unanswered(self, event: events.WaitOpened, question: Question, step: str) -> UnscriptedQuestion:
        how = f"people.approve({step.removeprefix(_APPROVE)!r})"
        if not step.startswith(_APPROVE):
            how = f"people.answer({question.text!r}, …)"
        asked = f" of {question.assignee}" if question.assignee else ""
        choices = f" (choices: {', '.join(question.options)})" if question.options else ""
        left = "; ".join(self.unused()) or "nothing"
        return UnscriptedQuestion(
            f"Run {event.run_name} asks{asked} {question.text!r}{choices}, and nobody in the script answers.\n"
            f"  left in the script: {left}",
            safe="the run waits; nothing after the question was performed.",
            hint=f"{how}; or people.leave_open({question.text!r}) where it is meant to wait",
        )


def _name_of(effect: Named) -> str:
    """What an effect is called in journals; what can never be asked about is refused before it is waited for."""
    if isinstance(effect, str):
        return effect
    spec = spec_of(getattr(effect, "__func__", effect))
    if isinstance(spec, EffectSpec):
        return spec.name
    what = "a step, and no effect" if spec is not None else "no effect"
    raise UsageError(
        f"{getattr(effect, '__qualname__', effect)!s} is {what}.",
        safe="nothing was scripted.",
        hint="write the function that has @perdure.effect above its def, or its name: send_email or 'send_email'",
    )


def _fits(line: Line, question: Question, step: str) -> bool:
    if line.kind not in ("answer", "leave"):
        return False
    if line.assignee and line.assignee != question.assignee:
        return False
    if line.step:
        return step.startswith(_APPROVE) and fnmatch.fnmatchcase(step.removeprefix(_APPROVE), line.step)
    wanted = line.wanted.removesuffix("…")
    return wanted in question.text or fnmatch.fnmatchcase(question.text, wanted)


def _give(opened: Session, event: events.WaitOpened, question: Question, line: Line) -> None:
    value, pair = line.value, approving(question)
    if isinstance(value, bool) and question.options:
        if pair is None:
            raise UnscriptedQuestion(
                f"Run {event.run_name} asks {question.text!r}, which has no yes and no: {', '.join(question.options)}.",
                safe="the run waits.",
                hint=f"people.answer({question.text!r}, {question.options[0]!r})",
            )
        value = pair[0] if value else pair[1]
    run = control.find(opened, event.run_id)
    keys = [asked.wait.key for asked in control.open_questions(opened, run)]
    control.answer(event.run_id, value, question=keys.index(event.key) + 1, by=line.by, note=line.note)


def _entry(opened: Session, event: events.WaitOpened | events.DoubtFound) -> Entry | None:
    """What the journal holds of the call that an event is about."""
    return Journal(opened.store.load_journal(event.run_id)).entries.get(event.key)
