"""Runs that belong together: a run, those it started, those that go on in its place, those that take it back.

None of them may go on in one store while another of them does in a second: a parent would start its child again, and
what was taken back could be taken back twice.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

import msgspec

from perdure.bodies import Started, read_body
from perdure.errors import CheckpointCorrupt
from perdure.records import FINISHED, Run
from perdure.store.protocol import Finding, Which

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.store.protocol import Store

_PAGE: Final = 1000
_UNDO: Final = "undo-"


def families_of(store: Store, *, unfinished: bool = False) -> tuple[list[list[str]], list[Finding]]:
    """The ids of all runs by family, oldest first, and what is damaged; or only families that are not all finished."""
    families: dict[str, list[str]] = {}
    is_open: set[str] = set()
    runs, damaged = _every(store)
    for run in runs:
        family = _family(store, run)
        families.setdefault(family, []).append(run.run_id)
        if run.state not in FINISHED:
            is_open.add(family)
    chosen = [members for family, members in families.items() if family in is_open or not unfinished]
    return chosen[::-1], damaged


def _every(store: Store) -> tuple[Iterator[Run], list[Finding]]:
    """All runs, newest first; where a row is damaged, those that are whole."""
    try:
        store.find_runs(Which(), limit=1)
        return iter([run for page in _pages(store) for run in page]), []
    except CheckpointCorrupt:
        found = list(store.check())
    runs = [item for item in found if isinstance(item, Run)]
    return reversed(runs), [item for item in found if isinstance(item, Finding)]


def _pages(store: Store) -> Iterator[list[Run]]:
    """All runs, newest first, a page at a time; runs that come meanwhile do not disturb it."""
    until_at, seen = 0.0, set[str]()
    while page := store.find_runs(Which(until_at=until_at), limit=_PAGE, skip=len(seen)):
        yield page
        oldest = page[-1].created_at
        same = {run.run_id for run in page if run.created_at == oldest}
        before = math.nextafter(oldest, math.inf)
        seen = seen | same if before == until_at else same
        until_at = before


def _family(store: Store, run: Run) -> str:
    """The run that it all began with: the outermost that started this one, before any went on in its place."""
    started = _started(store, run)
    if started is not None and started.lineage:
        return _first(started.lineage[0].run_id)
    if started is not None and run.run_id.startswith(_UNDO):
        undone = store.read_run(_undone(started))
        return _family(store, undone) if undone is not None else run.run_id
    return _first(run.run_id)


def _started(store: Store, run: Run) -> Started | None:
    """How the run was started, where its id lets expect that others belong to it."""
    if "/" not in run.run_id and not run.run_id.startswith(_UNDO):
        return None
    try:
        started: Started = read_body(store.load_journal(run.run_id)[0])
    except (CheckpointCorrupt, ValueError):
        return None
    return started


def _undone(started: Started) -> str:
    try:
        arguments = msgspec.json.decode(bytes(started.arguments), type=dict[str, object])
    except ValueError:
        return ""
    return str(arguments.get("run_id", ""))


def _first(run_id: str) -> str:
    base, mark, number = run_id.rpartition("~")
    return base if mark and number.isdecimal() else run_id
