"""The person who is asked about an effect in doubt: finds out, and writes the verdict into the run's mailbox."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from perdure.records import Mail
from perdure.store.sqlite.store import SqliteStore
from tests.crash.evidence import Entry

NAME: Final = "the test"
FindOut = Callable[[Entry], str | None]
"""The receipt of an effect that happened; None for one that did not."""


def settle(database: Path, run_id: str, doubtful: list[Entry], find_out: FindOut) -> None:
    """Say of each effect that it happened, with what `find_out` found, or that it did not, where it found nothing."""
    store = SqliteStore(database)
    try:
        for entry in doubtful:
            receipt = find_out(entry)
            outcome = "did_not_happen" if receipt is None else "happened"
            letter = {"attempt": entry.body["attempt"], "outcome": outcome, "value": receipt}
            store.post(Mail(0, run_id, "verdict", entry.key, json.dumps(letter), NAME, time.time()))
    finally:
        store.close()
