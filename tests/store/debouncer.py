"""A process that starts runs of one key, or takes whatever is queued, and writes down what it did when it was done."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import sys
import time
from pathlib import Path

from perdure.errors import PerdureError
from perdure.records import RunState
from perdure.store import open_store
from perdure.store.protocol import Store, Which
from tests.store.journals import TERMS, debounced
from tests.store.test_debounce import number_of

STARTS, TAKES, TAKERS = 40, 5, 2
"""At least so many starts by each, and so many takes between the takers, who are so many."""


def main(role: str, location: str, log: str, name: str) -> None:
    store = open_store(location)
    if role == "start":
        for number in itertools.count():
            if number >= STARTS and said(log, "took") >= TAKES:
                break
            own = int(f"1{name}{number:06d}")
            note(log, f"begin {own}")
            note(log, f"accepted {own} {store.debounce_run(debounced(own)).run_id}")
    else:
        while take(store, log) or not Path(f"{log}.done").exists():
            pass
        note(log, "finished")
        while said(log, "finished") < TAKERS:  # whoever leaves first gives up what it took: the other may still look
            time.sleep(0.01)
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


def said(log: str, what: str) -> int:
    """How many lines say so."""
    return [line.split()[0] for line in Path(log).read_text(encoding="utf-8").splitlines()].count(what)


def note(log: str, line: str) -> None:
    with open(log, "a", encoding="utf-8") as file:  # noqa: PTH123 - appended to under a lock
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(f"{line}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
