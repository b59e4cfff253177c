"""Who may extend a run's journal: the pure part of claiming, shared by every store."""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from perdure import clock, typed
from perdure.bodies import Delivery, Ended, write_body
from perdure.errors import (
    CommitsLost,
    DeliveriesExhausted,
    InternalError,
    PerdureError,
    RunHeld,
    RunImported,
    RunMoved,
    RunPinned,
    saved_steps,
)
from perdure.policy import is_spent
from perdure.records import FINISHED, Kind, Record, Run, RunState, WaitReason, Worker, extended

if TYPE_CHECKING:
    from perdure.store.protocol import Terms


class Presence(StrEnum):
    """What is known of the process that holds a run."""

    NONE = "nobody held it"
    ALIVE = "its holder lives"
    DEAD = "its process died"
    LOST = "its connection to the store ended"
    STALLED = "its process gave no sign of life"


class Move(Struct, frozen=True):
    """Between which stores a run moves, and the row it has where it can go on."""

    token: str
    """Follows from where the run comes from, its row and its mail there: both stores write down the same."""
    source: str
    target: str
    row: Run


class Park(Struct, frozen=True, omit_defaults=True):
    """Why a run stopped, as kept in its row."""

    code: str = ""
    message: str = ""
    safe: str = ""
    hint: str = ""
    move: Move | None = None
    """Of a run that went to another store, or is on its way to this one."""


class Claimed(Struct, frozen=True):
    """What a claim writes, and the error the claimant gets after it is written."""

    run: Run
    records: tuple[Record, ...]
    refusal: PerdureError | None = None


def write_park(park: Park) -> str:
    """A park as kept in the run's row."""
    return msgspec.json.encode(park).decode()


MOVED_DETAIL: Final = write_park(Park(code=RunMoved.code)).removesuffix("}")
"""With what the row of a run begins to say why it stopped, if that is because it was moved away."""


def read_park(run: Run) -> Park:
    """Why the run stopped; empty where it did not."""
    return typed.read(run.detail, Park) if run.detail else Park()


def claim(
    run: Run,
    claimant: Worker,
    holder: Worker | None,
    presence: Presence,
    terms: Terms,
    *,
    unproven_seconds: float = 0.0,
) -> Claimed:
    """What claiming this run means, given what is known of its holder.

    A holder of which only the session ended may live for so many seconds more, with an effect under way.
    """
    if terms.head not in (None, run.head):
        raise held(run, holder)
    if run.state in FINISHED:
        return Claimed(run, ())
    if presence is Presence.ALIVE:
        raise held(run, holder)
    park = read_park(run)
    if park.code == RunMoved.code:
        raise RunMoved(park.message, safe=park.safe, hint=park.hint)
    if not terms.pardon:
        refuse_other_version(run, claimant)
        if park.code == CommitsLost.code:
            raise CommitsLost(park.message, safe=park.safe, hint=park.hint)
        if park.code == RunImported.code:
            raise RunImported(park.message, safe=park.safe, hint=park.hint)
        if is_spent(run, limit=terms.deliveries):
            return _exhausted(run, terms, holder)
    delivery = 1 if terms.pardon else run.deliveries + 1
    now = clock.wall_seconds()
    body = Delivery(
        worker=claimant.worker_id,
        pid=claimant.pid,
        host=claimant.host,
        delivery=delivery,
        before=_before(holder, presence),
        unproven_seconds=unproven_seconds,
        version=claimant.version,
    )
    record = Record(run.length, Kind.DELIVERY, "", run.agent, b"", now, run.epoch + 1, write_body(body))
    after, records = extended(
        run,
        at=now,
        records=(record,),
        epoch=run.epoch + 1,
        holder=claimant.worker_id,
        deliveries=delivery,
        state=RunState.RUNNING,
        reason="",
        detail="",
        wake_at=0.0,
        heard=0,
    )
    return Claimed(after, records)


def held(run: Run, holder: Worker | None) -> RunHeld:
    """The refusal a second process gets, naming who holds the run."""
    if holder is None:
        return RunHeld(f"Run {run.name} is held by a worker that is not known yet.", hint="try again in a moment")
    age = max(0.0, clock.wall_seconds() - holder.beat_at)
    return RunHeld(
        f"Run {run.name} is held by worker {holder.worker_id}, pid {holder.pid} on host {holder.host},"
        f" beat {age:.0f} s ago.",
        safe="that process goes on with the run; nothing was done here.",
        hint=f"wait for it, or stop process {holder.pid} on {holder.host} and start again",
    )


def with_death(words: str, death: str) -> str:
    """What became of a process, and how it died where somebody was told."""
    return words if not death or death in words else f"{words}: {death}"


def refuse_other_version(run: Run, claimant: Worker) -> None:
    """A run that is pinned to a version is left to workers that have it."""
    if run.version and run.version != claimant.version:
        mine = f"version {claimant.version}" if claimant.version else "no version"
        raise RunPinned(
            f"Run {run.name} is pinned to version {run.version}; this process has {mine}.",
            safe=f"{saved_steps(run.steps)}; nothing was done.",
            hint=f"leave it to perdure worker --version {run.version}; or let any have it: perdure unpin {run.name}",
        )


def refuse_other_worker(claimant: Worker, worker_id: str) -> None:
    """A process claims for itself: it could not keep another's lease alive."""
    if worker_id != claimant.worker_id:
        raise InternalError(
            f"Worker {claimant.worker_id} cannot claim for worker {worker_id!r}.",
            safe="nothing was changed.",
            hint="claim with the id that join() returned",
        )


def _exhausted(run: Run, terms: Terms, holder: Worker | None) -> Claimed:
    last = f" (the last: {holder.death})" if holder is not None and holder.death else ""
    message = (
        f"Run {run.name} ended {run.deliveries} workers in a row without completing a step{last}"
        f"; {terms.deliveries} deliveries are allowed, so it is parked."
    )
    park = Park(
        code=DeliveriesExhausted.code,
        message=message,
        safe=f"{saved_steps(run.steps)}.",
        hint=f"perdure show {run.name} tells where; with the cause mended: perdure resume {run.name}{_code_of(run)}",
    )
    refusal = DeliveriesExhausted(message, safe=park.safe, hint=park.hint)
    if read_park(run).code == park.code:
        return Claimed(run, (), refusal)
    now = clock.wall_seconds()
    body = Ended(state=RunState.WAITING, reason=WaitReason.PARKED, code=park.code, message=message, hint=park.hint)
    record = Record(run.length, Kind.ENDED, "", run.agent, b"", now, run.epoch + 1, write_body(body))
    after, records = extended(
        run,
        at=now,
        records=(record,),
        epoch=run.epoch + 1,
        holder="",
        state=RunState.WAITING,
        reason=WaitReason.PARKED,
        detail=write_park(park),
    )
    return Claimed(after, records, refusal)


def _code_of(run: Run) -> str:
    """How a command names the code of a run that is a script as a whole: its agent is its file."""
    return f" --app {shlex.quote(run.agent)}" if run.agent.endswith(".py") else ""


def _before(holder: Worker | None, presence: Presence) -> str:
    if presence is Presence.NONE or holder is None:
        return "" if presence is Presence.NONE else presence.value
    return with_death(f"{presence.value} (pid {holder.pid} on {holder.host})", holder.death)
