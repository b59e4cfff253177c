"""`perdure verify`: read everything the store keeps and say what of it can be trusted; changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click
from msgspec import Meta, Struct

from perdure.cli.damage import Damage, damage_of, mending
from perdure.cli.options import command, json_option, looking, store_option
from perdure.cli.screen import bad, doubtful, good, print_json, say, say_next
from perdure.errors import CommitsLost, StoreError
from perdure.records import Run
from perdure.store.lease import read_park
from perdure.telemetry.text import counted, legible, utc

if TYPE_CHECKING:
    from perdure.records import Loss
    from perdure.store.protocol import Finding


class LostCommits(Struct, frozen=True):
    """Acknowledged commits that were gone when the store was opened."""

    noticed_at: Annotated[float, Meta(description="when that was noticed")]
    expected: Annotated[int, Meta(description="how many commits had been acknowledged")]
    found: Annotated[int, Meta(description="how many were there")]


class ParkedRun(Struct, frozen=True):
    """A run that such a loss may have touched, parked until it is repaired."""

    run_id: Annotated[str, Meta(description="the run's id")]
    name: Annotated[str, Meta(description="its readable name")]
    cause: Annotated[str, Meta(description="why it is parked")]
    next: Annotated[str, Meta(description="the command that lets it go on")]


class Verified(Struct, frozen=True):
    """What `perdure verify` found."""

    whole: Annotated[bool, Meta(description="whether everything is trusted: the exit code is 0 then, else 6")]
    store: Annotated[str, Meta(description="the store that was read")]
    runs_whole: Annotated[int, Meta(description="how many runs are whole")]
    records_whole: Annotated[int, Meta(description="how many records they have")]
    damage: Annotated[list[Damage], Meta(description="everything that is damaged")]
    losses: Annotated[list[LostCommits], Meta(description="every loss that was ever noticed here")]
    parked: Annotated[list[ParkedRun], Meta(description="runs that a loss parked")]


@click.command()
@json_option(Verified)
@store_option
def verify(*, as_json: bool) -> int:
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
    if as_json:
        print_json(_verified(location, runs, findings, losses, parked))
    else:
        _show(location, runs, findings, losses, parked)
    return StoreError.exit_code if findings or parked else 0


def _verified(
    location: str, runs: list[Run], findings: list[Finding], losses: list[Loss], parked: list[Run]
) -> Verified:
    return Verified(
        whole=not findings and not parked,
        store=location,
        runs_whole=len(runs),
        records_whole=sum(run.length for run in runs),
        damage=[damage_of(finding) for finding in findings],
        losses=[LostCommits(loss.at, loss.expected, loss.found) for loss in losses],
        parked=[ParkedRun(run.run_id, run.name, read_park(run).message, command("repair", run.name)) for run in parked],
    )


def _show(location: str, runs: list[Run], findings: list[Finding], losses: list[Loss], parked: list[Run]) -> None:
    for finding in findings:
        _show_finding(finding)
    for loss in losses:
        _show_loss(loss)
    for run in parked:
        say(f"{doubtful('parked')}   run {run.name}: {legible(read_park(run).message)}")
        say_next(command("repair", run.name))
    damaged = [finding for finding in findings if finding.run_id]
    _show_summary(location, whole=runs, damaged=len(damaged), others=len(findings) - len(damaged), parked=len(parked))


def _show_finding(finding: Finding) -> None:
    what = legible(finding.what).rstrip(".")
    if not finding.run_id:
        say(f"{bad('damaged')}  {legible(finding.where)}: {what}")
        return
    trusted = f"records 0 to {finding.trusted - 1} are trusted" if finding.trusted else "no record of it is trusted"
    say(f"{bad('damaged')}  {legible(finding.where)}: {what}; {trusted}")
    say_next(mending(finding))


def _show_loss(loss: Loss) -> None:
    when = utc(loss.at)
    gone = loss.expected - loss.found
    say(f"{doubtful('lost')}     {counted(gone, 'acknowledged commit')} of {loss.expected:,}, noticed on {when}")
    say("  what came after that is not known here: put back a newer copy, or check outside what was done since")


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
