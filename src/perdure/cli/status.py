"""Where a run stands, with commands that look at the same store as this one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure import status
from perdure.cli.options import commands, looking

if TYPE_CHECKING:
    from perdure.records import Record, Run
    from perdure.replay import Journal
    from perdure.status import OpenEffect, Status
    from perdure.store.protocol import Store


def status_of(store: Store, run: Run, *, records: list[Record] | None = None, journal: Journal | None = None) -> Status:
    """Where this run stands; `records`, and the `journal` made of them, are given where they are at hand."""
    return status.status_of(store, run, commands(), records=records, journal=journal)


def resume_command(run: Run) -> str:
    """The command that resumes this run."""
    with looking() as store:  # two runs may share a name, and one that takes back needs the code of another
        return commands().among(store).resume(run)


def settle_command(run: Run, effect: OpenEffect, others: list[OpenEffect]) -> str:
    """The command that settles this effect."""
    return commands().settle(run, effect, others)
