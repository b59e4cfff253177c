"""`@agent`, `run` and `start`: a function plus a journal is a run."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import inspect
import os
import sys
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, overload

from perdure import clock
from perdure.engine import lifecycle
from perdure.engine.call import mark_coroutine_function
from perdure.engine.drive import drive, drive_async
from perdure.engine.excepthook import install as install_excepthook
from perdure.engine.lifecycle import Finished, Request
from perdure.engine.scope import (
    ROOT,
    Frame,
    Scope,
    adopt_loop,
    current_frame,
    enter_frame,
    foreign_process,
    leave_frame,
)
from perdure.engine.session import session
from perdure.engine.signature import Signature, checked_name
from perdure.errors import UnknownRun, UsageError
from perdure.records import Durability, Mail
from perdure.telemetry import terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from perdure.engine.active import Active
    from perdure.engine.session import Session
    from perdure.records import Run

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_ATTRIBUTE = "__perdure_agent__"


class AgentSpec:
    """What `@agent` was told about a function."""

    def __init__(
        self, function: Callable[..., Any], *, name: str | None, durability: Durability | None, undo_on_failure: bool
    ) -> None:
        self.function = function
        self.signature = Signature(function, word="agent")
        self.name = f"{_module_of(function)}.{function.__qualname__}" if name is None else checked_name(name)
        self.durability = durability
        self.undo_on_failure = undo_on_failure
        if durability not in (None, "power", "process"):
            raise UsageError(
                f"{self.name}: durability={durability!r}.", hint='durability="power" or durability="process"'
            )

    @functools.cached_property
    def code_version(self) -> str:
        """A digest of the agent's source, recorded and never used as a gate."""
        try:
            return hashlib.sha256(inspect.getsource(self.function).encode()).hexdigest()[:16]
        except (OSError, TypeError):
            return ""


@overload
def agent(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def agent(
    *, name: str | None = ..., durability: Durability | None = ..., undo_on_failure: bool = ...
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def agent(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    durability: Durability | None = None,
    undo_on_failure: bool = False,
) -> Any:
    """Make a function an agent: called outside a run it is one, called inside one it is a scope of it.

    `durability="process"` survives kill -9, but power loss may cost the last moments (effects are always synced).
    `undo_on_failure` takes effects back, newest first, when the agent raises.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        spec = AgentSpec(function, name=name, durability=durability, undo_on_failure=undo_on_failure)
        wrapper = _async_wrapper(spec) if spec.signature.is_async else _sync_wrapper(spec)
        functools.wraps(function)(wrapper)
        setattr(wrapper, _ATTRIBUTE, spec)
        return wrapper

    return decorate if function is None else decorate(function)


@overload
def run(
    agent: Callable[..., Coroutine[Any, Any, T]], *args: Any, run_id: str | None = ..., fresh: bool = ..., **kwargs: Any
) -> T: ...


@overload
def run(agent: Callable[..., T], *args: Any, run_id: str | None = ..., fresh: bool = ..., **kwargs: Any) -> T: ...


def run(agent: Callable[..., Any], *args: Any, run_id: str | None = None, fresh: bool = False, **kwargs: Any) -> Any:
    """Run an agent to its result, resuming an interrupted run of the same call.

    With `run_id` that very run is resumed, or its recorded result returned. `fresh=True` starts over. Raises when the
    run waits, is in doubt or parks; uncaught, the script prints what happened, what is safe and what to do.
    """
    frame = current_frame()
    if frame is not None and not frame.body:
        raise UsageError(
            "perdure.run was called inside a run.",
            safe="nothing was started.",
            hint="call the agent itself: it runs as a part of this run",
        )
    return _run(spec_of(agent), Request(args, kwargs, run_id, fresh))


def resume(agent: Callable[..., Any], run: Run, *, pardon: bool = True) -> Any:
    """Resume a run with the arguments its first record holds; `pardon` where a person asked for it by name."""
    spec = spec_of(agent)
    opened = session()
    active = lifecycle.open_run(opened, spec, run, pardon=pardon)
    if spec.signature.is_async:
        return asyncio.run(_execute_async(opened, spec, active))
    return _execute(opened, spec, active)


class Handle(Generic[T]):
    """A run started in this process: ask for its result, its status, or its end."""

    def __init__(self, run: Run, future: Future[T]) -> None:
        self.run_id = run.run_id
        self.name = run.name
        self._future = future

    def result(self, timeout: float | None = None) -> T:
        """The agent's result, once there is one; raises what the run raised."""
        return self._future.result(timeout)

    def status(self) -> str:
        """The run's state, with its reason where it waits."""
        found = session().store.read_run(self.run_id)
        if found is None:
            raise UnknownRun(f"There is no run {self.run_id!r}.", hint="it may have been pruned")
        return f"{found.state} ({found.reason})" if found.reason else found.state

    def cancel(self) -> None:
        """Ask the run to end at its next step."""
        opened = session()
        opened.store.post(Mail(0, self.run_id, "cancel", "", "{}", f"pid {os.getpid()}", clock.wall_seconds()))
        opened.deliver_mail()

    def __await__(self) -> Generator[Any, None, T]:
        return asyncio.wrap_future(self._future).__await__()


@overload
def start(
    agent: Callable[..., Coroutine[Any, Any, T]], *args: Any, run_id: str | None = ..., **kwargs: Any
) -> Handle[T]: ...


@overload
def start(agent: Callable[..., T], *args: Any, run_id: str | None = ..., **kwargs: Any) -> Handle[T]: ...


def start(agent: Callable[..., Any], *args: Any, run_id: str | None = None, **kwargs: Any) -> Handle[Any]:
    """Accept a run and execute it in a thread of this process; its first record is committed when this returns."""
    if current_frame() is not None:
        raise UsageError(
            "perdure.start was called inside a run.",
            safe="nothing was started.",
            hint="call the agent itself: it runs as a part of this run",
        )
    spec = spec_of(agent)
    _greet()
    opened = session()
    active = lifecycle.enter(opened, spec, Request(args, kwargs, run_id, fresh=run_id is None))
    future: Future[Any] = Future()

    def execute() -> None:
        try:
            if spec.signature.is_async:
                future.set_result(asyncio.run(_execute_async(opened, spec, active)))
            else:
                future.set_result(_execute(opened, spec, active))
        except BaseException as error:  # noqa: BLE001 - handed to whoever asks for the result
            future.set_exception(error)

    threading.Thread(target=execute, name=f"perdure-{active.row.name}").start()
    return Handle(active.row, future)


def spec_of(agent: Callable[..., Any]) -> AgentSpec:
    """What is known of a decorated agent."""
    spec = getattr(agent, _ATTRIBUTE, None)
    if not isinstance(spec, AgentSpec):
        raise UsageError(
            f"{getattr(agent, '__qualname__', agent)!s} is not an agent.",
            safe="nothing was started.",
            hint="put @perdure.agent above its def",
        )
    return spec


def _greet() -> None:
    """Have our lines shown, and our errors explained, in whatever program this is."""
    install_excepthook()
    terminal.install()


def _run(spec: AgentSpec, request: Request) -> Any:
    if spec.signature.is_async:
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public form raises where no loop runs
            raise UsageError(
                f"perdure.run({spec.function.__name__}, …) was called inside a running event loop.",
                safe="nothing was started.",
                hint=f"await {spec.function.__name__}(…): outside a run, calling an agent is a run",
            )
        return asyncio.run(_run_async(spec, request))
    _greet()
    opened = session()
    return _execute(opened, spec, lifecycle.enter(opened, spec, request))


async def _run_async(spec: AgentSpec, request: Request) -> Any:
    _greet()
    opened = session()
    return await _execute_async(opened, spec, lifecycle.enter(opened, spec, request))


def _sync_wrapper(spec: AgentSpec) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        frame = current_frame()
        if frame is None:
            return _run(spec, Request(args, kwargs))
        if frame.body:
            return spec.function(*args, **kwargs)
        inline = _inline(spec, frame)
        token = enter_frame(inline)
        try:
            value = spec.function(*args, **kwargs)
        finally:
            leave_frame(token)
        _leave_inline(inline)
        return value

    return call


def _async_wrapper(spec: AgentSpec) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        frame = current_frame()
        if frame is None:
            return _run_async(spec, Request(args, kwargs))
        if frame.body:
            return spec.function(*args, **kwargs)
        return _inline_async(spec, _inline(spec, frame), args, kwargs)

    mark_coroutine_function(call)
    return call


def _inline(spec: AgentSpec, frame: Frame) -> Frame:
    """The frame of an agent called inside a run: a scope of the same run."""
    active = frame.active
    if active is None or active.pid != os.getpid():
        raise foreign_process(frame.foreign or (active.row.name if active else ""))
    if active.signal is not None:
        raise active.signal
    return Frame(active, frame.scope.child(spec.function.__qualname__, inline=True), caller=frame)


def _leave_inline(frame: Frame) -> None:
    """An agent called inside a run returned: it must have made every call recorded for it."""
    if frame.active is not None:
        frame.active.leave(frame.scope)
        if frame.active.signal is not None:
            raise frame.active.signal


async def _inline_async(spec: AgentSpec, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if current_frame() is not frame.caller:
        frame.caller = None  # it runs in a task of its own, beside its caller
    token = enter_frame(frame)
    try:
        value = await spec.function(*args, **kwargs)
    finally:
        leave_frame(token)
    _leave_inline(frame)
    return value


def _execute(opened: Session, spec: AgentSpec, active: Active | Finished) -> Any:
    """Replay and continue the agent, settle the outcome; for sync agents."""
    if isinstance(active, Finished):
        return active.value
    token = enter_frame(Frame(active, Scope(ROOT)))
    try:
        bound = lifecycle.recorded_arguments(active, spec)
        value = spec.function(*bound.args, **bound.kwargs)
    except BaseException as error:
        leave_frame(token)
        outcome = drive(lifecycle.settled(active, lifecycle.outcome(active, spec, error)))
        if outcome is error:
            raise
        raise outcome from None
    else:
        leave_frame(token)
        return drive(lifecycle.settled(active, lifecycle.complete(active, spec, value)))
    finally:
        opened.release(active.row.run_id)


async def _execute_async(opened: Session, spec: AgentSpec, active: Active | Finished) -> Any:
    """Replay and continue the agent, settle the outcome; for async agents."""
    if isinstance(active, Finished):
        return active.value
    adopt_loop(asyncio.get_running_loop())
    token = enter_frame(Frame(active, Scope(ROOT)))
    try:
        bound = lifecycle.recorded_arguments(active, spec)
        value = await spec.function(*bound.args, **bound.kwargs)
    except BaseException as error:
        leave_frame(token)
        outcome = await drive_async(lifecycle.settled(active, lifecycle.outcome(active, spec, error)))
        if outcome is error:
            raise
        raise outcome from None
    else:
        leave_frame(token)
        return await drive_async(lifecycle.settled(active, lifecycle.complete(active, spec, value)))
    finally:
        opened.release(active.row.run_id)


def _module_of(function: Callable[..., Any]) -> str:
    """The module as others would import it, so that a script and its import are the same agent."""
    if function.__module__ != "__main__":
        return function.__module__
    main = sys.modules["__main__"]
    specification = getattr(main, "__spec__", None)
    if specification is not None:
        return str(specification.name).removesuffix(".__main__")
    return Path(getattr(main, "__file__", "") or "__main__").stem
