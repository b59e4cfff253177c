"""A handle: a run that somebody started and may ask for its result, its status, or its end."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from perdure.engine import whereabouts
from perdure.engine.control import cancel
from perdure.engine.session import session

if TYPE_CHECKING:
    from collections.abc import Generator
    from concurrent.futures import Future

    from perdure.records import Run

T = TypeVar("T")


class Handle(Generic[T]):
    """A run started in this process: ask for its result, its status, or its end."""

    def __init__(self, run: Run, future: Future[T]) -> None:
        self.run_id = run.run_id
        self._future = future

    @property
    def name(self) -> str:
        """The readable name of the run."""
        return whereabouts.known_run(session().store, self.run_id).name

    def result(self, timeout: float | None = None) -> T:
        """The agent's result, once there is one; raises what the run raised."""
        return self._future.result(timeout)

    def status(self) -> str:
        """The run's state, with its reason where it waits."""
        return whereabouts.described_state(session().store, self.run_id)

    def cancel(self) -> None:
        """Ask the run to end at its next step; a body that does not end within its grace is cut off if it is async."""
        cancel(self.run_id)

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self._future).__await__()
