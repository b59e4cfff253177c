"""A process that is one of many: it waits for the word, claims or takes whatever it can get, and says what it got.

Each of its threads is a worker of its own.
"""

from __future__ import annotations

import contextlib
import sys
from concurrent.futures import ThreadPoolExecutor

from perdure.errors import PerdureError
from perdure.records import RunState
from perdure.store import open_store
from perdure.store.protocol import Store, Which
from tests.store.journals import TERMS, ending

THREADS = 2


def main(role: str, location: str, count: str) -> None:
    with contextlib.ExitStack() as stack:
        stores = [stack.enter_context(contextlib.closing(open_store(location))) for _ in range(THREADS)]
        for store in stores:
            store.join()
        answer("ready")
        sys.stdin.readline()
        with ThreadPoolExecutor(THREADS) as pool:
            got = pool.map(lambda store: ROLES[role](store, int(count)), stores)
        answer(" ".join(word for words in got for word in words))
        sys.stdin.readline()


def claim(store: Store, rounds: int) -> list[str]:
    """Claim every queued run, again and again, and hold on to what was let in."""
    held = []
    for _ in range(rounds):
        for run in store.find_runs(Which(states=("queued",))):
            with contextlib.suppress(PerdureError):
                held.append(store.claim_run(run.run_id, store.join().worker_id, TERMS).run_id)
    return held


def work(store: Store, most: int) -> list[str]:
    """Claim queued runs and complete them, until none is left; never are more of them running than may."""
    done = []
    while runs := store.find_runs(Which(states=("queued",))):
        for queued in runs:
            with contextlib.suppress(PerdureError):
                run = store.claim_run(queued.run_id, store.join().worker_id, TERMS)
                if run.state != RunState.RUNNING:  # another has completed it
                    continue
                running = store.count_runs(Which(states=("running",)))
                assert running <= most, f"{running} are running, and {most} may"
                assert store.append_all([ending(run)], power=False) == [None]
                done.append(run.run_id)
    return done


def take(store: Store, tries: int) -> list[str]:
    """Take one token at a time from a bucket that does not fill while this lasts."""
    return ["token" for _ in range(tries) if store.take_tokens("openai", rate=1e-6, burst=50) == 0]


def answer(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


ROLES = {"claim": claim, "work": work, "take": take}

if __name__ == "__main__":
    main(*sys.argv[1:])
