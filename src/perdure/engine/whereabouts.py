"""Where a run went: known runs, those that go on in place of others, and how they stand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from perdure.bodies import read_body
from perdure.errors import RunPaused, UnknownRun
from perdure.records import Kind, Mail, Run, RunState, undo_id
from perdure.replay import Journal
from perdure.store.lease import read_park

if TYPE_CHECKING:
    from perdure.bodies import Started
    from perdure.records import Record
    from perdure.store.protocol import Store

CONTINUED: Final = "continued"
"""The code of a run that goes on as another one."""

UNDONE: Final = "undone"
"""The code of a run that failed and took its effects back."""

UNDO_AGENT: Final = "perdure.undo"
"""The agent of runs that take back the effects of others; it follows the code that those had."""

_HANDED_ON: Final = frozenset({"cancel", "pause", "unpause", "signal"})
"""Mail to a run that goes on as another one is meant for that."""

_SECOND: Final = 2
_LOOKS: Final = 100


def is_paused(store: Store, run: Run) -> bool:
    """Whether somebody paused the run, and nobody has let it go on since."""
    return read_park(run).code == RunPaused.code and not any(
        mail.kind == "unpause" and mail.mail_id > run.heard for mail in store.read_mail(run.run_id)
    )


def continuation(run: Run) -> str:
    """The id of the run that goes on in place of this one; empty where none does."""
    park = read_park(run)
    return park.message if park.code == CONTINUED else ""


def known_run(store: Store, run_id: str) -> Run:
    """The run that has this id; raises where there is none any more."""
    run = store.read_run(run_id)
    if run is None:
        raise vanished(run_id)
    return run


def vanished(run_id: str) -> UnknownRun:
    """A run that was there has gone."""
    return UnknownRun(f"There is no run {run_id!r} any more.", hint="it may have been pruned, or the store replaced")


def described_state(store: Store, run_id: str) -> str:
    """The run's state, with its reason where it waits."""
    found = newest(store, run_id) or known_run(store, run_id)
    return f"{found.state} ({found.reason})" if found.reason else found.state


def newest(store: Store, run_id: str) -> Run | None:
    """The run of this id, or the one that goes on in its place."""
    return newest_of(store, store.read_run(run_id))


def newest_of(store: Store, run: Run | None) -> Run | None:
    """The same run, or the one that goes on in its place."""
    while run is not None and (following := continuation(run)):
        run = store.read_run(following)
    return run


def of_one_moment(store: Store, run: Run) -> tuple[Run, list[Record]]:
    """The row and the journal that belong together, although somebody may be extending them."""
    for _ in range(_LOOKS):
        run = store.read_run(run.run_id) or run
        records = store.load_journal(run.run_id)
        if len(records) == run.length:
            break
    return run, records


def undoings_of(store: Store, run_id: str) -> list[Run]:
    """The runs that were to take the effects of this one back, oldest first: all but the last were cancelled."""
    found: list[Run] = []
    while (run := store.read_run(undo_id(run_id, len(found) + 1))) is not None:
        found.append(run)
    return found


def undoing_of(store: Store, run_id: str) -> Run | None:
    """The run that takes the effects of this one back, or took them; None where nobody asked for that.

    One that was cancelled before it took anything back does not count.
    """
    for run in reversed(undoings_of(store, run_id)):
        if run.state != RunState.CANCELLED or _has_begun(store.load_journal(run.run_id)):
            return run
    return None


def _has_begun(records: list[Record]) -> bool:
    return any(record.kind == Kind.INTENT for record in records)


def undone_by(store: Store, run: Run) -> Run | None:
    """The run whose effects this one takes back; None where that is gone, or this one takes nothing back."""
    if run.agent != UNDO_AGENT:
        return None
    started: Started = read_body(store.load_journal(run.run_id)[0])
    run_id = msgspec.json.decode(bytes(started.arguments), type=dict[str, object]).get("run_id")
    return store.read_run(run_id) if isinstance(run_id, str) else None


def failure_of(run: Run) -> str:
    """Which failure of the run this is, as each delivery can fail once; empty where it has not failed."""
    return f"{run.run_id}@{run.epoch}" if run.state == RunState.FAILED else ""


def next_id(run_id: str) -> str:
    """The id of the run that goes on in place of this one."""
    base, mark, number = run_id.rpartition("~")
    return f"{base}~{int(number) + 1}" if mark and number.isdecimal() else f"{run_id}~2"


def doubts_left(store: Store, run: Run) -> list[str]:
    """The effects of a run that are in doubt and have no verdict, used or not, each as a person would write it."""
    settled = {mail.key for mail in store.read_mail(run.run_id) if mail.kind == "verdict"}
    entries = Journal(store.load_journal(run.run_id)).open_entries()
    return [entry.shown_call() for key, entry in entries if key not in settled]


def is_undone(store: Store, run: Run) -> bool:
    """Whether effects of this run were taken back, by itself or by another run, or are about to be."""
    return read_park(run).code == UNDONE or undoing_of(store, run.run_id) is not None


def previous_id(run_id: str) -> str:
    """The id of the run in whose place this one goes on; empty where there is none."""
    base, mark, number = run_id.rpartition("~")
    if not mark or not number.isdecimal() or int(number) < _SECOND:
        return ""
    return base if int(number) == _SECOND else f"{base}~{int(number) - 1}"


def whole_id(run_id: str) -> str:
    """The id of the first of the runs that went on in each other's place up to this one."""
    base, mark, number = run_id.rpartition("~")
    return base if mark and number.isdecimal() and int(number) >= _SECOND else run_id


def hand_on(store: Store, run_id: str, following: str) -> tuple[int, ...]:
    """Give mail that a run did not take to the one that goes on in its place; given before, it is not given twice."""
    mails = [mail for mail in store.read_mail(run_id) if mail.kind in _HANDED_ON and not mail.taken]
    known = {_said(mail) for mail in store.read_mail(following)} if mails else set()
    for mail in mails:
        if _said(mail) not in known:
            store.post(Mail(0, following, mail.kind, mail.key, mail.body, mail.by, mail.at))
    return tuple(mail.mail_id for mail in mails)


def unrepeated(mails: list[Mail], everything: list[Mail]) -> list[Mail]:
    """Those that were not handed on before: where two processes do so at once, one may come long after the other."""
    first: dict[tuple[object, ...], int] = {}
    for mail in everything:
        first.setdefault(_said(mail), mail.mail_id)
    return [mail for mail in mails if first.get(_said(mail), mail.mail_id) == mail.mail_id]


def _said(mail: Mail) -> tuple[object, ...]:
    return mail.kind, mail.key, mail.body, mail.by, mail.at
