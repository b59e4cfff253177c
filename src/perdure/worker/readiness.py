"""Since when a run that a worker takes could have gone on: for how long nobody did what could be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.records import RunState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.records import Mail, Run, Worker
    from perdure.store.protocol import Store


def ready_at(store: Store, run: Run) -> float:
    """Since when this run, as it was before it was claimed, could go on."""
    match run.state:
        case RunState.WAITING:
            return _roused_at(run, store.read_mail(run.run_id))
        case RunState.RUNNING:
            return _left_at(run, store.read_worker(run.holder))
        case _:
            return run.updated_at


def _roused_at(run: Run, mails: Sequence[Mail]) -> float:
    """When the first mail came that it had not heard of, or the time that it waited for: whichever was sooner."""
    came = [mail.at for mail in mails if mail.mail_id > run.heard and mail.kind != "refused" and not mail.taken]
    return max(run.updated_at, min([*came, *([run.wake_at] if run.wake_at else [])], default=run.updated_at))


def _left_at(run: Run, holder: Worker | None) -> float:
    """When its holder died, or gave its last sign of life."""
    if holder is None:
        return run.updated_at
    return holder.died_at or max(run.updated_at, holder.beat_at)
