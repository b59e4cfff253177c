"""Noticing that acknowledged commits are gone, and saying so where everybody will see it."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import apsw
import msgspec
from msgspec import Struct

from perdure import clock
from perdure.errors import CheckpointCorrupt, CommitsLost, saved_steps
from perdure.records import FINISHED, Loss, Run, RunState, WaitReason, sealed_run
from perdure.store.chain import is_whole, loss_digest
from perdure.store.lease import Park, write_park
from perdure.store.moving import has_left
from perdure.store.sqlite.statements import Q, fetch, read_generation, replace_run, run_at

if TYPE_CHECKING:
    from collections.abc import Iterable

    from perdure.store.sqlite.presence import Slot


class Missing(Struct, frozen=True):
    """What was acknowledged, how much of it after a sync, and what is there."""

    acknowledged: int
    synced: int
    found: int


def missing(slots: Iterable[Slot | None], *, found: int) -> Missing | None:
    """What the mark knows of and the database does not."""
    known = [slot for slot in slots if slot is not None]
    acknowledged = max((slot.acknowledged for slot in known), default=0)
    synced = max((slot.synced for slot in known), default=0)
    return Missing(acknowledged, synced, found) if found < acknowledged else None


def record_loss(connection: apsw.Connection, gone: Missing) -> None:
    """Raise the generation, remember the loss, and park what it may have touched, in the transaction that is open.

    Commits that were never synced are known to be lost with the power: the runs just go on from before them.
    """
    ((generation,),) = fetch(connection, "raise_generation", (gone.acknowledged - gone.found,))
    loss = Loss(generation, clock.wall_seconds(), gone.acknowledged, gone.found)
    connection.execute(Q["insert_loss"], (*msgspec.structs.astuple(loss), loss_digest(loss)))
    if gone.found < gone.synced:
        _park_unfinished(connection, lost=gone.synced - gone.found)


def hidden_damage(connection: apsw.Connection) -> str:
    """What is wrong with the tables a run or a mail could vanish from unnoticed; empty where nothing is.

    A journal's records are missed by its chain and a large value by its address. Only runs and mail could be absent
    without a trace, because an index no longer leads to them.
    """
    for (text,) in (*fetch(connection, "check_runs"), *fetch(connection, "check_mailbox")):
        if text != "ok":
            return " ".join(str(text).split())
    return ""


def verified_losses(connection: apsw.Connection) -> list[Loss]:
    """Every loss that was recorded; each raised the generation by one, so that none can be missing unnoticed."""
    rows = fetch(connection, "list_losses")
    losses = [Loss(*row[:-1]) for row in rows]
    digests = [row[-1] for row in rows]
    if len(losses) != read_generation(connection) - 1 or digests != [loss_digest(loss) for loss in losses]:
        raise CheckpointCorrupt(
            "The list of losses is damaged.",
            safe="runs, journals and mail are verified each on their own.",
            hint="perdure verify; or put back a copy",
        )
    return losses


def _park_unfinished(connection: apsw.Connection, *, lost: int) -> None:
    """A damaged row is left as it is: sealing it anew would make truth of it."""
    for (number,) in fetch(connection, "list_numbers"):
        with contextlib.suppress(UnicodeDecodeError):
            run = run_at(connection, number)
            if is_whole(run) and run.state not in FINISHED and not has_left(run):
                replace_run(connection, _parked(run, lost=lost), number)


def _parked(run: Run, *, lost: int) -> Run:
    """The epoch passes every one that may have been handed out in the lost commits."""
    park = Park(
        code=CommitsLost.code,
        message=f"The store lost acknowledged records ({lost}); run {run.name} may have gone further than it knows.",
        safe=f"{saved_steps(run.steps)}; effects it may have performed since are treated as in doubt.",
        hint=f"perdure repair {run.name}, then resume it",
    )
    return sealed_run(
        msgspec.structs.replace(
            run,
            state=RunState.WAITING,
            reason=WaitReason.PARKED,
            detail=write_park(park),
            epoch=run.epoch + lost + 1,
            holder="",
            suspects=run.suspects + (lost + 1) // 2,
        )
    )
