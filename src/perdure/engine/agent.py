"""`@agent`, `run` and `start`: a function plus a journal is a run."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from perdure import clock
from perdure.engine import lifecycle
from perdure.engine.call import mark_coroutine_function
from perdure.engine.child import start_child
from perdure.engine.control import deadline_of, written_tags
from perdure.engine.debounce import Debouncing, accept_debounced, debouncing, refuse_inside_run
from perdure.engine.excepthook import install as install_excepthook
from perdure.engine.execute import to_end, to_end_async, to_pause
from perdure.engine.handle import Distant, Handle
from perdure.engine.lifecycle import Request
from perdure.engine.runner import Task, runner_of
from perdure.engine.schedule import checked_schedules
from perdure.engine.scope import (
    Frame,
    current_frame,
    enter_frame,
    foreign_process,
    leave_frame,
)
from perdure.engine.session import session
from perdure.engine.signals import checked_signals
from perdure.engine.signature import Signature, checked_name
from perdure.engine.wait import WaitSpec
from perdure.errors import UsageError
from perdure.policy import Duration
from perdure.queues import Placement, Queue, checked_deliveries, placed, queue_name
from perdure.records import Durability
from perdure.schedules import Schedule
from perdure.telemetry import terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence

    from perdure.records import Run

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
_ATTRIBUTE = "__perdure_agent__"
_listeners: list[Callable[[AgentSpec], None]] = []


class AgentSpec:
    """What `@agent` was told about a function."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self.function = function
        self.signature = Signature(function, word="agent")
        name, durability = options["name"], options["durability"]
        self.name = f"{_module_of(function)}.{function.__qualname__}" if name is None else checked_name(name)
        self.durability: Durability | None = durability
        self.undo_on_failure: bool = options["undo_on_failure"]
        self.tags = written_tags(options["tags"])
        self.deadline_seconds = deadline_of(options["deadline"])
        self.signals: tuple[str, ...] | None = options["signals"]
        self.queue: str = "" if options["queue"] is None else queue_name(options["queue"])
        self.deliveries = checked_deliveries(options["deliveries"])
        self.schedules = checked_schedules(self.name, self.signature, options["schedule"])
        if durability not in (None, "power", "process"):
            raise UsageError(
                f"{self.name}: durability={durability!r}.", hint='durability="power" or durability="process"'
            )

    @functools.cached_property
    def as_child(self) -> WaitSpec:
        """The call by which a run starts this agent as a run of its own."""
        return WaitSpec(self.function, name=f"start {self.name}")

    @functools.cached_property
    def code_version(self) -> str:
        """A digest of the agent's source, recorded and never used as a gate."""
        try:
            return hashlib.sha256(inspect.getsource(self.function).encode()).hexdigest()[:16]
        except (OSError, TypeError):
            return ""


@contextlib.contextmanager
def heard_declarations() -> Iterator[list[AgentSpec]]:
    """Every agent that is declared meanwhile, also one that another of its name replaces."""
    heard: list[AgentSpec] = []
    _listeners.append(heard.append)
    try:
        yield heard
    finally:
        _listeners.remove(heard.append)


@overload
def agent(function: Callable[P, R], /) -> Callable[P, R]: ...


@overload
def agent(
    *,
    name: str | None = ...,
    durability: Durability | None = ...,
    undo_on_failure: bool = ...,
    tags: Mapping[str, str] | None = ...,
    deadline: Duration | None = ...,
    signals: Sequence[str] | None = ...,
    queue: str | Queue | None = ...,
    deliveries: int | None = ...,
    schedule: Schedule | Sequence[Schedule] | None = ...,
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


def agent(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    durability: Durability | None = None,
    undo_on_failure: bool = False,
    tags: Mapping[str, str] | None = None,
    deadline: Duration | None = None,
    signals: Sequence[str] | None = None,
    queue: str | Queue | None = None,
    deliveries: int | None = None,
    schedule: Schedule | Sequence[Schedule] | None = None,
) -> Any:
    """Make a function an agent: called outside a run it is one, called inside one it is a scope of it.

    `durability="process"` survives kill -9, but power loss may cost the last moments (effects are always synced).
    `undo_on_failure` takes effects back, newest first, when the agent raises. `tags` are kept with every run of it.
    A run that is older than its `deadline` fails. `signals`: the names it waits for; others are refused.
    `queue`: `perdure.start` leaves its runs there, to workers. A run that ends `deliveries` workers in a row without
    completing a step is parked; the settings say after how many where this does not. `schedule`: workers start runs of
    it by themselves, one for each tick.
    """
    options = {
        "name": name,
        "durability": durability,
        "undo_on_failure": undo_on_failure,
        "tags": tags,
        "deadline": deadline,
        "signals": None if signals is None else checked_signals(signals),
        "queue": queue,
        "deliveries": deliveries,
        "schedule": schedule,
    }

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        spec = AgentSpec(function, options)
        wrapper = _async_wrapper(spec) if spec.signature.is_async else _sync_wrapper(spec)
        functools.wraps(function)(wrapper)
        setattr(wrapper, _ATTRIBUTE, spec)
        for hear in _listeners:
            hear(spec)
        return wrapper

    return decorate if function is None else decorate(function)


@overload
def run(
    agent: Callable[..., Coroutine[Any, Any, T]],
    *args: Any,
    run_id: str | None = ...,
    fresh: bool = ...,
    tags: Mapping[str, str] | None = ...,
    deadline: Duration | None = ...,
    **kwargs: Any,
) -> T: ...


@overload
def run(
    agent: Callable[..., T],
    *args: Any,
    run_id: str | None = ...,
    fresh: bool = ...,
    tags: Mapping[str, str] | None = ...,
    deadline: Duration | None = ...,
    **kwargs: Any,
) -> T: ...


def run(
    agent: Callable[..., Any],
    *args: Any,
    run_id: str | None = None,
    fresh: bool = False,
    tags: Mapping[str, str] | None = None,
    deadline: Duration | None = None,
    **kwargs: Any,
) -> Any:
    """Run an agent to its result, resuming an interrupted run of the same call.

    With `run_id` that very run is resumed, or its recorded result returned. `fresh=True` starts over. A run that sleeps
    is waited for. Raises when the run waits for a person or a signal, is in doubt or parks; uncaught, the script prints
    what happened, what is safe and what to do. `tags` and `deadline` apply to a run that is new.
    """
    frame = current_frame()
    if frame is not None and not frame.body:
        raise UsageError(
            "perdure.run was called inside a run.",
            safe="nothing was started.",
            hint="call the agent itself: it runs as a part of this run",
        )
    return _run(spec_of(agent), Request(args, kwargs, run_id, fresh, written_tags(tags), deadline_of(deadline)))


def call(agent: Callable[..., Any], request: Request) -> Any:
    """The same for a request that is made already; who calls it shows its own lines."""
    return _run(spec_of(agent), request, greets=False)


def accept(agent: Callable[..., Any], request: Request, *, gathered: Debouncing | None = None) -> Run:
    """Accept a run and leave it to whoever resumes it; its first record is committed when this returns."""
    return _accepted(spec_of(agent), request, gathered)


def resume(agent: Callable[..., Any], run: Run, *, pardon: bool = True, waits: bool = True) -> Any:
    """Resume a run with the arguments its first record holds; `pardon` where a person asked for it by name.

    Without `waits`, one that sleeps is not waited for either.
    """
    spec = spec_of(agent)
    opened = session()
    active = lifecycle.open_run(opened, spec, run, pardon=pardon)
    if not waits:
        return to_pause(opened, spec, active)
    if spec.signature.is_async:
        return asyncio.run(to_end_async(opened, spec, active))
    return to_end(opened, spec, active)


@overload
def start(
    agent: Callable[..., Coroutine[Any, Any, T]],
    *args: Any,
    run_id: str | None = ...,
    tags: Mapping[str, str] | None = ...,
    deadline: Duration | None = ...,
    queue: str | Queue | None = ...,
    priority: int | None = ...,
    tenant: str | None = ...,
    delay: Duration | None = ...,
    debounce: Duration | None = ...,
    debounce_key: str | None = ...,
    at_most: Duration | None = ...,
    **kwargs: Any,
) -> Handle[T]: ...


@overload
def start(
    agent: Callable[..., T],
    *args: Any,
    run_id: str | None = ...,
    tags: Mapping[str, str] | None = ...,
    deadline: Duration | None = ...,
    queue: str | Queue | None = ...,
    priority: int | None = ...,
    tenant: str | None = ...,
    delay: Duration | None = ...,
    debounce: Duration | None = ...,
    debounce_key: str | None = ...,
    at_most: Duration | None = ...,
    **kwargs: Any,
) -> Handle[T]: ...


def start(
    agent: Callable[..., Any],
    *args: Any,
    run_id: str | None = None,
    tags: Mapping[str, str] | None = None,
    deadline: Duration | None = None,
    queue: str | Queue | None = None,
    priority: int | None = None,
    tenant: str | None = None,
    delay: Duration | None = None,
    debounce: Duration | None = None,
    debounce_key: str | None = None,
    at_most: Duration | None = None,
    **kwargs: Any,
) -> Any:
    """Accept a run and execute it in a thread of this process; its first record is committed when this returns.

    Inside an agent it starts a child: a run of its own, with an id that follows from its place. Await the handle, or
    ask it for the result. A run that waits has no thread and no memory; it goes on by itself when it can.

    A `queue`, here or on the agent, leaves the run to workers, and so does any of these: a higher `priority` goes
    first, tenants take turns, and nothing is begun before `delay` is over. The handle then waits for the worker.

    With `debounce`, starts with one `debounce_key` become one run, with the newest arguments: it begins once none came
    for so long, and no later than `at_most` after the first, ten times as long where nothing is said.
    """
    spec = spec_of(agent)
    _refuse_ambiguous(spec, args, queue=queue, priority=priority, tenant=tenant, delay=delay, debounce=debounce)
    placement = placed(queue, priority, tenant, delay) or (Placement() if spec.queue else None)
    gathered = debouncing(debounce, debounce_key, at_most)
    frame = current_frame()
    if frame is not None and not frame.body:
        refuse_inside_run(gathered)
        if run_id is not None:
            raise UsageError(
                "A child run has the id that its place gives it.", safe="nothing was started.", hint="leave run_id out"
            )
        given = Request(args, kwargs, None, False, written_tags(tags), deadline_of(deadline), placement)  # noqa: FBT003
        return start_child(session(), spec, given)
    if frame is not None:
        raise UsageError(
            f"perdure.start was called inside the body of {frame.body}.",
            safe="nothing was started.",
            hint="start it from the agent",
        )
    _greet()
    opened = session()
    is_new = run_id is None and placement is None
    request = Request(args, kwargs, run_id, is_new, written_tags(tags), deadline_of(deadline), placement)
    if placement is not None or gathered is not None:
        return Distant(spec, _accepted(spec, request, gathered))
    active = lifecycle.enter(opened, spec, request)
    task = Task(spec, active.row.run_id)
    runner_of(opened).begin(task, active)
    return Handle(active.row, task.future)


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


def _refuse_ambiguous(spec: AgentSpec, args: tuple[Any, ...], **said: Any) -> None:
    """A word that says where the run waits must not be taken from an agent that has a parameter of that name."""
    left = spec.signature.left(args)
    for name in [name for name, value in said.items() if value is not None and name in left]:
        raise UsageError(
            f"{name} is a parameter of {spec.name}, and says something of the run in perdure.start({name}=…).",
            safe="nothing was started.",
            hint=f"pass the agent's own {name} by position, or rename the parameter",
        )


def _accepted(spec: AgentSpec, request: Request, gathered: Debouncing | None) -> Run:
    if gathered is not None:
        return accept_debounced(session(), spec, request, gathered)
    return lifecycle.accept(session(), spec, request)


def _greet() -> None:
    """Have our lines shown, and our errors explained, in whatever program this is."""
    install_excepthook()
    terminal.install()


def _run(spec: AgentSpec, request: Request, *, greets: bool = True) -> Any:
    if spec.signature.is_async:
        if asyncio._get_running_loop() is not None:  # noqa: SLF001 - the public form raises where no loop runs
            raise UsageError(
                f"perdure.run({spec.function.__name__}, …) was called inside a running event loop.",
                safe="nothing was started.",
                hint=f"await {spec.function.__name__}(…): outside a run, calling an agent is a run",
            )
        return asyncio.run(_run_async(spec, request, greets=greets))
    if greets:
        _greet()
    opened = session()
    return to_end(opened, spec, lifecycle.enter(opened, spec, request))


async def _run_async(spec: AgentSpec, request: Request, *, greets: bool = True) -> Any:
    if greets:
        _greet()
    opened = session()
    return await to_end_async(opened, spec, lifecycle.enter(opened, spec, request))


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
    if active is None or active.pid != clock.process_id():
        raise foreign_process(frame.foreign or (active.row.name if active else ""))
    if active.signal is not None:
        raise active.signal
    scope = frame.scope.child(spec.function.__qualname__, inline=True)
    return Frame(active, scope, caller=frame, blocking=not spec.signature.is_async)


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


def _module_of(function: Callable[..., Any]) -> str:
    """The module as others would import it, so that a script and its import are the same agent."""
    if function.__module__ != "__main__":
        return function.__module__
    main = sys.modules["__main__"]
    specification = getattr(main, "__spec__", None)
    if specification is not None:
        return str(specification.name).removesuffix(".__main__")
    return Path(getattr(main, "__file__", "") or "__main__").stem
