"""Reading what a run left in its store."""

from __future__ import annotations

from typing import Any

from perdure.bodies import read_body
from perdure.engine.session import session
from perdure.records import Kind, Record, Run

CALLS = frozenset({Kind.STEP, Kind.ATTEMPT, Kind.INTENT, Kind.RECEIPT, Kind.DOUBT, Kind.VERDICT, Kind.PATCHED})


def run_of(run_id: str) -> Run:
    """The run's row."""
    run = session().store.read_run(run_id)
    assert run is not None
    return run


def state_of(run_id: str) -> str:
    """The run's state, with its reason where it waits."""
    run = run_of(run_id)
    return f"{run.state} ({run.reason})" if run.reason else run.state


def records_of(run_id: str, *kinds: Kind) -> list[Record]:
    """The records of the run, all or those of some kinds."""
    records = session().store.load_journal(run_id)
    return [record for record in records if not kinds or record.kind in kinds]


def bodies_of(run_id: str, *kinds: Kind) -> list[Any]:
    """What these records say."""
    return [read_body(record) for record in records_of(run_id, *kinds)]


def calls_of(run_id: str) -> list[tuple[str, str, str]]:
    """Kind, key and name of every record that belongs to a call."""
    return [(record.kind, record.key, record.name) for record in records_of(run_id) if record.kind in CALLS]


def keys_of(run_id: str) -> list[str]:
    """The keys of the completed calls, in the order in which they completed."""
    return [record.key for record in records_of(run_id, Kind.STEP, Kind.RECEIPT)]


def newest_run() -> Run:
    """The run that was accepted last."""
    return session().store.list_runs(limit=1)[0]


def runs() -> list[Run]:
    """Every run, newest first."""
    return session().store.list_runs()
