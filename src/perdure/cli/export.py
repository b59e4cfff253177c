"""`perdure export`: a run as one verified file that can be carried to another store."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import click
from msgspec import Meta, Struct

from perdure import clock
from perdure.bodies import read_body
from perdure.cli.options import command, complete_files, json_option, looking, runs_argument, store_option
from perdure.cli.runs import every_run, find_run
from perdure.cli.screen import bold, dim, doubtful, print_json, say, say_lines, tell
from perdure.engine.whereabouts import undoing_of, undoings_of
from perdure.errors import CheckpointCorrupt, StoreUnavailable, UsageError
from perdure.records import FINISHED, Kind, Run
from perdure.store.portable import lines_of
from perdure.telemetry.text import counted, legible, octets

if TYPE_CHECKING:
    from perdure.store.protocol import Store, Whole

SUFFIX: Final = ".perdure.jsonl"
STANDARD_OUTPUT: Final = "-"


class ExportedRun(Struct, frozen=True):
    """A run that was written to a file."""

    run_id: Annotated[str, Meta(description="the run's id")]
    name: Annotated[str, Meta(description="its readable name")]
    state: Annotated[str, Meta(description="its state when it was exported")]
    path: Annotated[str, Meta(description="the file")]
    records: Annotated[int, Meta(description="how many records are in it")]
    mail: Annotated[int, Meta(description="how many mails")]
    size_bytes: Annotated[int, Meta(description="the size of the file")]
    sha256: Annotated[str, Meta(description="the SHA-256 of the file")]
    children: Annotated[list[str], Meta(description="ids of its child runs, which are files of their own")]
    undoings: Annotated[list[str], Meta(description="ids of runs that took its effects back, files of their own too")]


class Exported(Struct, frozen=True):
    """What `perdure export` wrote."""

    runs: Annotated[list[ExportedRun], Meta(description="each run and its file, in the order they were named")]


@click.command()
@runs_argument
@click.option("--all", "everything", is_flag=True, help="Every run.")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    default="",
    shell_complete=complete_files,
    help="Where to: a file, a folder for several runs, or -.",
)
@click.option("--force", is_flag=True, help="Write over files that are there.")
@json_option(Exported)
@store_option
def export(runs: tuple[str, ...], *, everything: bool, output: str, force: bool, as_json: bool) -> None:
    """Write RUN to a file: its journal, its mail and every large value it refers to.

    A run that goes on meanwhile is written as it is at one moment. `perdure import FILE` takes it in elsewhere.
    Without -o the file is named after the run; `-o -` writes to standard output.
    """
    _refuse_unclear(runs, everything=everything, output=output, as_json=as_json)
    with looking() as store:
        chosen = _every(store) if everything else [find_run(store, run) for run in runs]
        if output == STANDARD_OUTPUT:
            _stream(store, chosen[0])
            return
        several = everything or len(chosen) > 1
        if several:
            with _plain_errors(Path(output or ".")):
                Path(output or ".").mkdir(parents=True, exist_ok=True)
        done = []
        for run in chosen:
            done.append(_export(store, run, _path(run, output, several=several), force=force))
            if not as_json:
                _show(done[-1])
    if as_json:
        print_json(Exported(done))


def _refuse_unclear(runs: tuple[str, ...], *, everything: bool, output: str, as_json: bool) -> None:
    why = ""
    if bool(runs) is everything:
        why = "RUN and --all exclude each other." if runs else "Name a RUN, or --all."
    elif output == STANDARD_OUTPUT and (everything or len(runs) > 1):
        why = "Standard output takes one run."
    elif output == STANDARD_OUTPUT and as_json:
        why = "Standard output takes the run or --json, not both."
    if why:
        raise UsageError(why, safe="nothing was written.", hint=command("ls") + " lists the runs")


def _every(store: Store) -> list[Run]:
    runs, findings = every_run(store)
    if findings:
        raise CheckpointCorrupt(
            f"{counted(len(findings), 'run')} cannot be exported: {findings[0].where}: {findings[0].what.rstrip('.')}.",
            safe="nothing was written.",
            hint="perdure verify, then perdure repair; or name the runs to export",
        )
    return runs


def _path(run: Run, output: str, *, several: bool) -> Path:
    """A run's name may be anything; what becomes of it is a plain file name."""
    name = re.sub(r"[^A-Za-z0-9._~-]+", "_", run.name).lstrip(".") or "run"
    if several:
        return Path(output or ".") / f"{name}-{_tail(run.run_id)}{SUFFIX}"
    target = Path(output) if output else Path(f"{name}{SUFFIX}")
    return target / f"{name}{SUFFIX}" if target.is_dir() else target


def _tail(run_id: str) -> str:
    """Several runs may share a name; no two share this."""
    return hashlib.sha256(run_id.encode()).hexdigest()[:8]


def _export(store: Store, run: Run, path: Path, *, force: bool) -> ExportedRun:
    whole = store.load_whole(run.run_id)
    children = _children(store, whole)
    undoings = _undoings(store, whole)
    with _plain_errors(path), _written(path, force=force) as file:
        proof = _write(file, lines_of(whole, store.load_blob, children=children, undoings=undoings))
        size = file.tell()
    row = whole.run
    sizes = (len(whole.records), len(whole.mail), size)
    return ExportedRun(row.run_id, row.name, row.state, str(path), *sizes, proof, children, undoings)


def _write(file: BinaryIO, lines: Iterator[bytes]) -> str:
    proof = hashlib.sha256()
    for line in lines:
        file.write(line)
        proof.update(line)
    return proof.hexdigest()


def _stream(store: Store, run: Run) -> None:
    whole = store.load_whole(run.run_id)
    undoings = _undoings(store, whole)
    say_lines(lines_of(whole, store.load_blob, children=_children(store, whole), undoings=undoings))
    tell(f"{bold(legible(whole.run.name))}  exported: {counted(len(whole.records), 'record')}")


def _children(store: Store, whole: Whole) -> list[str]:
    """The child runs that are kept here too."""
    started = [read_body(record).child for record in whole.records if record.kind == Kind.WAIT]
    return [child for child in dict.fromkeys(filter(None, started)) if store.read_run(child) is not None]


def _undoings(store: Store, whole: Whole) -> list[str]:
    """The runs that took this one's effects back, or were to: without them nothing elsewhere would say so."""
    run_id = whole.run.run_id
    if undoing_of(store, run_id) is None:
        return []
    return [undoing.run_id for undoing in undoings_of(store, run_id)]


@contextlib.contextmanager
def _written(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A file that appears under its name only when all of it is written and synced; only its owner may read it."""
    if path.exists() and not force:
        raise _exists(path)
    unfinished = path.with_name(f".{path.name[:100]}.{clock.new_token(8)}.part")
    descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        if force:
            unfinished.replace(path)
        else:
            os.link(unfinished, path)
    except FileExistsError as error:
        raise _exists(path) from error
    finally:
        unfinished.unlink(missing_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def _plain_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreUnavailable(
            f"{path} cannot be written: {error.strerror or error}.",
            safe="the run is untouched, and no half file was left.",
            hint="choose another place with -o",
        ) from error


def _exists(path: Path) -> UsageError:
    return UsageError(
        f"{path} is there already.", safe="it was not touched.", hint="add --force, or choose another place with -o"
    )


def _show(exported: ExportedRun) -> None:
    what = f"{counted(exported.records, 'record')}, {counted(exported.mail, 'mail')}, {octets(exported.size_bytes)}"
    say(f"{bold(legible(exported.name))}  exported to {legible(exported.path)}: {what}")
    if exported.state not in FINISHED:
        say(f"  {doubtful('it is not finished:')} where it is imported it is parked until somebody resumes it by name")
    if exported.children:
        names = command("export", *exported.children)
        say(f"  {dim('its child runs are files of their own:')} {legible(names)}")
    if exported.undoings:
        names = command("export", *exported.undoings)
        say(f"  {doubtful('its effects were taken back')} by runs that must come along: {legible(names)}")
    say(f"  {dim('take it in elsewhere:')} perdure import {legible(exported.path)} --store PATH")
