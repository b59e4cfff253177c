"""`perdure import`: take in a run from a file; all of it is proved before anything is written."""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import click
from msgspec import Meta, Struct

from perdure.cli.contract import RunObject, run_object
from perdure.cli.options import command, complete_files, json_option, making, store_option
from perdure.cli.screen import bold, dim, doubtful, good, print_json, say
from perdure.cli.status import status_of
from perdure.engine.whereabouts import UNDO_AGENT
from perdure.errors import RunImported, UsageError
from perdure.records import FINISHED, Run
from perdure.store.lease import read_park
from perdure.store.parcel import Parcel, read_parcel
from perdure.store.portable import adopted
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.store.protocol import Store

STANDARD_INPUT: Final = "-"


class ImportedRun(Struct, frozen=True):
    """A run that was read from a file."""

    path: Annotated[str, Meta(description="the file")]
    imported: Annotated[bool, Meta(description="false where the very same run was here already")]
    parked: Annotated[bool, Meta(description="true where it is not finished and waits to be resumed by name")]
    records: Annotated[int, Meta(description="how many records it has")]
    run: Annotated[RunObject, Meta(description="the run as it is here now")]


class Imported(Struct, frozen=True):
    """What `perdure import` took in."""

    runs: Annotated[list[ImportedRun], Meta(description="each run; children come before those who started them")]


@click.command(name="import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, shell_complete=complete_files)
@json_option(Imported)
@store_option
def import_(files: tuple[str, ...], *, as_json: bool) -> None:
    """Take in runs that `perdure export` wrote; - reads standard input.

    Every digest in the files is checked before anything is written. A finished run is taken in as it is. One that is
    not finished may have gone further elsewhere: it is parked, its first effect here will be in doubt, and it goes on
    only when you resume it by name.
    """
    with contextlib.ExitStack() as opened:
        read = [(name, read_parcel(opened.enter_context(_open(name)), legible(name))) for name in files]
        store = opened.enter_context(making())
        parcels = sorted(read, key=lambda named: (named[1].whole.run.agent != UNDO_AGENT, -named[1].depth))
        for _, parcel in parcels:
            _refuse(store, parcel, coming={other.whole.run.run_id for _, other in parcels})
        done = [_take_in(store, parcel, name) for name, parcel in parcels]
    if as_json:
        print_json(Imported(done))
        return
    for one in done:
        _show(one)


globals()["import"] = import_
"""A word of Python that is the command's name all the same."""


@contextlib.contextmanager
def _open(name: str) -> Iterator[BinaryIO]:
    """The file; standard input is kept aside first, because it is read twice."""
    if name == STANDARD_INPUT:
        with tempfile.TemporaryFile() as aside:
            shutil.copyfileobj(sys.stdin.buffer, aside)
            aside.seek(0)
            yield aside
        return
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - closed below
    except OSError as error:
        raise UsageError(
            f"{legible(name)} cannot be read: {error.strerror or error}.",
            safe="nothing was imported.",
            hint="name a file that perdure export wrote",
        ) from error
    with file:
        yield file


def _refuse(store: Store, parcel: Parcel, *, coming: set[str]) -> None:
    """Refuse a run of which another history is here, and one that would do here what it did elsewhere.

    Without its open children it would start them a second time; without the runs that took its effects back, they
    could be taken back a second time.
    """
    run = parcel.whole.run
    known = store.read_run(run.run_id)
    if known is not None and not _is_same(known, run):
        raise UsageError(
            f"Another history of run {run.name} is here: {counted(known.length, 'record')}, {known.state}"
            f"; the file has {counted(run.length, 'record')}, {run.state}.",
            safe="nothing was imported.",
            hint=f"{command('show', run.run_id)}; or import it into another store with --store",
        )
    for undoing in parcel.first.undoings:
        if undoing not in coming and store.read_run(undoing) is None:
            raise UsageError(
                f"Effects of run {run.name} were taken back by run {undoing!r}, which is not here"
                ": they could be taken back again.",
                safe="nothing was imported.",
                hint=f"perdure export {undoing} where it is kept, and import both files",
            )
    for child in parcel.open_children:
        if child not in coming and store.read_run(child) is None:
            raise UsageError(
                f"Run {run.name} waits for its child run {child!r}, which is not here: it would be started again.",
                safe="nothing was imported.",
                hint=f"perdure export {child} where it is kept, and import both files",
            )


def _is_same(known: Run, run: Run) -> bool:
    return (known.head, known.length) == (run.head, run.length) and (known == run or run.state not in FINISHED)


def _take_in(store: Store, parcel: Parcel, path: str) -> ImportedRun:
    first = parcel.first
    whole = adopted(parcel.whole, exported_at=first.exported_at, is_undone=bool(first.undoings))
    was_known = store.read_run(whole.run.run_id) is not None
    run = store.import_run(whole, parcel.blobs())
    return ImportedRun(
        path=path,
        imported=not was_known,
        parked=read_park(run).code == RunImported.code,
        records=run.length,
        run=run_object(run, status_of(store, run)),
    )


def _show(one: ImportedRun) -> None:
    name = bold(legible(one.run.name))
    if not one.imported:
        say(f"{name}  {good('is here already')}, the same to the last record; nothing was changed")
        return
    say(f"{name}  {good('imported')}: {counted(one.records, 'record')}, {one.run.state}")
    if one.parked:
        say(f"  {doubtful('parked:')} elsewhere it may have gone further, so its first effect here will be in doubt")
        say(f"  {dim('see that it is stopped there, then:')} {one.run.next}")
    else:
        say(f"  {dim('see it:')} {command('show', one.run.name)}")
