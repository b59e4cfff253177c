"""Waiting for what a run of another thread does, without looking at a clock."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import perdure
from perdure.events import Observable, RunEnded

PATIENCE_SECONDS = 60.0


class Watch:
    """The events of this process from here on, and the way to wait for one of them."""

    def __init__(self) -> None:
        self.events: list[Observable] = []
        self._changed = threading.Condition()

    def hear(self, event: Observable) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def until(self, holds: Callable[[Observable], bool], *, times: int = 1) -> None:
        """Wait until so many events are like this."""
        with self._changed:
            found = self._changed.wait_for(lambda: sum(map(holds, self.events)) >= times, PATIENCE_SECONDS)
        assert found, f"it never happened; the last events were {self.events[-5:]}"

    def until_ended(self, run_id: str, state: str, *, times: int = 1) -> None:
        """Wait until the run has ended, or left memory, in this state; `waiting (human)` names the reason too."""
        self.until(lambda event: isinstance(event, RunEnded) and _ended(event) == (run_id, state), times=times)


def _ended(event: RunEnded) -> tuple[str, str]:
    return event.run_id, f"{event.state} ({event.reason})" if event.reason else event.state


@contextmanager
def watching() -> Iterator[Watch]:
    watch = Watch()
    unsubscribe = perdure.subscribe(watch.hear)
    try:
        yield watch
    finally:
        unsubscribe()
