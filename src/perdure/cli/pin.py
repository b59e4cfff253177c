"""`perdure pin` and `perdure unpin`: which version of the code goes on with a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import click
from msgspec import Meta, Struct

from perdure.cli.contract import RunObject, run_object
from perdure.cli.control import find, standing
from perdure.cli.options import by_option, json_option, looking, run_argument, store_option, writing
from perdure.cli.screen import bold, print_json, say, say_next
from perdure.engine.control import who
from perdure.engine.whereabouts import newest
from perdure.errors import UsageError
from perdure.records import FINISHED
from perdure.replay import Journal
from perdure.status import open_waits
from perdure.telemetry.text import counted, legible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.records import Run
    from perdure.store.protocol import Store

_VERSION_CHARACTERS = 100


class Pinned(Struct, frozen=True):
    """What `perdure pin` or `perdure unpin` did."""

    version: Annotated[str, Meta(description="the version whose workers alone may take the run now; empty for any")]
    run: Annotated[RunObject, Meta(description="the run after it")]
    children: Annotated[list[str], Meta(description="ids of the child runs it waits for, pinned or unpinned with it")]


@click.command()
@run_argument(required=True)
@click.argument("version")
@by_option
@json_option(Pinned)
@store_option
def pin(run: str, version: str, *, by: str, as_json: bool) -> None:
    """Let only workers of VERSION go on with RUN, and with the child runs it waits for.

    A run that parked because the code had changed is queued again: a worker that was started with
    `perdure worker --version VERSION` takes it up, and all others leave it alone.
    """
    if not version or len(version) > _VERSION_CHARACTERS or not version.isprintable() or " " in version:
        raise UsageError(
            f"{legible(version, 60)!r} is no version.",
            safe="nothing was changed.",
            hint="the word that the worker was given: perdure worker --version v1",
        )
    _pin(run, version, by=by, as_json=as_json)


@click.command()
@run_argument(required=True)
@by_option
@json_option(Pinned)
@store_option
def unpin(run: str, *, by: str, as_json: bool) -> None:
    """Let workers of any version go on with RUN, and with the child runs it waits for."""
    _pin(run, "", by=by, as_json=as_json)


def _pin(wanted: str, version: str, *, by: str, as_json: bool) -> None:
    found = find(wanted)
    with looking() as store:
        children = [] if found.state in FINISHED else [child.run_id for child in _children(store, found)]
    with writing() as store:
        for run_id in (found.run_id, *children):
            store.pin_run(run_id, version, by=by or who())
    after, status = standing(found)
    if as_json:
        print_json(Pinned(version, run_object(after, status), children))
        return
    what = f"is for workers of version {legible(version)} alone" if version else "is for workers of any version"
    what = what if version or found.version else f"was not pinned: it {what}"
    also = f", with {counted(len(children), 'child run')}" if children else ""
    say(f"{bold(legible(found.name))}  {what}{also}: {legible(status.words)}")
    if status.cause:
        say(f"  {legible(status.cause)}")
    if status.next:
        say_next(status.next)


def _children(store: Store, run: Run) -> Iterator[Run]:
    """The unfinished runs that it waits for, and those that they wait for."""
    for wait in open_waits(store, run, Journal(store.load_journal(run.run_id))):
        child = newest(store, wait.opened.child) if wait.opened.child else None
        if child is not None and child.state not in FINISHED:
            yield child
            yield from _children(store, child)
