"""A handle: a run that somebody started and may ask for its result, its status, or its end."""

from __future__ import annotations

import asyncio
import functools
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from perdure import clock
from perdure.bodies import Ended, read_body
from perdure.engine import lifecycle, whereabouts
from perdure.engine.control import cancel
from perdure.engine.execute import LOOK_SECONDS, has_unheard
from perdure.engine.failure import class_known_to, rebuild
from perdure.engine.session import session
from perdure.errors import PerdureError, ResumeError, RunCancelled, RunPaused
from perdure.records import RunState, WaitReason
from perdure.store.lease import read_park

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from concurrent.futures import Future

    from perdure.engine.agent import AgentSpec
    from perdure.records import Run

T = TypeVar("T")
_FIRST_SECONDS: Final = 0.01
_FACTOR: Final = 1.5
_ENDED: Final = frozenset({RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED})


class Handle(Generic[T]):
    """A run that was started: ask for its result, its status, or its end."""

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


class Distant(Handle[T]):
    """A run that is left to workers: whoever asks for its result waits for it through the store."""

    def __init__(self, spec: AgentSpec, run: Run) -> None:
        self.run_id = run.run_id
        self._spec = spec

    def result(self, timeout: float | None = None) -> T:
        """The agent's result, once there is one; raises what the run raised, and what only a person can mend."""
        until = None if timeout is None else clock.elapsed_seconds() + timeout
        for seconds in _pauses():
            run = self._ended()
            if run is not None:
                return self._value(run)
            left = seconds if until is None else until - clock.elapsed_seconds()
            if left <= 0:
                raise TimeoutError
            session().news.wait(min(seconds, left), self.run_id)
        raise AssertionError

    def __await__(self) -> Generator[Any, None, T]:
        return self._awaited().__await__()

    async def _awaited(self) -> T:
        for seconds in _pauses():
            run = await asyncio.to_thread(self._ended)  # a server that is away must not hold up the loop
            if run is not None:
                return await asyncio.to_thread(self._value, run)
            await session().news.wait_async(seconds, self.run_id)
        raise AssertionError

    def _ended(self) -> Run | None:
        """The run, or the one that goes on in its place, once it has an outcome; one that must be mended raises."""
        run = whereabouts.newest(session().store, self.run_id)
        if run is None:
            raise whereabouts.vanished(self.run_id)
        if run.state in _ENDED:
            return run
        if self._is_stuck(run):
            raise _why_stopped(run)
        return None

    def _is_stuck(self, run: Run) -> bool:
        """Whether it stopped for something that somebody must mend; questions, times and signals are waited for."""
        if run.reason not in (WaitReason.PARKED, WaitReason.IN_DOUBT) or run.wake_at:
            return False
        return read_park(run).code != RunPaused.code and not has_unheard(session(), run)

    def _value(self, run: Run) -> T:
        if run.state == RunState.CANCELLED:
            raise RunCancelled(f"Run {run.name} was cancelled.")
        if run.state == RunState.COMPLETED:
            return lifecycle.recorded_result(session(), self._spec, run)  # type: ignore[no-any-return]
        ended: Ended = read_body(session().store.load_journal(run.run_id)[-1])
        if ended.failure is None:
            raise _why_stopped(run)
        raise rebuild(ended.failure, functools.partial(class_known_to, self._spec.function), name=f"Run {run.name}")


def _pauses() -> Iterator[float]:
    """How long to wait between two looks: briefly at first."""
    seconds = _FIRST_SECONDS
    while True:
        yield seconds
        seconds = min(LOOK_SECONDS, seconds * _FACTOR)


def _why_stopped(run: Run) -> PerdureError:
    """What the process that executed the run was told when it stopped."""
    park = read_park(run)
    kind = next((each for each in _below(PerdureError) if each.code == park.code), ResumeError)
    return kind(park.message, safe=park.safe, hint=park.hint)


def _below(kind: type[PerdureError]) -> Iterator[type[PerdureError]]:
    yield kind
    for each in kind.__subclasses__():
        yield from _below(each)
