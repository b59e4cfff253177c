"""The runs that a journal names: its children, and the run that goes on in its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from perdure.cli.options import commands
from perdure.cli.rows import cost_words
from perdure.cli.screen import dim
from perdure.cli.status import status_of
from perdure.cli.telling import leaf_lines
from perdure.cli.timeline import Teller
from perdure.cli.tree import Leaf, tree
from perdure.engine.whereabouts import newest
from perdure.errors import PerdureError
from perdure.records import FINISHED
from perdure.telemetry.text import counted, duration, legible

if TYPE_CHECKING:
    from collections.abc import Iterator

    from perdure.records import Run
    from perdure.store.protocol import Store

EXPANDED: Final = 8
"""So many children are told step by step; the others by a line each."""

SHORT_RECORDS: Final = 30
"""A child with more records than this is told by a line."""


class Kin:
    """Other runs, looked up once."""

    def __init__(self, store: Store, run_ids: list[str]) -> None:
        self._store = store
        self._runs = {run_id: newest(store, run_id) for run_id in dict.fromkeys(run_ids)}
        self._expanded = 0
        self.words = {run_id: self._words(run_id, run) for run_id, run in self._runs.items()}

    def lines(self, run_id: str, *, depth: int) -> Iterator[str]:
        """A child below the step that started it: what it took, and its own steps where they are few."""
        run = self._runs.get(run_id)
        if run is None:
            return
        look = commands()("show", commands().among(self._store).named(run))
        yield dim(f"{'':14}{'│ ' * depth}{_facts(run)}: {look}")
        if run.length > SHORT_RECORDS or self._expanded >= EXPANDED:
            return
        self._expanded += 1
        for leaf in self._tree(run):
            yield from leaf_lines(Leaf(leaf.depth + depth, leaf.what), run=run, is_own=False)

    def _tree(self, run: Run) -> Iterator[Leaf]:
        try:
            records = self._store.load_journal(run.run_id)
        except PerdureError:  # the page of the child itself tells what is wrong with it
            return
        yield from tree(Teller(records).tell(records), {})

    def _words(self, run_id: str, run: Run | None) -> str:
        if run is None:
            return f"{run_id}, not accepted yet"
        return f"{run.name}, {status_of(self._store, run).words}"


def _facts(run: Run) -> str:
    took = duration(run.updated_at - run.created_at) if run.state in FINISHED else ""
    cost = cost_words(dollars=run.dollars, tokens=run.tokens)
    return ", ".join(filter(None, (legible(run.agent), counted(run.steps, "step"), took, cost)))
