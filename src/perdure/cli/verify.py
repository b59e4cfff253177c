"""`perdure verify`: read everything the store keeps and say what of it can be trusted; changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from perdure import clock
from perdure.cli.options import command, looking, store_option
from perdure.cli.screen import bad, dim, doubtful, good, say
from perdure.errors import CommitsLost, StoreError
from perdure.records import Run
from perdure.store.lease import read_park
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from perdure.records import Loss
    from perdure.store.protocol import Finding


@click.command()
@store_option
def verify() -> int:
    """Check every record of every run, and say what is trusted.

    Exit code 0: everything is whole. 6: something is damaged or was lost, and is named. Nothing is changed.
    """
    with looking() as store:
        found = list(store.check())
        losses = store.losses()
        location = store.location
    runs = [item for item in found if isinstance(item, Run)]
    findings = [item for item in found if not isinstance(item, Run)]
    parked = [run for run in runs if read_park(run).code == CommitsLost.code]
    for finding in findings:
        _show_finding(finding)
    for loss in losses:
        _show_loss(loss)
    for run in parked:
        say(f"{doubtful('parked')}   run {run.name}: {legible(read_park(run).message)}")
        say(f"  {dim('next:')} {command('repair', run.name)}")
    damaged = [finding for finding in findings if finding.run_id]
    _show_summary(location, whole=runs, damaged=len(damaged), others=len(findings) - len(damaged), parked=len(parked))
    return StoreError.exit_code if findings or parked else 0


def _show_finding(finding: Finding) -> None:
    what = legible(finding.what).rstrip(".")
    if not finding.run_id:
        say(f"{bad('damaged')}  {legible(finding.where)}: {what}")
        return
    trusted = f"records 0 to {finding.trusted - 1} are trusted" if finding.trusted else "no record of it is trusted"
    say(f"{bad('damaged')}  {legible(finding.where)}: {what}; {trusted}")
    name = finding.where.removeprefix("run ")
    say(f"  {dim('next:')} {command('repair', name if name.isprintable() and name else finding.run_id)}")


def _show_loss(loss: Loss) -> None:
    when = clock.instant(loss.at).strftime("%Y-%m-%d %H:%M:%S UTC")
    gone = loss.expected - loss.found
    say(f"{doubtful('lost')}     {counted(gone, 'acknowledged commit')} of {loss.expected:,}, noticed on {when}")


def _show_summary(location: str, *, whole: list[Run], damaged: int, others: int, parked: int) -> None:
    records = sum(run.length for run in whole)
    checked = f"{counted(len(whole) + damaged, 'run')} checked in {location}"
    if not damaged and not others:
        state = good(f"all {counted(records, 'record')} whole")
    else:
        other = f", {counted(others, 'other finding')}" if others else ""
        state = bad(f"{damaged} damaged{other}") + f", {len(whole)} whole"
    waiting = f", {doubtful(f'{parked} parked by lost commits')}" if parked else ""
    say(f"{checked}: {state}{waiting}")
