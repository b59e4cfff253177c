"""A process that starts runs of one key, or takes whatever is queued, and writes down what it did when it was done."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import sys
from pathlib import Path

from perdure.errors import PerdureError
from perdure.records import RunState
from perdure.store import open_store
from perdure.store.protocol import Store, Which
from tests.store.journals import TERMS, debounced
from tests.store.test_debounce import number_of

STARTS, TAKES = 40, 5
"""At least so many starts by each, and so many takes between them."""


def main(role: str, location: str, log: str, name: str) -> None:
    store = open_store(location)
    if role == "start":
        for number in itertools.takewhile(lambda number: number < STARTS or takes(log) < TAKES, itertools.count()):
            own = int(f"1{name}{number:06d}")
            note(log, f"begin {own}")
            note(log, f"accepted {own} {store.debounce_run(debounced(own)).run_id}")
    else:
        while take(store, log) or not Path(f"{log}.done").exists():
            pass
    store.close()


def take(store: Store, log: str) -> bool:
    queued = store.find_runs(Which(states=(RunState.QUEUED,)))
    if len(queued) > 1:
        note(log, f"crowd {[run.run_id for run in queued]}")
    for run in queued:
        with contextlib.suppress(PerdureError):  # another took it
            taken = store.claim_run(run.run_id, store.join().worker_id, TERMS)
            note(log, f"took {run.run_id} {number_of(store, taken)}")
    return bool(queued)


def takes(log: str) -> int:
    return Path(log).read_text(encoding="utf-8").count("took ")


def note(log: str, line: str) -> None:
    with open(log, "a", encoding="utf-8") as file:  # noqa: PTH123 - appended to under a lock
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{line}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
