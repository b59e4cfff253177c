"""`perdure migrate --from … --to …`: every run of one store moved to another, with what a person sees of it."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct

from perdure import clock
from perdure.cli.mode import mode
from perdure.cli.options import refuse_memory
from perdure.cli.screen import bold, dim, doubtful, good, say, tell
from perdure.errors import StoreUnavailable, UsageError
from perdure.settings import current_settings
from perdure.status import Commands
from perdure.store import file_of, open_store
from perdure.store.mover import Mover, Tally
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.store.protocol import Store

_CELLS: Final = 24
_CLEAR: Final = "\r\x1b[2K"
_LINE_SECONDS: Final = 5.0
_NAMED: Final = 20


class LeftRun(Struct, frozen=True):
    """A run that stayed where it was."""

    run_id: Annotated[str, Meta(description="the run's id")]
    name: Annotated[str, Meta(description="its readable name")]
    why: Annotated[str, Meta(description="why it was not moved")]
    next: Annotated[str, Meta(description="what lets it move")]


class Relocated(Struct, frozen=True):
    """What `perdure migrate --from … --to …` moved, or would move."""

    source: Annotated[str, Meta(description="where the runs were")]
    target: Annotated[str, Meta(description="where they are now")]
    done: Annotated[bool, Meta(description="false where it only says what would be moved")]
    runs: Annotated[int, Meta(description="how many runs there were to move")]
    moved: Annotated[int, Meta(description="unfinished runs that go on at the target now, and no longer at the source")]
    copied: Annotated[int, Meta(description="finished runs, which can still be read at the source")]
    before: Annotated[int, Meta(description="runs that an earlier move had brought to the target")]
    records: Annotated[int, Meta(description="how many records came along")]
    mail: Annotated[int, Meta(description="how many mails")]
    blobs: Annotated[int, Meta(description="how many large values")]
    queues: Annotated[int, Meta(description="how many queues have their limits there too")]
    schedules: Annotated[int, Meta(description="how many schedules are kept there now, and off at the source")]
    left: Annotated[list[LeftRun], Meta(description="runs that were not moved, each with the reason")]
    next: Annotated[str, Meta(description="the command that moves what is left; empty where nothing is")]


def relocate(source: str, target: str, *, unfinished: bool, dry_run: bool) -> Relocated:
    """Move every run, or only say what that would come to."""
    names = (_name(source), _name(target))
    again = Commands()("migrate", "--from", names[0], "--to", names[1], *(["--unfinished"] if unfinished else []))
    with contextlib.ExitStack() as opened:
        stores = _opened(source, target, opened, dry_run=dry_run)
        mover = Mover(*stores, names=names, unfinished=unfinished)
        tally = mover.plan() if dry_run else _watched(mover, again)
    return Relocated(
        source=names[0],
        target=names[1],
        done=not dry_run,
        runs=tally.total,
        moved=tally.moved,
        copied=tally.copied,
        before=tally.before,
        records=tally.records,
        mail=tally.mail,
        blobs=tally.blobs,
        queues=tally.queues,
        schedules=tally.schedules,
        left=[LeftRun(each.run_id, each.name, each.why, each.hint) for each in tally.left],
        next=again if tally.left or dry_run else "",
    )


def show(moved: Relocated) -> None:
    """Say what became of them."""
    for line in _lines(moved):
        say(line)


def _opened(source: str, target: str, opened: contextlib.ExitStack, *, dry_run: bool) -> tuple[Store, Store]:
    for location in (source, target):
        refuse_memory(location)
    if _name(source) == _name(target):
        raise UsageError(
            f"--from and --to are both {_name(source)}.",
            safe="nothing was changed.",
            hint="name two stores: perdure migrate --from PATH --to postgresql://…",
        )
    looked = _open(source, create=False)
    if dry_run:
        there = _open_if_there(target)
        return opened.enter_context(contextlib.closing(looked)), opened.enter_context(contextlib.closing(there))
    looked.close()
    here = opened.enter_context(contextlib.closing(_open(source, create=True)))
    return here, opened.enter_context(contextlib.closing(_open(target, create=True)))


def _open(location: str, *, create: bool) -> Store:
    settings = current_settings()
    return open_store(location, create=create, seconds=settings.open_seconds, lease_seconds=settings.lease_seconds)


def _open_if_there(target: str) -> Store:
    """The store that a dry run compares with: an empty one in memory where there is none yet."""
    try:
        return _open(target, create=False)
    except StoreUnavailable as error:
        if not error.message.startswith("There is no store"):
            raise
        return open_store("memory:")


def _name(location: str) -> str:
    """A store as it is written down in the other one: without a password, and not depending on where one stands."""
    file = file_of(location)
    if file is not None:
        return str(Path(file).expanduser().absolute())
    from perdure.store.postgres.location import read_location  # an extra, imported where it is used

    return read_location(location).shown


def _watched(mover: Mover, again: str) -> Tally:
    """Move while somebody watches."""
    shown = Shown()
    try:
        for tally in mover.move():
            shown.advance(tally)
    except KeyboardInterrupt:
        shown.clear()
        tell(f"  {doubtful('stopped:')} each run can go on in one store only; go on with: {again}")
        raise
    finally:
        shown.clear()
    return mover.tally


class Shown:
    """How far a move is: a bar on a terminal, a line now and then elsewhere."""

    def __init__(self) -> None:
        self._at = clock.elapsed_seconds()
        self._is_drawn = False

    def advance(self, tally: Tally) -> None:
        """Show it."""
        if mode.as_json or not tally.total:
            return
        if sys.stderr.isatty():
            share = tally.done / tally.total
            cells = "█" * int(share * _CELLS)
            tell(f"{_CLEAR}moving {cells:░<{_CELLS}} {share:>4.0%}  {_far(tally)}", newline=False)
            self._is_drawn = True
        elif clock.elapsed_seconds() - self._at >= _LINE_SECONDS:
            self._at = clock.elapsed_seconds()
            tell(f"moving: {_far(tally)}")

    def clear(self) -> None:
        """Leave no bar behind."""
        if self._is_drawn:
            self._is_drawn = False
            tell(_CLEAR, newline=False)


def _far(tally: Tally) -> str:
    return f"{tally.done:,} of {counted(tally.total, 'run')}"


def _lines(moved: Relocated) -> Iterator[str]:
    verb = bold("Moved" if moved.done else "Would move")
    yield f"{verb} {counted(moved.moved, 'unfinished run')} from {legible(moved.source)} to {legible(moved.target)}"
    if moved.copied:
        would = "" if moved.done else "would be "
        yield f"  {counted(moved.copied, 'finished run')} {would}copied; {dim('they can still be read at the source')}"
    if moved.before:
        yield f"  {counted(moved.before, 'run')} came with an earlier move"
    if moved.done and moved.records:
        parts = [counted(moved.records, "record"), counted(moved.mail, "mail"), counted(moved.blobs, "large value")]
        yield f"  {', '.join(parts)}: read back, and {good('the same')}"
    if moved.queues or moved.schedules:
        along = f"{counted(moved.queues, 'queue')} with limits, {counted(moved.schedules, 'schedule')}"
        yield f"  {along} went along; {dim('schedules are off at the source')}"
    for each in moved.left[:_NAMED]:
        yield f"  {doubtful('left:')} {legible(each.why)}"
        if each.next:
            yield f"    {dim('do:')} {legible(each.next)}"
    if len(moved.left) > _NAMED:
        yield f"  and {len(moved.left) - _NAMED:,} more, which --json names"
    if moved.next:
        yield f"  {dim('then:' if moved.done else 'nothing was changed; move them:')} {moved.next}"
