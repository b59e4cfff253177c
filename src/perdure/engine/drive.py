"""How the engine's flows touch the world: each operation can be done now, blocking, or later, awaited.

A flow is a generator that yields operations and is written once; `drive` runs it for sync callers and `drive_async` for
async ones. There is no second copy of any decision.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import inspect
import threading
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from msgspec import Struct

from perdure import clock
from perdure.engine.scope import Frame, current_frame, enter_frame
from perdure.engine.stillness import SETTLED_SECONDS, Standing, Watch
from perdure.errors import DeadlineExceeded, LeaseLost, PerdureError
from perdure.records import WaitReason

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from perdure.engine.active import Active, Waiting
    from perdure.store.writer import Ticket

T = TypeVar("T")
QUIET_SECONDS: Final = 0.01
"""How often a waiting strand looks whether the others still move."""

STILL_SECONDS: Final = 1.0
"""A strand of which nothing else is known, and that calls nothing for so long, is taken to wait for another."""

LOOK_SECONDS: Final = 0.1
"""How long a look stands for: nobody knows what happened while a strand that waits was not given the processor."""

WORKING_SECONDS: Final = 60.0
"""Agent code that works on its own, outside of any step, for so long is not waited for: a resume begins it anew."""

DRAIN_SECONDS: Final = 30.0
"""How long the end of a run waits for effects still being performed by its other strands."""


class Operation(Protocol):
    """Something a flow asks for."""

    def now(self) -> Any:
        """Do it, blocking this thread."""

    async def later(self) -> Any:
        """Do it, letting the event loop go on."""


def drive(flow: Generator[Operation, Any, T]) -> T:
    """Run a flow to its end in this thread."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            operation = flow.send(answer) if error is None else flow.throw(error)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        try:
            answer, error = operation.now(), None
        except BaseException as raised:  # noqa: BLE001 - handed to the flow, which decides
            answer, error = None, raised


async def drive_async(flow: Generator[Operation, Any, T]) -> T:
    """Run a flow to its end in this task."""
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            operation = flow.send(answer) if error is None else flow.throw(error)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        try:
            answer, error = await operation.later(), None
        except BaseException as raised:  # noqa: BLE001 - handed to the flow, which decides
            answer, error = None, raised


class Commit(Struct, eq=False):
    """Wait until a queued record is committed; a refusal stops the run."""

    active: Active
    ticket: Ticket

    def now(self) -> None:
        try:
            self.active.writer.wait(self.ticket)
        except (PerdureError, LeaseLost) as error:
            raise self.active.fenced(error) from error

    async def later(self) -> None:
        try:
            await self.active.writer.wait_async(self.ticket)
        except (PerdureError, LeaseLost) as error:
            raise self.active.fenced(error) from error


class Pause:
    """Let time pass inside a run that is held."""

    __slots__ = ("_seconds",)

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def now(self) -> None:
        clock.pause(self._seconds)

    async def later(self) -> None:
        await clock.pause_async(self._seconds)


class Perform(Struct, eq=False):
    """Execute a body of user code, opaque to the journal, within its timeout."""

    active: Active
    frame: Frame
    body: Callable[..., Any]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}
    timeout: float | None = None
    thread: threading.Thread | None = None

    @property
    def lingers(self) -> bool:
        """Whether a body that was timed out still runs in its thread."""
        return self.thread is not None and self.thread.is_alive()

    def now(self) -> Any:
        active, frame, before = self.active, self.frame, current_frame()
        try:  # before anything is changed: a signal may raise an exception anywhere
            active.begin_body(frame)
            enter_frame(frame)
            frame.blocking = asyncio._get_running_loop() is not None  # noqa: SLF001 - the public form raises
            body = active.body_of(self.body)
            if self.timeout is None:
                return body(*self.args, **self.kwargs)
            return self._within_timeout(body, self.timeout)
        finally:
            try:
                enter_frame(before)
            finally:
                active.end_body(frame)

    async def later(self) -> Any:
        active, frame, before = self.active, self.frame, current_frame()
        try:
            active.begin_body(frame)
            enter_frame(frame)
            frame.blocking = True  # what a plain function does here, it does before the loop goes on
            result = active.body_of(self.body)(*self.args, **self.kwargs)
            if type(result) is not CoroutineType and not inspect.isawaitable(result):  # mostly it is one
                return result
            frame.blocking = False
            if self.timeout is None:
                return await result
            return await self._awaited(result, self.timeout)
        finally:
            try:
                enter_frame(before)
            finally:
                active.end_body(frame)

    async def _awaited(self, result: Any, timeout: float) -> Any:
        try:
            async with asyncio.timeout(timeout) as limit:
                return await result
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise self._too_slow(timeout) from error

    def _within_timeout(self, body: Callable[..., Any], timeout: float) -> Any:
        """Run the body in a thread of its own; one that is too slow is left behind, still in flight."""
        outcome: list[Any] = []
        failure: list[BaseException] = []
        context = contextvars.copy_context()

        def execute() -> None:
            try:
                outcome.append(context.run(body, *self.args, **self.kwargs))
            except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
                failure.append(error)

        self.thread = threading.Thread(target=execute, name=f"perdure-{self.frame.body}", daemon=True)
        contextvars.Context().run(self.thread.start)
        self.thread.join(timeout)
        if failure:
            raise failure[0]
        if not outcome:
            raise self._too_slow(timeout)
        return outcome[0]

    def _too_slow(self, timeout: float) -> DeadlineExceeded:
        return DeadlineExceeded(
            f"{self.frame.body} took longer than its timeout of {timeout:g} s.",
            hint="raise timeout=, or let the retry policy attempt it again",
        )


class Drained:
    """Wait, within a bound, for effects that other strands still perform, so that their receipts are not lost."""

    __slots__ = ("_active",)

    def __init__(self, active: Active) -> None:
        self._active = active

    def now(self) -> None:
        deadline = clock.elapsed_seconds() + DRAIN_SECONDS
        while self._is_busy() and clock.elapsed_seconds() < deadline:
            clock.poll(QUIET_SECONDS)

    async def later(self) -> None:
        deadline = clock.elapsed_seconds() + DRAIN_SECONDS
        while self._is_busy() and clock.elapsed_seconds() < deadline:
            await clock.poll_async(QUIET_SECONDS)

    def _is_busy(self) -> bool:
        return bool(self._active.open_effects) and self._active.performing > 0


class Quiet:
    """Wait until no other strand of the run moves, and say whether that can be known here."""

    __slots__ = ("_active", "_looked_at", "_moved_at", "_seen", "_still_seconds", "_watch")

    def __init__(self, active: Active) -> None:
        self._active = active
        self._seen = -1
        self._looked_at = self._moved_at = self._still_seconds = 0.0
        self._watch = Watch()

    @property
    def is_close(self) -> bool:
        """Whether it is worth looking again in a moment."""
        return self._watch.is_close

    def now(self) -> bool:
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public form raises where no loop runs
            return not self._active.strands  # those of this loop cannot move before this one stops
        with waiting(self._active):
            while not self.is_quiet():
                clock.poll(QUIET_SECONDS)
        return True

    async def later(self) -> bool:
        with waiting(self._active):
            while not self.is_quiet():
                await clock.poll_async(QUIET_SECONDS)
        return True

    def is_quiet(self) -> bool:
        """Whether no other strand has moved since this was last asked."""
        active = self._active
        if active.signal is not None:
            return True
        before, self._looked_at = self._looked_at, clock.elapsed_seconds()
        if active.performing or active.movements != self._seen:
            self._seen, self._moved_at, self._still_seconds = active.movements, self._looked_at, 0.0
            return not active.performing and not active.strands
        match active.standing(self._watch):
            case Standing.BLOCKED:
                return True
            case Standing.UNKNOWN:
                self._still_seconds += min(LOOK_SECONDS, self._looked_at - before)
                return self._still_seconds >= STILL_SECONDS
            case Standing.WORKING:
                self._still_seconds = 0.0
                return self._looked_at - self._moved_at >= WORKING_SECONDS


class Idle:
    """Wait for something outside the run; once every strand of the run waits so, the run leaves memory."""

    __slots__ = ("_active", "_quiet", "_seen", "_wait")

    def __init__(self, active: Active, wait: Waiting, quiet: Quiet, *, seen: int) -> None:
        self._active = active
        self._wait = wait
        self._quiet = quiet
        self._seen = seen

    def now(self) -> None:
        active = self._active
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public form raises where no loop runs
            if active.may_leave() or active.strands:  # those of this loop cannot move before this one stops
                raise active.signal or active.suspend()
            clock.poll(QUIET_SECONDS, until=self._comes_at)
            return
        quiet, patience = self._quiet, Patience()
        with waiting(active):
            while not self._is_over():
                self._leave_if_quiet()
                clock.poll(patience.next_seconds(self._wait.due_at, is_close=quiet.is_close), until=self._comes_at)

    async def later(self) -> None:
        quiet, patience = self._quiet, Patience()
        with waiting(self._active):
            while not self._is_over():
                self._leave_if_quiet()
                seconds = patience.next_seconds(self._wait.due_at, is_close=quiet.is_close)
                await clock.poll_async(seconds, until=self._comes_at)

    def _is_over(self) -> bool:
        active = self._active
        if active.signal is not None:
            raise active.signal
        return active.rings != self._seen or 0 < self._wait.due_at <= clock.wall_seconds()

    def _comes_at(self) -> float:
        """When what is waited for comes by itself; a person, a signal or a child may come at any time."""
        return self._wait.due_at if self._wait.reason == WaitReason.TIME else 0.0

    def _leave_if_quiet(self) -> None:
        if self._quiet.is_quiet() and self._active.may_leave():
            raise self._active.signal or self._active.suspend()


class Patience:
    """How long to sleep before looking again: briefly at first, then longer, and never past a due time."""

    def __init__(self) -> None:
        self._seconds = QUIET_SECONDS / 4

    def next_seconds(self, due_at: float, *, is_close: bool = False) -> float:
        self._seconds = min(LOOK_SECONDS, self._seconds * 1.5)
        seconds = min(self._seconds, SETTLED_SECONDS) if is_close else self._seconds
        return min(seconds, max(0.001, due_at - clock.wall_seconds())) if due_at else seconds


@contextlib.contextmanager
def waiting(active: Active) -> Iterator[None]:
    """The strand that runs here waits meanwhile."""
    frame = current_frame()
    strand = None if frame is None else frame.scope.strand
    # A library may execute what it was given in a context of another strand, as those do that carry contexts along.
    strands = {strand, *active.strands_of(_here())} - {None}
    active.waiting.update(strands)
    try:
        yield
    finally:
        active.waiting.difference_update(strands)


def _here() -> asyncio.Task[Any] | threading.Thread:
    """What executes this code."""
    task = asyncio.current_task() if asyncio._get_running_loop() is not None else None  # noqa: SLF001
    return threading.current_thread() if task is None else task
