"""A worker of perdure that looks for work and claims one run, again and again, in a store that may hold very many."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

from benchmarks.multitude import AGENT, fill
from perdure import clock
from perdure.bodies import Ended, write_body
from perdure.records import Append, Kind, Record, Run, RunState, extended
from perdure.store import open_store
from perdure.store.protocol import Store, Terms

STALL_SECONDS = 120.0
LOOKED_AT = 20
WARM_UP_CLAIMS = 10
TERMS = Terms(deliveries=3, stall_seconds=STALL_SECONDS)


def load(*, directory: Path, store: str, queued: int, finished: int) -> dict[str, float]:
    """Fill a store, and check that what was written past the engine is whole."""
    started = time.perf_counter()
    fill(located(directory, store), queued=queued, finished=finished)
    return {"seconds": time.perf_counter() - started}


def claims(*, directory: Path, store: str, count: int) -> dict[str, float]:
    """Time looking for work and claiming the first run that was found; what was claimed is ended, off the clock."""
    opened = open_store(located(directory, store))
    worker = opened.join()
    looks: list[float] = []
    claimed: list[float] = []
    for _ in range(WARM_UP_CLAIMS + count):
        begun = time.perf_counter()
        found = opened.list_ready(
            agents=(AGENT,), now=clock.wall_seconds(), stall_seconds=STALL_SECONDS, limit=LOOKED_AT
        )
        looked = time.perf_counter()
        run = opened.claim_run(found[0].run_id, worker.worker_id, TERMS)
        claimed.append(time.perf_counter() - looked)
        looks.append(looked - begun)
        end(opened, run)
    opened.close()
    look, claim = (statistics.median(spans[WARM_UP_CLAIMS:]) * 1000 for spans in (looks, claimed))
    return {"look_ms": look, "claim_ms": claim, "both_ms": look + claim}


def end(store: Store, run: Run) -> None:
    """Let a run be completed, so that nobody finds it again."""
    body = write_body(Ended(state=RunState.COMPLETED))
    record = Record(run.length, Kind.ENDED, "", run.agent, b"", clock.wall_seconds(), run.epoch, body)
    after, records = extended(run, at=record.at, records=(record,), state=RunState.COMPLETED, holder="")
    assert store.append_all([Append(after, records)], power=False) == [None]


def located(directory: Path, store: str) -> str:
    """Return the address of a store; a file is in the directory of the trial."""
    return store if ":" in store else str(directory / store)
