"""What a journal leaves open: effects in doubt and waits, each with the mail that the run has not seen yet."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from perdure import clock, typed
from perdure.bodies import Opened, read_body
from perdure.engine.mailbox import Letter, mail_key
from perdure.records import Run, RunState
from perdure.replay import Journal

if TYPE_CHECKING:
    from perdure.records import Mail, Record
    from perdure.store.protocol import Store

_FOREVER: Final = math.inf


class OpenEffect(Struct, frozen=True):
    """An effect in doubt, and the verdict on it that the run has not seen yet, if any."""

    number: int
    key: str
    name: str
    attempt: int
    shown: str
    why: str
    letter: Letter | None = None
    by: str = ""


class OpenWait(Struct, frozen=True):
    """A wait without an end on record, and the mail that will end it once the run hears of it, if any."""

    number: int
    """The number of the step."""
    question_number: int
    """The number of the question among the open ones of its run; 0 where it is none."""
    record: Record
    opened: Opened
    shown: str
    mail: Mail | None = None

    @property
    def is_due(self) -> bool:
        """Whether its time is over."""
        return 0 < self.opened.due_at <= clock.wall_seconds()

    @property
    def has_come(self) -> bool:
        """Whether a resume would go on beyond it, as far as mail and time tell."""
        return self.mail is not None or self.is_due


def open_effects(store: Store, run: Run, journal: Journal) -> list[OpenEffect]:
    """The effects of this run that are in doubt, oldest first."""
    numbers = numbers_of(journal)
    letters: dict[tuple[str, int], tuple[Letter | None, str]] = {}
    for mail in store.read_mail(run.run_id):
        was_refused = run.state == RunState.WAITING and mail.at <= run.updated_at
        if mail.kind == "verdict" and not mail.taken and not was_refused:
            verdict = typed.read(mail.body, Letter)
            letters[mail.key, verdict.attempt] = (verdict, mail.by)
    found = []
    for key, entry in journal.open_entries():
        letter, by = letters.get((key, entry.attempts), (None, ""))
        why = entry.doubt or "its process died"
        found.append(OpenEffect(numbers[key], key, entry.name, entry.attempts, entry.shown_call(), why, letter, by))
    return found


def open_waits(store: Store, run: Run, journal: Journal) -> list[OpenWait]:
    """What this run waits for, oldest first."""
    return waits_in(journal, [mail for mail in store.read_mail(run.run_id) if not mail.taken])


def waits_in(journal: Journal, mails: list[Mail]) -> list[OpenWait]:
    """The waits of a journal without an end, each with the mail among these that will end it."""
    numbers = numbers_of(journal)
    found: list[OpenWait] = []
    questions = 0
    for key, entry in journal.entries.items():
        if entry.wait is None or entry.completion is not None:
            continue
        opened: Opened = read_body(entry.wait)
        questions += opened.question is not None
        if entry.forgiven:  # it ended the run before: a resume asks anew
            continue
        mail = _mail_for(entry.wait, opened, mails)
        number = questions if opened.question is not None else 0
        found.append(OpenWait(numbers[key], number, entry.wait, opened, entry.shown_call(), mail))
    return found


def numbers_of(journal: Journal) -> dict[str, int]:
    """The number of each step: its place in the order in which the journal first names it."""
    return {key: number for number, key in enumerate(journal.entries, 1)}


def _mail_for(wait: Record, opened: Opened, mails: list[Mail]) -> Mail | None:
    """The mail that ends this wait, as its holder would choose it."""
    due_at = opened.due_at or _FOREVER
    for mail in mails:
        is_answer = mail.kind == "answer" and mail.key == mail_key(wait)
        is_signal = mail.kind == "signal" and opened.reason == "signal" and mail.key == opened.signal
        if (is_answer or is_signal) and mail.at < due_at:
            return mail
    return None


def needs_person(store: Store, run: Run, journal: Journal) -> tuple[OpenEffect | None, OpenWait | None]:
    """The first effect without an end and without a verdict, and the first question without an answer."""
    effects = [effect for effect in open_effects(store, run, journal) if effect.letter is None]
    asked = [wait for wait in open_waits(store, run, journal) if wait.opened.question is not None]
    questions = [wait for wait in asked if not wait.has_come]
    return (effects[0] if effects else None), (questions[0] if questions else None)
