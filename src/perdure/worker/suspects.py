"""Runs on their last delivery: one at a time, so that a run that kills its workers takes no other one with it.

Whoever shared a process with such a run has lost as many deliveries as it did. On its last delivery it shares a process
with no other suspect, so only the run that kills is parked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from perdure.errors import PerdureError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from perdure.engine.agent import AgentSpec
    from perdure.engine.session import Session
    from perdure.records import Run


class Suspects:
    """The runs of one worker that are on their last delivery, until they complete a step."""

    def __init__(self, opened: Session, agents: Mapping[str, AgentSpec]) -> None:
        self._session = opened
        self._agents = agents
        self._suspected: set[str] = set()

    def admits(self, run: Run, moving: Sequence[str]) -> bool:
        """Whether this run may begin beside those that move here."""
        if not self._is_suspect(run):
            return True
        self._suspected = {run_id for run_id in self._suspected if run_id in moving and not self._is_cleared(run_id)}
        return not self._suspected

    def add(self, run: Run) -> None:
        """Remember that a run begins here; it is given as it was before it was claimed."""
        if self._is_suspect(run):
            self._suspected.add(run.run_id)

    def _is_suspect(self, run: Run) -> bool:
        limit = self._agents[run.agent].deliveries or self._session.settings.deliveries
        return 1 < limit == run.deliveries + 1

    def _is_cleared(self, run_id: str) -> bool:
        """Whether it has completed a step since: that takes its deliveries back."""
        try:
            run = self._session.store.read_run(run_id)
        except PerdureError:
            return False
        return run is None or not run.deliveries
