"""`ask`: a question to a person. The run leaves memory while it waits; the answer is consumed once.

The answer is bound to what was asked: to the text, what was shown, the options or the form, by their digest, and to the
record that opened the question. Whoever answers is told at once whether the answer counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Raw, Struct

from perdure import clock, codec, events, typed
from perdure.bodies import NULL, Note, Opened, Question
from perdure.engine.drive import Commit, drive
from perdure.engine.failure import describe_failure
from perdure.engine.signature import is_storable_text
from perdure.engine.wait import Place, Resolution, WaitSpec, agent_frame, waited
from perdure.errors import DeadlineExceeded, UnstorableValue, UsageError
from perdure.forms import approving, misfits, schema_of
from perdure.policy import Duration, seconds_of
from perdure.records import Kind, Mail

if TYPE_CHECKING:
    from collections.abc import Generator
    from datetime import datetime

    from perdure.engine.active import Active, Waiting
    from perdure.engine.call import Prepared

_REQUIRED: Final = object()
_MAX_OPTIONS: Final = 100
TIMEOUT: Final = "timeout"
"""Who answers a question whose time is over."""
_TEXT_CHARACTERS: Final = 1000


class Answer(Struct, frozen=True):
    """What a person answered; may also be awaited, so that sync and async agents read alike."""

    choice: str = ""
    value: Any = None
    by: str = ""
    at: datetime | None = None
    is_default: bool = False
    """Whether nobody answered in time, and this is the default."""
    note: str = ""
    """What they wrote beside a choice."""

    def __await__(self) -> Generator[Any, None, Answer]:
        """The answer itself."""
        return self
        yield


class Given(Struct, frozen=True, omit_defaults=True):
    """An answer as it is stored, in the mailbox and in the journal."""

    choice: str = ""
    value: Raw = NULL
    asked: str = ""
    """The digest of the question this is the answer to."""
    by: str = ""
    at: float = 0.0
    is_default: bool = False
    is_expired: bool = False
    note: str = ""


def ask(
    question: str,
    *,
    options: Sequence[str] | None = None,
    form: Any = None,
    show: Any = None,
    assignee: str = "",
    reminder: Duration | Sequence[Duration] = (),
    escalate_to: str = "",
    escalate_after: Duration | None = None,
    timeout: Duration | None = None,
    default: Any = _REQUIRED,
) -> Answer:
    """Ask a person; in an async agent, await it. Nothing before the question runs again while and after it waits.

    `options`: the choices, as `answer.choice`; `form`: a JSON Schema, dataclass, msgspec or pydantic type, as
    `answer.value`; neither: a free text, as `answer.value`. `show`: what the person should see. `reminder` and
    `escalate_after` tell subscribers (`events.QuestionDue`) that it is still open. After `timeout` the answer is
    `default`, or `DeadlineExceeded` is raised where there is none.
    """
    agent_frame("ask")
    if options is not None and not options:
        raise UsageError(
            "options is empty: nobody could choose.", safe="nothing was asked.", hint="leave it out to ask for a text"
        )
    options = options or ()
    _refuse_misshapen(question, options, form)
    for word, person in (("assignee", assignee), ("escalate_to", escalate_to)):
        if person != "" and not is_storable_text(person, _TEXT_CHARACTERS):
            raise UsageError(
                f"{word}={codec.describe(person)} is no text.", safe="nothing was asked.", hint=f'{word}="ada"'
            )
    if bool(escalate_to) != (escalate_after is not None):
        raise UsageError(
            "escalate_to and escalate_after belong together.",
            safe="nothing was asked.",
            hint='escalate_to="lead", escalate_after="4h"',
        )
    reminders = reminder if isinstance(reminder, (list, tuple)) else (reminder,)
    asked = Question(
        text=question,
        show=Raw(codec.seal(show, what="show")),
        options=tuple(options),
        form=NULL if form is None else Raw(msgspec.json.encode(schema_of(form))),
        assignee=assignee,
        remind_at=tuple(sorted({seconds_of(each, what="reminder") for each in reminders})),
        escalate_at=0.0 if escalate_after is None else seconds_of(escalate_after, what="escalate_after"),
        escalate_to=escalate_to,
    )
    seconds = None if timeout is None else seconds_of(timeout, what="timeout")
    fallback = None if default is _REQUIRED else _default(default, asked)
    if fallback is not None and seconds is None:
        raise UsageError("A default answer needs a timeout.", safe="nothing was asked.", hint='timeout="8h"')
    wait = ForPerson(asked, seconds, fallback)
    identity = (question, tuple(options), codec.seal(show), bytes(asked.form))

    def finish(prepared: Prepared[WaitSpec], value: Any) -> Answer:
        try:
            return _answer(value, form)
        except ValueError as error:
            raise prepared.unloadable(error) from error

    return waited(_ASK, wait, *identity, finish=finish)  # type: ignore[no-any-return]


class ForPerson:
    """A wait that a person's answer ends, or its timeout."""

    def __init__(self, question: Question, seconds: float | None, fallback: Given | None) -> None:
        self._question = question
        self._seconds = seconds
        self._fallback = fallback

    def open(self, prepared: Prepared[WaitSpec]) -> Opened:
        """What is asked, and until when."""
        now = clock.wall_seconds()
        question = msgspec.structs.replace(
            self._question,
            remind_at=tuple(now + seconds for seconds in self._question.remind_at),
            escalate_at=now + self._question.escalate_at if self._question.escalate_to else 0.0,
        )
        due_at = 0.0 if self._seconds is None else now + self._seconds
        return Opened(reason="human", shown=prepared.shown(), due_at=due_at, question=question)

    def look(self, place: Place) -> Resolution | None:
        """The answer that was posted first; the end of the time counts as one."""
        for mail in place.mail:
            if mail.kind == "answer" and mail.key == place.mail_key:
                given = typed.read(mail.body, Given)
                if given.asked == place.prepared.call.arguments.hex():
                    return self._resolution(place, given, mail)
        if place.is_due:
            return self._expire(place)
        _remind(place)
        return None

    def standing(self, place: Place) -> Waiting:
        """Waiting for this answer; looked at again at the next reminder."""
        question = place.opened.question or self._question
        noted = _noted(place)
        later = [at for about, at in _due_notes(question) if (about, at) not in noted]
        due_at = min([*later, *([place.opened.due_at] if place.opened.due_at else [])], default=0.0)
        hint = f"{_how_to_answer(place.active.row.name, question)}, then start again"
        return place.waiting(f"waits for an answer: {question.text}", hint, due_at=due_at)

    def _resolution(self, place: Place, given: Given, mail: Mail) -> Resolution:
        if given.is_expired:
            seconds = place.allowed_seconds(self._seconds)
            late = DeadlineExceeded(f"Nobody answered {self._question.text!r} in {seconds:g} s.")
            return Resolution(failure=describe_failure(late), taken=(mail.mail_id,), by=mail.by)
        stored = msgspec.structs.replace(given, by=mail.by, at=mail.at)
        return Resolution(sealed=msgspec.json.encode(stored), taken=(mail.mail_id,), by=mail.by)

    def _expire(self, place: Place) -> Resolution | None:
        """Post the end of the time like an answer: whoever posts first counts, and nobody is told otherwise."""
        active = place.active
        asked = place.prepared.call.arguments.hex()
        if self._fallback is not None:
            given = msgspec.structs.replace(self._fallback, asked=asked, is_default=True)
        else:
            given = Given(asked=asked, is_expired=True)
        body = msgspec.json.encode(given).decode()
        mail = Mail(0, active.row.run_id, "answer", place.mail_key, body, TIMEOUT, place.opened.due_at)
        posted = active.read(active.store.post, mail, once=True)
        if posted.kind == "answer":
            return self._resolution(place, given, posted)
        active.ring()  # a person was quicker: the next look finds the answer
        return None


def _how_to_answer(name: str, question: Question) -> str:
    if approving(question) is not None:
        return f"perdure approve {name} (or: perdure reject {name})"
    how = f"<{'|'.join(question.options)}>" if question.options else "<text>"
    return f"perdure answer {name} {'--value <json>' if bytes(question.form) != b'null' else how}"


def _remind(place: Place) -> None:
    """Note, once each and durably, that a reminder or the escalation of an open question is due, and tell."""
    question, now = place.opened.question, clock.wall_seconds()
    if question is None:
        return
    noted = _noted(place)
    for about, at in _due_notes(question):
        if at <= now and (about, at) not in noted:
            to = question.assignee if about == "reminder" else question.escalate_to
            _note(place.active, place, Note(about=about, text=to, done=at), question)


def _due_notes(question: Question) -> list[tuple[Literal["reminder", "escalation"], float]]:
    """What subscribers are told of an open question, and when."""
    reminders: list[tuple[Literal["reminder", "escalation"], float]] = [("reminder", at) for at in question.remind_at]
    return [*reminders, ("escalation", question.escalate_at)] if question.escalate_to else reminders


def _noted(place: Place) -> set[tuple[str, float]]:
    key = place.prepared.call.key
    return {(note.about, note.done) for noted, note in place.active.journal.notes if noted == key}


def _note(active: Active, place: Place, note: Note, question: Question) -> None:
    ticket, record = active.submit(Kind.NOTE, place.prepared.call, note)
    drive(_committed(active, ticket))
    active.journal.absorb(record)
    row = active.row
    events.publish(events.QuestionDue(row.run_id, row.name, note.about, question.text, note.text))


def _committed(active: Active, ticket: Any) -> Generator[Commit, Any, None]:
    yield Commit(active, ticket)


def _ask(question: str, options: tuple[str, ...], show: bytes, form: bytes) -> dict[str, Any]:  # type: ignore[empty-body]
    """The parameters that identify a question."""


_ASK = WaitSpec(_ask, name="ask")


def _answer(stored: dict[str, Any], form: Any) -> Answer:
    given = typed.convert(stored, _Read)
    value = given.value
    if form is not None and not isinstance(form, dict):
        value = codec.unseal(msgspec.json.encode(given.value), form)
    return Answer(given.choice, value, given.by, clock.instant(given.at), given.is_default, given.note)


class _Read(Struct, frozen=True):
    choice: str = ""
    value: Any = None
    by: str = ""
    at: float = 0.0
    is_default: bool = False
    note: str = ""


def fitting(question: Question, answer: Any) -> Given:
    """An answer to this question, checked against its options or its form; `ValueError` says what does not fit."""
    if question.options:
        if answer not in question.options:
            raise ValueError(f"the answer must be one of {', '.join(question.options)}, not {codec.describe(answer)}")
        return Given(choice=answer)
    schema = msgspec.json.decode(bytes(question.form))
    try:
        plain = msgspec.to_builtins(answer, str_keys=True, enc_hook=_dumped)
        sealed = codec.seal(plain, what="answer")
    except (TypeError, ValueError, RecursionError, UnstorableValue) as error:
        raise ValueError(f"the answer must be plain data: {error}") from None
    if schema is not None:
        problems = misfits(plain, schema)
        if problems:
            raise ValueError("; ".join(problems))
    elif not isinstance(plain, str):
        raise ValueError(f"the answer must be a text, not {codec.describe(plain)}")
    return Given(value=Raw(sealed))


def _dumped(value: Any) -> Any:
    """A pydantic model as plain data; msgspec knows the other classes by itself."""
    if not hasattr(value, "model_dump"):
        raise TypeError(f"{codec.describe(value)} is none")
    return value.model_dump(mode="json")


def _default(default: Any, question: Question) -> Given:
    try:
        return fitting(question, default)
    except ValueError as error:
        raise UsageError(
            f"The default does not fit the question {question.text!r}: {error}.",
            safe="nothing was asked.",
            hint="give a default that could also be answered",
        ) from None


def _refuse_misshapen(text: str, options: Sequence[str], form: Any) -> None:
    """A question that nobody could answer is refused before it is asked."""
    if not isinstance(text, str) or not text.strip():
        raise UsageError(f"The question {codec.describe(text)} is empty.", hint='perdure.ask("Send this?", …)')
    listed = isinstance(options, Sequence) and not isinstance(options, str)
    if not listed or not all(is_storable_text(option, _TEXT_CHARACTERS) for option in options):
        raise UsageError(
            f"options={options!r} are no texts.", safe="nothing was asked.", hint='options=["send", "discard"]'
        )
    if len(options) > _MAX_OPTIONS or len(set(options)) != len(options):
        raise UsageError(
            f"options: at most {_MAX_OPTIONS}, each once.", safe="nothing was asked.", hint="use a form for more"
        )
    if options and form is not None:
        raise UsageError(
            "A question has options or a form, not both.", safe="nothing was asked.", hint="put an enum into the form"
        )
