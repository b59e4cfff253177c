"""Where a run really stands, derived from its row, its holder's life, its journal and its mailbox; and what to do.

A row may still say `running` when its process is long dead; here it is `queued`, with the cause.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from perdure import demo
from perdure.cli.options import command
from perdure.engine.settle import Letter
from perdure.errors import CommitsLost, PerdureError
from perdure.records import Ended, Kind, Repaired, Run, RunState, WaitReason, read_body
from perdure.replay import Journal
from perdure.settings import current_settings
from perdure.store.lease import Park, Presence, read_park
from perdure.telemetry.text import counted

if TYPE_CHECKING:
    from perdure.records import Record, Worker
    from perdure.store.protocol import Store


class Open(Struct, frozen=True):
    """An effect in doubt, and the verdict on it that the run has not seen yet, if any."""

    number: int
    key: str
    name: str
    attempt: int
    shown: str
    why: str
    letter: Letter | None = None
    by: str = ""


class Status(Struct, frozen=True):
    """Where a run stands, why, since when, and what to do next."""

    state: str
    at: float
    reason: str = ""
    cause: str = ""
    hint: str = ""
    next: str = ""

    @property
    def words(self) -> str:
        """The state, with the reason of one that waits."""
        return f"{self.state}: {self.reason.replace('_', ' ')}" if self.reason else self.state


def status_of(store: Store, run: Run) -> Status:
    """Where this run stands."""
    park = read_park(run)
    if run.state == RunState.RUNNING:
        return _held(store, run)
    if run.state in (RunState.COMPLETED, RunState.CANCELLED):
        return Status(run.state, run.updated_at)
    if run.state == RunState.FAILED:
        return Status(run.state, run.updated_at, cause=park.message, next=resume_command(run))
    if park.code == CommitsLost.code:
        return _parked(run, park, next_command=command("repair", run.name))
    try:
        records = store.load_journal(run.run_id)
    except PerdureError as error:
        return Status(run.state, run.updated_at, run.reason, error.message, error.hint, command("repair", run.name))
    if run.state == RunState.QUEUED:
        return Status(run.state, run.updated_at, cause=_pause(records[-1]), next=resume_command(run))
    if run.reason == WaitReason.IN_DOUBT:
        return _in_doubt(run, open_effects(store, run, Journal(records)), park)
    return _parked(run, park, next_command=resume_command(run))


def open_effects(store: Store, run: Run, journal: Journal) -> list[Open]:
    """The effects of this run that are in doubt, oldest first."""
    numbers = numbers_of(journal)
    letters: dict[tuple[str, int], tuple[Letter | None, str]] = {}
    for mail in store.read_mail(run.run_id):
        was_refused = run.state == RunState.WAITING and mail.at <= run.updated_at
        if mail.kind == "verdict" and not mail.taken and not was_refused:
            verdict = msgspec.json.decode(mail.body, type=Letter)
            letters[mail.key, verdict.attempt] = (verdict, mail.by)
    found = []
    for key, entry in journal.open_entries():
        letter, by = letters.get((key, entry.attempts), (None, ""))
        why = entry.doubt or "its process died"
        found.append(Open(numbers[key], key, entry.name, entry.attempts, entry.shown_call(), why, letter, by))
    return found


def numbers_of(journal: Journal) -> dict[str, int]:
    """The number of each step: its place in the order in which the journal first names it."""
    return {key: number for number, key in enumerate(journal.entries, 1)}


def resume_command(run: Run) -> str:
    """The command that resumes this run; the demo's code is known, any other must be named."""
    if run.agent == demo.NAME:
        return command("resume", run.name)
    return command("resume", run.name, "--app", _likely_app(run.agent))


def settle_command(run: Run, effect: Open, others: list[Open]) -> str:
    """The command that settles this effect, by its name where that is enough."""
    is_alone = sum(other.name == effect.name for other in others) <= 1 and not effect.name.isdecimal()
    step = effect.name if is_alone else str(effect.number)
    return f"{command('settle', run.name, step)} --did-not-happen (or: --happened RESULT_AS_JSON)"


def _held(store: Store, run: Run) -> Status:
    stall_seconds = current_settings().stall_seconds
    holder = store.read_worker(run.holder)
    at = max(run.updated_at, holder.beat_at if holder else 0.0)
    if store.is_running(run, stall_seconds=stall_seconds):
        return Status(RunState.RUNNING, at, cause=f"held by {_named(holder)}")
    is_stalled = store.is_running(run, stall_seconds=math.inf)
    presence = Presence.STALLED if is_stalled else Presence.DEAD
    return Status(RunState.QUEUED, at, cause=f"{presence.value} ({_named(holder)})", next=resume_command(run))


def _in_doubt(run: Run, effects: list[Open], park: Park) -> Status:
    unsettled = [effect for effect in effects if effect.letter is None]
    if not effects:
        return _parked(run, park, next_command=resume_command(run))
    if not unsettled:
        cause = f"settled by {effects[0].by}; a resume takes it up"
        return Status(run.state, run.updated_at, run.reason, cause, next=resume_command(run))
    first = unsettled[0]
    more = f", and {len(unsettled) - 1} more" if len(unsettled) > 1 else ""
    cause = park.message or f"{first.shown} was started and never confirmed ({first.why}){more}"
    return Status(run.state, run.updated_at, run.reason, cause, next=settle_command(run, first, effects))


def _parked(run: Run, park: Park, *, next_command: str) -> Status:
    return Status(run.state, run.updated_at, run.reason, park.message, park.hint, next_command)


def _pause(last: Record) -> str:
    """Why a queued run is not being run, as its last record tells."""
    if last.kind == Kind.STARTED:
        return "accepted, not begun"
    body = read_body(last) if last.kind in (Kind.ENDED, Kind.REPAIRED) else None
    match body:
        case Ended(message=message) if message:
            return str(message)
        case Repaired(set_aside):
            return f"repaired, {counted(set_aside, 'record')} set aside"
        case _:
            return "nobody holds it"


def _named(holder: Worker | None) -> str:
    return f"pid {holder.pid} on {holder.host}" if holder else "a process that is not known any more"


def _likely_app(agent: str) -> str:
    """The code to name, where a file here has the name that the agent's module must have; looked for, never opened."""
    parts = agent.split(".")
    if all(part.isidentifier() for part in parts):
        for length in range(len(parts) - 1, 0, -1):
            if Path(*parts[:length]).with_suffix(".py").is_file():
                return f"{parts[0]}.py" if length == 1 else ".".join(parts[:length])
    return "FILE"
