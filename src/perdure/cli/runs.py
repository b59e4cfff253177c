"""Finding the run somebody means: by its name, its id, the beginning of one of them, or as the newest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.cli.misuse import did_you_mean
from perdure.cli.options import NEWEST, note_newest
from perdure.engine.whereabouts import is_undone, newest_of
from perdure.errors import CheckpointCorrupt, UnknownRun
from perdure.records import FINISHED, Run, RunState
from perdure.store.protocol import EVERY, Finding, Which
from perdure.telemetry.text import counted, legible, listed

if TYPE_CHECKING:
    from perdure.store.protocol import Store

_NAMED: Final = 5
_CONSIDERED: Final = 1000
"""Among so many of the newest runs the one that was mistyped is looked for."""


def every_run(store: Store) -> tuple[list[Run], list[Finding]]:
    """All runs, newest first; where a row is damaged, the runs that are whole and what is wrong with the others."""
    try:
        return store.list_runs(limit=EVERY), []
    except CheckpointCorrupt:
        found = list(store.check())
    runs = [item for item in found if isinstance(item, Run)]
    return runs, [item for item in found if isinstance(item, Finding)]


def find_run(store: Store, wanted: str) -> Run:
    """The one run that is meant; a text that means none or several is refused, with what there is."""
    if wanted == NEWEST:
        newest_run = next(iter(_found(store, Which(), limit=1)), None)
        if newest_run is not None:
            note_newest(store, newest_run)
            return newest_run
    else:
        beginning = _found(store, Which(beginning=wanted), limit=EVERY) if wanted else []
        for matches in (
            [run for run in beginning if run.run_id == wanted],
            [run for run in beginning if run.name == wanted],
            beginning,
        ):
            if len(matches) == 1:
                return matches[0]
            if matches:
                raise _ambiguous(wanted, matches)
    raise _unknown(wanted, store)


def _found(store: Store, which: Which, *, limit: int) -> list[Run]:
    """Runs that are meant, of those that are whole."""
    try:
        return store.find_runs(which, limit=limit)
    except CheckpointCorrupt:
        runs, _ = every_run(store)
        known = [run for run in runs if run.name.startswith(which.beginning) or run.run_id.startswith(which.beginning)]
        return known[:limit]


def current_run(store: Store, wanted: str) -> Run:
    """The same, or the run that goes on in its place."""
    found = find_run(store, wanted)
    return newest_of(store, found) or found


def unfinished(store: Store, *, stall_seconds: float) -> tuple[Run | None, Run | None]:
    """The newest run that can be resumed, and the newest that goes on elsewhere.

    A failed run counts unless the same call was made again since, or its effects were taken back.
    """
    runs, _ = every_run(store)
    called: set[tuple[str, bytes]] = set()
    held = None
    for run in runs:
        call = (run.agent, run.arguments)
        is_superseded = run.state == RunState.FAILED and (call in called or is_undone(store, run))
        called.add(call)
        if run.state in FINISHED or is_superseded:
            continue
        if not store.is_running(run, stall_seconds=stall_seconds):
            return run, held
        held = held or run
    return None, held


def _ambiguous(wanted: str, matches: list[Run]) -> UnknownRun:
    same_name = all(run.name == wanted for run in matches)
    known = [run.run_id if same_name else _called(run, wanted) for run in matches]
    what = "are named" if same_name else "begin with"
    return UnknownRun(
        f"{len(matches)} runs {what} {legible(wanted)!r}: {listed(known, most=_NAMED)}.",
        safe="nothing was changed.",
        hint="name one of them by its id" if same_name else "write more of the one you mean",
    )


def _called(run: Run, wanted: str) -> str:
    """A run by what begins like that."""
    return run.name if run.name.startswith(wanted) else f"{run.run_id} ({run.name})"


def _unknown(wanted: str, store: Store) -> UnknownRun:
    count = store.count_runs(Which())
    if not count:
        return UnknownRun(
            f"There are no runs in {store.location}.",
            safe="nothing was changed.",
            hint="start one, or name another store with --store; perdure demo shows how it works",
        )
    known = _found(store, Which(), limit=_CONSIDERED)
    names = [*(run.name for run in known), *(run.run_id for run in known)]
    return UnknownRun(
        f"There is no run {legible(wanted)!r} among the {counted(count, 'run')} in {store.location}.",
        safe="nothing was changed.",
        hint=f"{did_you_mean(wanted, names, most=3)}perdure ls lists them",
    )
