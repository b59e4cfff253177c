"""Which version of the code may go on with a run: pinning it, letting any version have it, and who is refused; pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from perdure import clock
from perdure.bodies import Ended, write_body
from perdure.errors import JournalDiverged, UsageError
from perdure.records import FINISHED, Kind, Record, Run, RunState, extended, sealed_run
from perdure.store.lease import Presence, held, read_park
from perdure.store.moving import refuse_moving

if TYPE_CHECKING:
    from perdure.records import Worker


def pinned(
    run: Run, version: str, holder: Worker | None, presence: Presence, *, by: str
) -> tuple[Run, tuple[Record, ...]]:
    """The run's row, and what its journal says of it, once only workers of this version may take it; "" for any.

    A run that parked because the code had changed is ready again: the code of that version is what it waits for. A
    process that still believes to hold the run is shut out; one that does hold it is not robbed.
    """
    if run.state in FINISHED:
        raise UsageError(
            f"Run {run.name} is {run.state}: no worker takes it any more.",
            safe="nothing was changed.",
            hint=f"perdure show {run.name}",
        )
    refuse_moving(run)
    if presence is Presence.ALIVE:
        raise held(run, holder)
    if version == run.version and not _is_stuck(run):
        return run, ()
    epoch = run.epoch + bool(run.holder)
    if not version or not _is_stuck(run):
        return sealed_run(msgspec.structs.replace(run, version=version, epoch=epoch)), ()
    now = clock.wall_seconds()
    body = Ended(state=RunState.QUEUED, message=f"pinned to version {version} by {by}")
    record = Record(run.length, Kind.ENDED, "", run.agent, b"", now, epoch, write_body(body))
    return extended(
        run,
        at=now,
        records=(record,),
        version=version,
        epoch=epoch,
        holder="",
        state=RunState.QUEUED,
        reason="",
        detail="",
        wake_at=0.0,
        heard=0,
    )


def _is_stuck(run: Run) -> bool:
    """Whether the run is parked because the code makes other calls than its journal holds."""
    return read_park(run).code == JournalDiverged.code
