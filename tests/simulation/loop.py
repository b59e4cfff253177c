"""An event loop on simulated time: where it would wait for the system, its strand hands the baton on."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Any

from tests.simulation import now_playing
from tests.simulation.scheduler import Strand


class SimulatedSelector:
    """Nothing ever comes from the system; only time, and other strands that call in."""

    def __init__(self) -> None:
        self._is_called = False
        self._waiting: Strand | None = None

    def select(self, timeout: float | None = None) -> list[Any]:
        if not self._is_called and (timeout is None or timeout > 0):
            scheduler = now_playing.scheduler()
            self._waiting = scheduler.current
            try:
                scheduler.wait(math.inf if timeout is None else timeout)
            finally:
                self._waiting = None
        self._is_called = False
        return []

    def call(self) -> None:
        self._is_called = True
        if self._waiting is not None:
            now_playing.scheduler().wake(self._waiting)

    def close(self) -> None:
        """There is nothing to let go of."""


class SimulatedLoop(asyncio.BaseEventLoop):
    """The loop of one run."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = SimulatedSelector()
        self._household = now_playing.scheduler().current.household

    def time(self) -> float:
        return now_playing.scheduler().now

    def _process_events(self, _events: list[Any]) -> None:
        """None ever come."""

    def _write_to_self(self) -> None:
        self._selector.call()

    def close(self) -> None:
        """Let go of everything; what a dead process left unfinished ends here, and not where its garbage is found."""
        for task in asyncio.all_tasks(self) if self._household.is_dead else ():
            coroutine: Any = task.get_coro()
            with contextlib.suppress(BaseException):
                coroutine.close()
        super().close()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A process that is dead says nothing; of any other this must not happen."""
        if not self._household.is_dead:
            now_playing.play().fail(f"an event loop: {context.get('message')}: {context.get('exception')!r}")

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """There is none."""


class SimulatedPolicy(asyncio.DefaultEventLoopPolicy):
    """Every loop is a simulated one."""

    _loop_factory: Callable[[], asyncio.AbstractEventLoop] = SimulatedLoop
