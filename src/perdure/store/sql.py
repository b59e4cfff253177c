"""Named statements, read from the `.sql` files that sit beside each store, and what more than one store binds."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perdure.records import Kind, RunState

if TYPE_CHECKING:
    from perdure.records import Record, Run

_HERE: Final = Path(__file__).parent  # not by importlib.resources, which takes as long to import as all of a store
_NAME: Final = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_RUNNING: Final = str(RunState.RUNNING)
_TURNS: Final = frozenset({Kind.DELIVERY, Kind.ENDED, Kind.REPAIRED})
"""Records with which a run may change its state, its holder or what it waits for; the others only make it longer."""


def load_queries(store: str) -> dict[str, str]:
    """Every statement of a store's queries.sql, by name."""
    parts = _NAME.split((_HERE / store / "queries.sql").read_text(encoding="utf-8"))
    return {name: _squeezed(text) for name, text in zip(parts[1::2], parts[2::2], strict=True)}


@functools.cache
def load_schema(store: str) -> tuple[tuple[str, ...], ...]:
    """The numbered schema files in order, each as its statements; they are asked for whenever a store is opened."""
    numbered = sorted((_HERE / store / "schema").glob("*.sql"))
    blocks = (entry.read_text(encoding="utf-8").split("\n;\n") for entry in numbered)
    return tuple(tuple(filter(None, map(_squeezed, each))) for each in blocks)


def only_grows(run: Run, records: tuple[Record, ...]) -> bool:
    """Whether the row is as the run's claim left it, but for the length of its journal and what follows from that."""
    if run.state != _RUNNING or run.reason or run.detail or run.wake_at or run.heard:
        return False
    for record in records:  # noqa: SIM110 - asked at every step, and a generator would cost as much again
        if record.kind in _TURNS:
            return False
    return True


def changeable(run: Run) -> tuple[Any, ...]:
    """The columns of a run's row that an append may change, in the order of the statements that do it."""
    return (
        run.updated_at,
        run.state,
        run.reason,
        run.detail,
        run.epoch,
        run.holder,
        run.deliveries,
        run.steps,
        run.suspects,
        run.length,
        run.wake_at,
        run.heard,
        run.tokens,
        run.dollars,
        run.version,
        run.head,
        run.digest,
    )


def _squeezed(text: str) -> str:
    kept = (line.strip() for line in text.splitlines() if not line.lstrip().startswith("--"))
    return " ".join(line for line in kept if line)
