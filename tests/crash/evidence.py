"""What is left after a kill, read without perdure: the journal in the database, and who settled what."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import apsw

_COMPLETED: Final = frozenset({"step", "receipt"})
_CLOSED: Final = frozenset({"receipt", "attempt", "verdict"})


@dataclass(frozen=True)
class Entry:
    """A record of the journal."""

    seq: int
    kind: str
    key: str
    name: str
    at: float
    body: dict[str, Any]


@dataclass(frozen=True)
class Journal:
    """The records of one run, and where its row says that it stands."""

    state: str = ""
    reason: str = ""
    entries: tuple[Entry, ...] = ()

    def completed(self) -> dict[str, Any]:
        """The value or failure of every call with a completion, or with a verdict that it happened, by key."""
        happened = {entry.key: _outcome(entry.body) for entry in self.verdicts() if entry.body["outcome"] == "happened"}
        return happened | {entry.key: _outcome(entry.body) for entry in self.entries if entry.kind in _COMPLETED}

    def failed_attempts(self) -> set[tuple[str, int]]:
        """The attempts of which a failure is recorded."""
        return {(entry.key, entry.body["attempt"]) for entry in self.entries if entry.kind == "attempt"}

    def verdicts(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.kind == "verdict"]

    def open_intents(self) -> list[Entry]:
        """Intents after which nothing of their attempt is recorded."""
        still_open: dict[str, Entry] = {}
        for entry in self.entries:
            if entry.kind == "intent":
                still_open[entry.key] = entry
            elif entry.kind in _CLOSED:
                still_open.pop(entry.key, None)
        return list(still_open.values())


@contextlib.contextmanager
def reading(path: Path) -> Iterator[apsw.Connection]:
    """A connection that changes nothing, not even by being the last to close."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        connection.set_busy_timeout(10_000)
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        yield connection
    finally:
        connection.close()


def read_journal(path: Path, run_id: str) -> Journal:
    """What is committed of a run now; empty where there is no such run or no store."""
    if not path.exists() or not path.stat().st_size:
        return Journal()
    with reading(path) as database:
        if not _rows(database, "SELECT name FROM sqlite_schema WHERE name = ?", "runs"):
            return Journal()
        runs = _rows(database, "SELECT run, state, reason FROM runs WHERE run_id = ?", run_id)
        if not runs:
            return Journal()
        run, state, reason = runs[0]
        rows = _rows(database, "SELECT seq, kind, key, name, at, body FROM records WHERE run = ? ORDER BY seq", run)
    return Journal(
        state,
        reason,
        tuple(Entry(seq, kind, key, name, at, json.loads(body)) for seq, kind, key, name, at, body in rows),
    )


def read_letters(path: Path, run_id: str) -> list[tuple[str, str, int]]:
    """What others wrote to a run: kind, key, attempt."""
    with reading(path) as database:
        rows = _rows(database, "SELECT kind, key, body FROM mailbox WHERE run_id = ? ORDER BY mail", run_id)
    return [(kind, key, json.loads(body).get("attempt", 0)) for kind, key, body in rows]


def effect_key(run_id: str, key: str) -> str:
    """The key under which bodies and the outside know a call of a run."""
    return hashlib.sha256(f"{run_id}\n{key}".encode()).hexdigest()[:32]


def _outcome(body: dict[str, Any]) -> Any:
    failure = body.get("failure")
    return (failure["type"], failure["message"]) if failure else body.get("blob") or body.get("value")


def _rows(database: apsw.Connection, query: str, argument: Any) -> list[Any]:
    return list(database.execute(query, (argument,)))
