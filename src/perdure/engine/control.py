"""What somebody outside a run can ask of it, and what its own code can say of itself beyond its steps.

Nobody but the holder extends a journal: every word from outside goes to the run's mailbox, and is told at once whether
it can count. A run that nobody holds is ended right here when it is cancelled.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from typing import Any, Final, NoReturn

import msgspec

from perdure import clock, codec, events
from perdure.bodies import Note, Opened, Question, read_body
from perdure.engine import ending, whereabouts
from perdure.engine.ask import fitting
from perdure.engine.drive import Commit
from perdure.engine.excepthook import install as install_excepthook
from perdure.engine.mailbox import mail_key
from perdure.engine.scope import ROOT
from perdure.engine.session import Session, session
from perdure.engine.signals import checked_signal, refuse_undeclared
from perdure.engine.wait import agent_frame
from perdure.errors import AnswerRefused, NotInRun, RunDeaf, RunRestarted, UnknownRun, UsageError
from perdure.policy import Duration, seconds_of
from perdure.records import FINISHED, Kind, Mail, Record, Run, RunState
from perdure.replay import Journal

_TAG_CHARACTERS: Final = 200
_MAX_TAGS: Final = 50


class OpenQuestion(msgspec.Struct, frozen=True):
    """A question that a person has not answered yet."""

    run: Run
    wait: Record
    opened: Opened

    @property
    def question(self) -> Question:
        """What is asked."""
        if self.opened.question is None:
            raise TypeError(self.opened)
        return self.opened.question


def _open() -> Session:
    """The store that the settings name; from here on errors of ours are explained in this program."""
    install_excepthook()
    return session()


def cancel(run: str, *, by: str = "") -> None:
    """Ask a run to end: at its next step where it is held, at once where nobody holds it. Its children are told."""
    opened = _open()
    found = _tell(opened, run, "cancel", by=by)
    opened.deliver_mail()
    ending.end_if_free(opened, found)


def pause(run: str, *, by: str = "") -> None:
    """Ask a run to stop at its next step and to stay so until somebody says `unpause`."""
    opened = _open()
    _tell(opened, run, "pause", by=by)
    opened.deliver_mail()


def unpause(run: str, *, by: str = "") -> None:
    """Let a paused run go on: whoever executes it next, or the process that waits for it."""
    opened = _open()
    _tell(opened, run, "unpause", by=by)


def signal(run: str, name: str, payload: Any = None, *, by: str = "") -> None:
    """Send a named message to a run: kept until it waits for it, delivered once, in the order of sending."""
    opened = _open()
    checked_signal(name)
    found = _unfinished(opened, run)
    refuse_undeclared(found, Journal(opened.store.load_journal(found.run_id)).started(), name)
    body = msgspec.json.encode({"payload": msgspec.Raw(codec.seal(payload, what="payload"))}).decode()
    _tell(opened, run, "signal", key=name, body=body, by=by)
    opened.deliver_mail()


def answer(run: str, answer: Any, *, question: str | int | None = None, by: str = "", note: str = "") -> None:
    """Answer the open question of a run; raises `AnswerRefused` where it does not fit, comes second, or too late.

    `question` picks one of several: its number as `perdure inbox` shows it, or a part of its text. `note` is kept with
    the answer, for the agent to read.
    """
    opened = _open()
    found = find(opened, run)
    if found.state in FINISHED or found.state == RunState.FAILED:
        _refuse(opened, found, "", answer, f"Run {found.name} is {found.state}: it no longer asks.", by=by)
    questions = open_questions(opened, found)
    if not questions:
        _refuse(opened, found, "", answer, f"Run {found.name} has no open question.", by=by)
    asked = _pick(found, questions, question)
    try:
        given = fitting(asked.question, answer)
    except ValueError as error:
        raise AnswerRefused(
            f"The answer to {asked.question.text!r} does not fit: {error}.",
            safe=f"nothing was recorded; run {found.name} still waits.",
            hint=f"perdure show {found.name} tells what is asked",
        ) from None
    key = mail_key(asked.wait)
    now = clock.wall_seconds()
    if 0 < asked.opened.due_at <= now:
        _refuse(opened, found, key, answer, f"The question {asked.question.text!r} has expired.", by=by)
    given = msgspec.structs.replace(given, asked=asked.wait.arguments.hex(), note=note)
    body = msgspec.json.encode(given).decode()
    posted = _post(opened, found, "answer", key=key, body=body, by=by, once=True)
    if posted.kind == "refused":
        raise AnswerRefused(
            f"The question {asked.question.text!r} of run {found.name} has been answered before, or has expired.",
            safe="the first answer counts; this one is kept beside it.",
            hint=f"perdure show {found.name}",
        )
    if not _counts(opened, asked, posted):
        raise AnswerRefused(
            f"The question {asked.question.text!r} of run {found.name} ended while the answer was on its way.",
            safe="the answer is kept, and not used.",
            hint=f"perdure show {found.name}",
        )
    opened.deliver_mail()


def _counts(opened: Session, asked: OpenQuestion, answer: Mail) -> bool:
    """Whether an answer that was posted still found its question open, or was consumed since."""
    run_id = asked.run.run_id
    entry = Journal(opened.store.load_journal(run_id)).entries[asked.wait.key]
    run = opened.store.read_run(run_id)
    is_open = entry.wait == asked.wait and entry.completion is None and not entry.forgiven
    if is_open and run is not None and run.state not in FINISHED:
        return True
    return any(mail.taken > 0 for mail in opened.store.read_mail(run_id) if mail.mail_id == answer.mail_id)


def open_questions(opened: Session, run: Run) -> list[OpenQuestion]:
    """The questions of a run that a person can answer now, oldest first."""
    journal = Journal(opened.store.load_journal(run.run_id))
    waits = [entry.wait for entry in journal.entries.values() if entry.is_waiting and entry.wait is not None]
    found = [OpenQuestion(run, wait, read_body(wait)) for wait in waits]
    return [question for question in found if question.opened.question is not None]


def restart_with(*args: Any, **kwargs: Any) -> NoReturn:
    """End this run and go on as a new one with these arguments: for agents that never end.

    The old journal is kept for history and not replayed any more. Whoever waits for the run gets the new one's result.
    """
    frame = agent_frame("restart_with")
    if frame.scope.path != ROOT:
        raise UsageError(
            "perdure.restart_with was called beside or below the agent that the run is of.",
            safe="nothing was changed.",
            hint="return to the outermost agent and call it there",
        )
    raise RunRestarted(args, kwargs)


def progress(done: float, total: float = 0, text: str = "") -> None:
    """Note durably how far the agent is, for whoever looks: `perdure.progress(47, 50, "transform")`."""
    frame = agent_frame("progress")
    active = frame.active
    if active is None:
        raise NotInRun("perdure.progress was called outside a run.", hint="call it in an agent")
    for name, number in (("done", done), ("total", total)):
        if not isinstance(number, (int, float)) or isinstance(number, bool) or not 0 <= number < float("inf"):
            raise UsageError(f"progress: {name}={number!r} is no amount.", hint='perdure.progress(47, 50, "transform")')
    active.raise_if_stopped()
    note = Note(about="progress", text=str(text), done=done, total=total)
    if active.noted == note:
        return
    active.noted = note
    if active.known_notes[note]:
        active.known_notes[note] -= 1
        return
    ticket, _ = active.submit(Kind.NOTE, None, note, power=False)
    Commit(active, ticket).now()
    if events.is_wanted(events.Progressed):
        events.publish(events.Progressed(active.row.run_id, active.row.name, done, total, str(text)))


def written_tags(tags: Mapping[str, str] | None) -> str:
    """Tags as kept in a run's row; raises where they are none."""
    if not tags:
        return ""
    fine = (
        isinstance(tags, Mapping)
        and len(tags) <= _MAX_TAGS
        and not any("=" in str(name) for name in tags)
        and all(
            isinstance(part, str) and part and len(part) <= _TAG_CHARACTERS and part.isprintable()
            for pair in tags.items()
            for part in pair
        )
    )
    if not fine:
        raise UsageError(
            f"tags={tags!r} are not usable.",
            safe="nothing was started.",
            hint=f"at most {_MAX_TAGS} short printable texts by name: {{'team': 'billing'}}",
        )
    return msgspec.json.encode(dict(sorted(tags.items()))).decode()


def deadline_of(deadline: Duration | None) -> float:
    """A deadline in seconds; 0 for none."""
    seconds = 0.0 if deadline is None else seconds_of(deadline, what="deadline")
    if deadline is not None and not seconds:
        raise UsageError("deadline=0 leaves no time.", safe="nothing was started.", hint='deadline="2h"')
    return seconds


def find(opened: Session, run: str) -> Run:
    """A run by its id or its name."""
    if not isinstance(run, str) or not run:
        raise UsageError(
            f"{run!r} is no run.", safe="nothing was changed.", hint="name a run by its id, or as perdure ls does"
        )
    found = opened.store.read_run(run)
    for named in () if found is not None else opened.store.list_runs(name=run, limit=1):
        found = named
    if found is None:
        raise UnknownRun(f"There is no run {run!r} in {opened.store.location}.", hint="perdure ls lists them")
    while following := whereabouts.continuation(found):
        found = whereabouts.known_run(opened.store, following)
    return found


def _unfinished(opened: Session, run: str) -> Run:
    found = find(opened, run)
    if found.state in FINISHED:
        raise UsageError(
            f"Run {found.name} is {found.state}: it hears nothing any more.",
            safe="nothing was sent.",
            hint=f"perdure show {found.name}",
        )
    return found


def _pick(run: Run, questions: list[OpenQuestion], wanted: str | int | None) -> OpenQuestion:
    if isinstance(wanted, int) and 1 <= wanted <= len(questions):
        return questions[wanted - 1]
    fitting_ones = questions
    if wanted is not None:
        fitting_ones = [question for question in questions if str(wanted) in question.question.text]
    if len(fitting_ones) == 1:
        return fitting_ones[0]
    listed = "; ".join(f"{number}: {asked.question.text}" for number, asked in enumerate(questions, 1))
    raise AnswerRefused(
        f"Run {run.name} has {len(fitting_ones)} open questions{' like that' if wanted is not None else ''}.",
        safe="nothing was recorded.",
        hint=f"pick one by its number: {listed}",
    )


def _refuse(opened: Session, run: Run, key: str, answer: Any, why: str, *, by: str) -> NoReturn:
    """Keep an answer that comes too late, and say so."""
    body = msgspec.json.encode({"value": codec.describe(answer)}).decode()
    _post(opened, run, "refused", key=key, body=body, by=by)
    raise AnswerRefused(why, safe="the answer is kept, and not used.", hint=f"perdure show {run.name}")


def _tell(opened: Session, run: str, kind: Any, *, key: str = "", body: str = "{}", by: str = "") -> Run:
    """Write to a run, or to the one that goes on in its place: one that finished in this very moment hears nothing."""
    while True:
        found = _unfinished(opened, run)
        with contextlib.suppress(RunDeaf):
            _post(opened, found, kind, key=key, body=body, by=by, heard=True)
            return found


def _post(
    opened: Session,
    run: Run,
    kind: Any,
    *,
    key: str = "",
    body: str = "{}",
    by: str = "",
    once: bool = False,
    heard: bool = False,
) -> Mail:
    mail = Mail(0, run.run_id, kind, key, body, by or who(), clock.wall_seconds())
    return opened.store.post(mail, once=once, heard=heard)


def who() -> str:
    """Who speaks, as far as the system knows."""
    import getpass  # slow to load, and only needed here

    try:
        return f"{getpass.getuser()}@{clock.host_name()}"
    except (OSError, KeyError):
        return f"pid {os.getpid()} on {clock.host_name()}"
