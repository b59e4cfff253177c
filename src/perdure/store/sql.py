"""Named statements, read from the `.sql` files that sit beside each store, and what more than one store binds."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from perdure.records import Kind, RunState

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class Revision:
    """One numbered schema file; its statements are read when they are wanted, for most stores have them already."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[str]:
        return iter(self._statements)

    @functools.cached_property
    def _statements(self) -> tuple[str, ...]:
        blocks = self._path.read_text(encoding="utf-8").split("\n;\n")
        return tuple(filter(None, map(_squeezed, blocks)))


@functools.cache
def load_schema(store: str) -> tuple[Revision, ...]:
    """Every schema file of a store in order; how many there are is asked whenever one is opened."""
    files = (_HERE / store / "schema").iterdir()
    return tuple(Revision(file) for file in sorted(files) if file.suffix == ".sql")


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
