"""Where a run stands, with commands that look at the same store as this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure import status
from perdure.cli.options import commands
from perdure.status import OpenEffect as Open
from perdure.status import Status, numbers_of, open_effects

if TYPE_CHECKING:
    from perdure.records import Run
    from perdure.store.protocol import Store

__all__ = ["Open", "Status", "numbers_of", "open_effects", "resume_command", "settle_command", "status_of"]


def status_of(store: Store, run: Run) -> Status:
    """Where this run stands."""
    return status.status_of(store, run, commands())


def resume_command(run: Run) -> str:
    """The command that resumes this run."""
    return commands().resume(run)


def settle_command(run: Run, effect: Open, others: list[Open]) -> str:
    """The command that settles this effect."""
    return commands().settle(run, effect, others)
