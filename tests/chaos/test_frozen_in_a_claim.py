"""A process that freezes in the middle of a transaction does not keep what it locked."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

from perdure.records import Run
from perdure.store.postgres import PostgresStore
from tests import warm
from tests.postgres import schema_url
from tests.store.journals import TERMS, created

CLAIMS_HALF: Final = """
import sys
from perdure.store.postgres import PostgresStore
from perdure.store.postgres.connect import fetch

store = PostgresStore(sys.argv[1])
with store._writer.transaction() as connection:
    fetch(connection, "lock_run", (sys.argv[2],))
    print("locked", flush=True)
    sys.stdin.read()
"""


def test_run_is_claimed_though_a_frozen_process_has_locked_its_row() -> None:
    with schema_url() as url, contextlib.closing(PostgresStore(url)) as store:
        run: Run = created(store)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src")}
        command = [sys.executable, "-P", "-c", CLAIMS_HALF, url, run.run_id]
        with warm.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as frozen:
            try:
                assert frozen.stdout is not None
                assert frozen.stdout.readline() == "locked\n"
                frozen.send_signal(signal.SIGSTOP)
                claimed = store.claim_run(run.run_id, store.join().worker_id, TERMS)
            finally:
                frozen.kill()
        assert claimed.epoch == run.epoch + 1
