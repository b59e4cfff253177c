"""`perdure gc`: remove runs that ended long ago; says what would go, and removes it only when told to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import click
from msgspec import Meta, Struct

from perdure import clock
from perdure.cli.mode import is_plain
from perdure.cli.options import command, confirm, json_option, looking, store_option, writing, yes_option
from perdure.cli.screen import bold, dim, doubtful, good, print_json, say, tell
from perdure.engine.ledger import WORK
from perdure.policy import seconds_of
from perdure.records import is_own_id
from perdure.settings import current_settings
from perdure.store import file_of
from perdure.store.protocol import Compacted, Old, Prunable, Pruned
from perdure.telemetry.text import age, counted, legible, listed, octets

if TYPE_CHECKING:
    from perdure.records import Run

KEEP: Final = "30d"
_NAMED: Final = 10


class GoneRun(Struct, frozen=True):
    """A run that goes, or went."""

    run_id: Annotated[str, Meta(description="the run's id")]
    name: Annotated[str, Meta(description="its readable name")]
    state: Annotated[str, Meta(description="completed, cancelled or failed")]
    ended_at: Annotated[float, Meta(description="when it ended")]


class Collected(Struct, frozen=True):
    """What `perdure gc` removed, or would remove."""

    removed: Annotated[bool, Meta(description="false where it only says what would go")]
    ended_before_at: Annotated[float, Meta(description="only runs that ended before this instant go")]
    runs: Annotated[list[GoneRun], Meta(description="the runs that would go, found before anything was removed")]
    run_count: Annotated[int, Meta(description="how many runs went, or would")]
    records: Annotated[int, Meta(description="how many records of theirs")]
    mail: Annotated[int, Meta(description="how many mails to them")]
    blobs: Annotated[int, Meta(description="how many large values that nobody else refers to")]
    size_bytes: Annotated[int, Meta(description="how many bytes all that is, as stored")]
    failed_kept: Annotated[int, Meta(description="old failed runs that stay: most can be resumed")]
    named_kept: Annotated[int, Meta(description="old runs that stay, because somebody chose their id")]
    needed_kept: Annotated[int, Meta(description="old runs that stay, because a run that stays refers to them")]
    given_back_bytes: Annotated[int, Meta(description="how much the file system got back")]
    free_bytes: Annotated[int, Meta(description="how much stays free in the file, for new runs")]
    why_free: Annotated[str, Meta(description="why that was not given back; empty where it is not worth it")]
    folders: Annotated[list[str], Meta(description="working directories of theirs, which stay: they may hold results")]
    next: Annotated[str, Meta(description="the command that removes them; empty where there is nothing to remove")]


@click.command()
@click.option(
    "--keep", metavar="DURATION", default=KEEP, show_default=True, help="Keep runs that ended since: 12h, 30d."
)
@click.option("--failed", is_flag=True, help="Failed runs too, which could still be resumed.")
@click.option("--named", is_flag=True, help="Runs whose id you chose too; the same id would then begin anew.")
@click.option("--delete", is_flag=True, help="Remove them: asks first, or say --yes.")
@yes_option
@json_option(Collected)
@store_option
def gc(*, keep: str, failed: bool, named: bool, delete: bool, sure: bool, as_json: bool) -> None:
    """Remove runs that ended long ago, with their journals and mail.

    Without --delete or --yes nothing is removed: you see what would go. Completed and cancelled runs go, failed ones
    only with --failed. A run whose id you chose goes only with --named: as long as it is there, the same id answers
    with its result, and does nothing again. A run that is not finished never goes, nor one that it refers to.
    """
    old = Old(clock.wall_seconds() - seconds_of(keep, what="--keep"), failed=failed, named=named)
    words = ["gc", "--keep", keep, *(["--failed"] if failed else []), *(["--named"] if named else [])]
    doing = command(*words, "--yes" if is_plain() else "--delete")
    with looking() as store:
        would = store.find_prunable(old)
    is_empty = not would.runs and not would.blobs
    if not as_json:
        _show(would, keep=keep)
    if is_empty or not (delete or sure):
        if as_json:
            print_json(_collected(old, would, next_command="" if is_empty else doing))
        elif not is_empty:
            say(f"  {dim('remove them:')} {doing}")
        return
    anew = _beginning_anew(would.runs)
    confirm(f"Remove {_runs_words(would.runs)} for good{f' ({anew})' if anew else ''}?", sure=sure)
    removed, compacted = _remove(old, would)
    if as_json:
        print_json(_collected(old, would, removed=removed, compacted=compacted))
    else:
        _show_removed(removed, compacted, _folders(would.runs))


def _remove(old: Old, would: Prunable) -> tuple[Pruned, Compacted]:
    total = Pruned()
    with writing() as store:
        for part in store.prune(old):
            total = Pruned(*(one + more for one, more in zip(_numbers(total), _numbers(part), strict=True)))
            if total.runs < len(would.runs):
                tell(dim(f"removed {total.runs:,} of {counted(len(would.runs), 'run')}"))
        return total, store.compact()


def _numbers(pruned: Pruned) -> tuple[int, ...]:
    return pruned.runs, pruned.records, pruned.mail, pruned.blobs, pruned.size


def _show(would: Prunable, *, keep: str) -> None:
    if not would.runs and not would.blobs:
        say(f"{good('Nothing to remove')}: no finished run ended more than {legible(keep)} ago.")
    else:
        say(f"{bold(_runs_words(would.runs))} ended more than {legible(keep)} ago")
        for run in would.runs[:_NAMED]:
            ended = age(clock.wall_seconds() - run.updated_at)
            say(f"  {legible(run.name)}  {run.state} {ended} ago, {counted(run.length, 'record')}")
        if len(would.runs) > _NAMED:
            say(f"  and {len(would.runs) - _NAMED:,} more")
        say(f"  {_what_words(would)}")
        if anew := _beginning_anew(would.runs):
            say(f"  {doubtful('note:')} {anew}")
    if would.failed:
        lost = "--failed removes them, and what could be resumed is lost then"
        say(f"  {doubtful('stays:')} {counted(would.failed, 'failed run')} ({lost})")
    if would.named:
        runs = f"{counted(would.named, 'run')} whose id you chose"
        say(f"  {doubtful('stays:')} {runs} (--named removes them, and the same id begins anew then)")
    if would.needed:
        say(f"  {doubtful('stays:')} {counted(would.needed, 'run')} that others refer to, which stay")


def _show_removed(removed: Pruned, compacted: Compacted, folders: list[Path]) -> None:
    say(f"{good('Removed')} {counted(removed.runs, 'run')}: {_what_words(removed)}")
    if compacted.given_back:
        say(f"  {octets(compacted.given_back)} given back to the file system")
    if compacted.free:
        why = f"; not given back: {legible(compacted.why)}" if compacted.why else ""
        say(f"  {octets(compacted.free)} free in the file, for new runs{why}")
    if folders:
        named = listed([legible(folder.name) for folder in folders], most=_NAMED)
        say(f"  {doubtful('stays:')} what they made in {legible(str(folders[0].parent))}: {named}")


def _folders(runs: tuple[Run, ...]) -> list[Path]:
    """The working directories of these runs; no run is asked before somebody's results are thrown away."""
    file = file_of(current_settings().store)
    if file is None:
        return []
    work = Path(file).expanduser().parent / WORK
    return [work / run.name for run in runs if "/" not in run.name and (work / run.name).is_dir()]


def _runs_words(runs: tuple[Run, ...]) -> str:
    return counted(len(runs), "run")


def _beginning_anew(runs: tuple[Run, ...]) -> str:
    chosen = [legible(run.run_id) for run in runs if is_own_id(run.run_id)]
    return f"ids you chose, which begin anew when used again: {listed(chosen, most=_NAMED)}" if chosen else ""


def _what_words(what: Prunable | Pruned) -> str:
    parts = [counted(what.records, "record"), counted(what.mail, "mail"), counted(what.blobs, "large value")]
    return f"{', '.join(parts)}; {octets(what.size)}"


def _collected(
    old: Old,
    would: Prunable,
    *,
    removed: Pruned | None = None,
    compacted: Compacted | None = None,
    next_command: str = "",
) -> Collected:
    numbers = removed or Pruned(len(would.runs), would.records, would.mail, would.blobs, would.size)
    room = compacted or Compacted()
    return Collected(
        removed=removed is not None,
        ended_before_at=old.ended_before,
        runs=[GoneRun(run.run_id, run.name, run.state, run.updated_at) for run in would.runs],
        run_count=numbers.runs,
        records=numbers.records,
        mail=numbers.mail,
        blobs=numbers.blobs,
        size_bytes=numbers.size,
        failed_kept=would.failed,
        named_kept=would.named,
        needed_kept=would.needed,
        given_back_bytes=room.given_back,
        free_bytes=room.free,
        why_free=room.why,
        folders=[str(folder) for folder in _folders(would.runs)],
        next=next_command,
    )
