"""The operator: a process that looks at what became of effects in doubt, and settles them through the command line.

It tells the truth: it asks the outside under the token of the run, waits until nothing that arrived before can still
be done, and asks again.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from tests.chaos.outside import DELAY_SECONDS, Outside

_LOOK_SECONDS: Final = 1.0


@dataclass
class Doubt:
    """An effect in doubt, and since when the outside refuses whoever may still try to send it."""

    run: str
    step: str
    key: str
    epoch: int
    asked_at: float


class Person:
    """Settles what is in doubt, for as long as it lives."""

    def __init__(self, near_url: str, outside: str) -> None:
        self._url = near_url
        self._outside = Outside(outside)
        self._doubts: dict[tuple[str, str], Doubt] = {}

    def work(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            try:
                waiting = self._waiting()
            except psycopg.Error:
                continue
            for doubt in waiting:
                self._see_to(doubt)

    def _waiting(self) -> list[Doubt]:
        found = []
        with psycopg.connect(self._url, autocommit=True, connect_timeout=5) as connection:
            rows = connection.execute(
                "SELECT run, run_id, epoch FROM perdure.runs WHERE state = 'waiting' AND reason = 'in_doubt'"
            ).fetchall()
            for run, run_id, epoch in rows:
                written = connection.execute(
                    "SELECT kind, key, name, body FROM perdure.records WHERE run = %s ORDER BY seq", (run,)
                ).fetchall()
                for name, body in _open_intents(written):
                    found.append(Doubt(run_id, name, body["effect_key"], epoch, time.monotonic()))
        return found

    def _see_to(self, doubt: Doubt) -> None:
        place = (doubt.run, f"{doubt.key} {doubt.epoch}")
        if place not in self._doubts:
            self._outside.lookup(run=doubt.run, key=doubt.key, epoch=doubt.epoch)
            self._doubts[place] = doubt
            return
        if time.monotonic() - self._doubts[place].asked_at < DELAY_SECONDS + 0.5:
            return
        receipt = self._outside.lookup(run=doubt.run, key=doubt.key, epoch=doubt.epoch)
        verdict = ["--did-not-happen"] if receipt is None else ["--happened", json.dumps(receipt)]
        command = [sys.executable, "-P", "-m", "perdure", "settle", doubt.run, doubt.step, *verdict]
        done = subprocess.run([*command, "--by", "operator"], capture_output=True, text=True, check=False)
        print(doubt.run, doubt.step, *verdict, done.returncode, done.stderr.strip(), flush=True)
        if done.returncode == 0:
            self._doubts.pop(place)


def _open_intents(records: list[tuple[Any, ...]]) -> list[tuple[str, dict[str, Any]]]:
    still_open: dict[str, tuple[str, dict[str, Any]]] = {}
    for kind, key, name, body in records:
        if kind == "intent":
            still_open[key] = (name, json.loads(body))
        elif kind in ("receipt", "attempt", "verdict"):
            still_open.pop(key, None)
    return list(still_open.values())


if __name__ == "__main__":
    Person(sys.argv[1], sys.argv[2]).work()
