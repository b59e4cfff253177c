"""From a decorated function's call to a `Call` the replay can decide on; from a recorded completion to its value."""

from __future__ import annotations

import asyncio
import copy
import functools
import inspect
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from msgspec import Struct

from perdure import clock, codec
from perdure.bodies import Passed
from perdure.engine.active import APPROVAL, Failed, Stop
from perdure.engine.drive import drive, drive_async
from perdure.engine.failure import class_known_to, rebuild
from perdure.engine.scope import current_frame, foreign_process
from perdure.engine.signature import Signature, checked_name, is_storable_text, shown_call
from perdure.errors import ApprovalDenied, JournalDiverged, NotInRun, UsageError, saved_steps
from perdure.policy import Retry
from perdure.records import RunState, WaitReason
from perdure.replay import Call, CallKind, Diverged, Replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from perdure.bodies import Done
    from perdure.engine.active import Active
    from perdure.engine.drive import Operation
    from perdure.engine.scope import Frame
    from perdure.replay import Decision


KEY_CHARACTERS: Final = 1000
_IMMUTABLE: Final = frozenset({str, int, float, bool, bytes, type(None)})
_ATTRIBUTE: Final = "__perdure_call__"


class Spec:
    """What the decorator was told about a function."""

    kind: CallKind = "step"

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None,
        retry: Retry,
        timeout: float | None,
        key: str | Callable[..., str] | None,
    ) -> None:
        self.function = function
        self.signature = Signature(function, word=self.kind)
        self.name = function.__name__ if name is None else checked_name(name)
        self.retry = retry
        self.timeout = timeout
        self.key = key
        if timeout is not None and not (isinstance(timeout, (int, float)) and timeout > 0):
            raise UsageError(
                f"{self.name}: timeout={timeout!r} must be above 0 seconds.", hint="leave it out for no limit"
            )
        if not isinstance(retry, Retry):
            raise UsageError(f"{self.name}: retry={retry!r}.", hint="retry=perdure.Retry(attempts=3)")
        if not (key is None or isinstance(key, str) or callable(key)):
            raise UsageError(f"{self.name}: key={key!r}.", hint="a text, or a function of the arguments that gives one")

    def needs_approval(self, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> bool:
        """Whether a person must be asked before this call is performed."""
        return False

    def known_exception(self, type_name: str) -> type[Exception] | None:
        """The class that a recorded failure is rebuilt with, if this call can name it."""
        return class_known_to(self.function, type_name)


S = TypeVar("S", bound=Spec)


class Prepared(Generic[S]):
    """One call of a decorated function inside a run, with its place taken."""

    __slots__ = ("active", "args", "arguments", "call", "decision", "frame", "kwargs", "spec")

    def __init__(
        self, spec: S, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any], *, key: str | None = None
    ) -> None:
        active = frame.active
        if active is None or active.pid != clock.process_id():
            raise foreign_process(frame.foreign or (active.row.name if active else ""))
        if active.signal is not None or active.deadline_at:
            active.raise_if_stopped()
        self.spec = spec
        self.frame = frame
        self.active: Active = active
        if spec.kind == "effect":
            args, kwargs = pristine(args, kwargs)
        self.args = args
        self.kwargs = kwargs
        self.arguments = arguments = spec.signature.bind(args, kwargs)
        digest = codec.digest_arguments(arguments, of=spec.name, cache=active.prefixes)
        self.call = call = Call(self._key(digest) if key is None else key, spec.name, digest, spec.kind)
        self.decision: Decision = active.decide(call)
        if type(self.decision) is Diverged:
            raise self._diverged(self.decision)

    def shown(self) -> str:
        """The call as a person would write it."""
        return shown_call(self.spec.name, self.arguments)

    def sealed(self, value: Any) -> tuple[bytes, Any]:
        """The stored form of a result, and the form in which it comes back."""
        return codec.seal_faithfully(value, self.spec.signature.returns, what="result")

    def recorded(self, done: Done) -> Any:
        """The value a completed call left, or the failure it raised."""
        if done.failure is not None:
            raise self.failed(rebuild(done.failure, self.spec.known_exception, name=self.spec.name))
        return returned(self.spec, self.active, done)

    def failed(self, error: Exception) -> Exception:
        """Remember that this call failed: if that ends the run, a resume attempts it anew."""
        reached = {}
        if current_frame() is self.frame:
            reached = {scope: Passed(scope.calls, dict(scope.spawned)) for scope in self.frame.path()}
        self.active.failed.append(Failed(error, self.call.key, reached))
        if isinstance(error, ApprovalDenied) and getattr(self.spec, "approve", False):
            self.active.failed.append(Failed(error, approval_key(self.call.key), {}))
        return error

    def leave(self) -> None:
        """The call is over: one that is made anew goes on beyond what handled its earlier failure."""
        passed = self.active.journal.passed and self.active.journal.passed.get(self.call.key)
        if passed and current_frame() is self.frame:
            for scope in self.frame.path():
                if scope.path in passed:
                    self.active.pass_by(scope, passed[scope.path])

    def unloadable(self, error: Exception) -> BaseException:
        """Park: the recorded result does not fit the code's return type any more."""
        return unloadable(self.spec, self.active, error)

    def _diverged(self, decision: Diverged) -> BaseException:
        recorded, called = decision.recorded, self.shown()
        if decision.kind != self.spec.kind:
            recorded, called = f"{recorded}, {_one(decision.kind)}", f"{called}, {_one(self.spec.kind)}"
        elif recorded == called:
            called = f"{called} with other arguments"
        return self.active.diverge(recorded, called)

    def _key(self, _digest: bytes) -> str:
        """Where the call stands, or what it is known by; some are known by what they are called with."""
        explicit = self.spec.key
        if explicit is None:
            return self.frame.scope.take_key()
        text = explicit(*self.args, **self.kwargs) if callable(explicit) else explicit
        if not is_storable_text(text, KEY_CHARACTERS):
            raise UsageError(
                f"{self.shown()}: the key {codec.describe(text)} cannot be stored.",
                safe="nothing was performed.",
                hint=f"a text of 1 to {KEY_CHARACTERS} characters, which key= may make from the arguments",
            )
        key = f"={self.spec.name}:{text}"
        if not self.active.claim_key(key):
            raise UsageError(
                f"{self.shown()}: the key {text!r} was used by an earlier call of {self.spec.name} in this run.",
                safe=f"{saved_steps(self.active.row.steps)}.",
                hint="make key= differ from call to call, or leave it out",
            )
        return key


def pristine(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments as they are now, whatever others do to them until the effect is performed, or it does itself."""
    if all(type(value) in _IMMUTABLE for value in (*args, *kwargs.values())):
        return args, kwargs
    try:
        return copy.deepcopy((args, kwargs))
    except Exception:  # noqa: BLE001 - what cannot be copied cannot be stored either, and is refused as such
        return args, kwargs


def wrapped(spec: S, flow: Callable[[Prepared[S]], Generator[Operation, Any, Any]]) -> Callable[..., Any]:
    """The function users call instead: plain outside a run, journaled inside one."""
    wrapper = _async_wrapper(spec, flow) if spec.signature.is_async else _sync_wrapper(spec, flow)
    functools.wraps(spec.function)(wrapper)
    setattr(wrapper, _ATTRIBUTE, spec)
    return wrapper


def spec_of(function: object) -> Spec | None:
    """What the decorator of a step or an effect was told; None for any other function."""
    spec = getattr(function, _ATTRIBUTE, None)
    return spec if isinstance(spec, Spec) else None


def _sync_wrapper(spec: S, flow: Callable[[Prepared[S]], Generator[Operation, Any, Any]]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        frame = current_frame()
        if frame is None or frame.body:
            return _plain(spec, frame, args, kwargs)
        prepared = _placed(spec, frame, args, kwargs)
        if isinstance(prepared, Recalled):
            return returned(spec, prepared.active, prepared.done)
        decision = prepared.decision
        try:
            if type(decision) is Replayed:
                return _replayed(prepared, decision.done)
            return drive(flow(prepared))
        finally:
            prepared.leave()

    return call


def _async_wrapper(spec: S, flow: Callable[[Prepared[S]], Generator[Operation, Any, Any]]) -> Callable[..., Any]:
    """The key is taken when the function is called, before anything is awaited."""

    def call(*args: Any, **kwargs: Any) -> Any:
        frame = current_frame()
        if frame is None or frame.body:
            return _plain(spec, frame, args, kwargs)
        prepared = _placed(spec, frame, args, kwargs)
        coroutine: Any = prepared.value_later() if isinstance(prepared, Recalled) else perform(prepared)
        coroutine.__qualname__ = spec.function.__qualname__
        return coroutine

    async def perform(prepared: Prepared[S]) -> Any:
        decision = prepared.decision
        try:
            if type(decision) is Replayed:
                return _replayed(prepared, decision.done)
            return await drive_async(flow(prepared))
        finally:
            prepared.leave()

    mark_coroutine_function(call)
    return call


def _placed(spec: S, frame: Frame, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Prepared[S] | Recalled:
    """The call with its place taken; of a plain step that returned before, which is most of a resume, only what counts.

    Everything happens in the order in which `Prepared` does it, so that a call has the same key either way.
    """
    active = frame.active
    if spec.kind != "step" or spec.key is not None or active is None or not active.is_recalling:
        return Prepared(spec, frame, args, kwargs)
    digest = codec.digest_arguments(spec.signature.bind(args, kwargs), of=spec.name, cache=active.prefixes)
    key = frame.scope.take_key()
    done = active.recall(key, spec.name, digest)
    return Prepared(spec, frame, args, kwargs, key=key) if done is None else Recalled(spec, active, done)


class Recalled(Struct, eq=False):
    """One call of a step inside a run that had made it before."""

    spec: Spec
    active: Active
    done: Done

    async def value_later(self) -> Any:
        """What it returned; made only when it is wanted, which may be in another task than the call."""
        return returned(self.spec, self.active, self.done)


def returned(spec: Spec, active: Active, done: Done) -> Any:
    """The value that a completed call left."""
    sealed = active.load_value(done.value, done.blob) if done.blob else bytes(done.value)
    try:
        return spec.signature.unseal(sealed)
    except ValueError as error:
        raise unloadable(spec, active, error) from error


def unloadable(spec: Spec, active: Active, error: Exception) -> BaseException:
    """Park: the recorded result does not fit the code's return type any more."""
    run = active.row
    reason = JournalDiverged(
        f"Run {run.name}: the recorded result of {spec.name} no longer fits its return type: {error}",
        safe=f"{saved_steps(run.steps)}.",
        hint=f"make the return type of {spec.name} accept what it returned before, and start again",
    )
    return active.halt(Stop(RunState.WAITING, WaitReason.PARKED, reason))


def _replayed(prepared: Prepared[S], done: Done) -> Any:
    if prepared.spec.kind != "effect":
        return prepared.recorded(done)
    prepared.active.unvisited.pop(approval_key(prepared.call.key), None)
    value = prepared.recorded(done)
    note_undoable(prepared, value)
    return value


def approval_key(key: str) -> str:
    """The key of the question whether the effect of this key may be performed."""
    return f"{key}{APPROVAL}"


def note_undoable(prepared: Prepared[S], value: Any) -> None:
    """Remember a completed effect that knows how to be taken back; what a fork inherited is not the fork's to undo."""
    active = prepared.active
    if getattr(prepared.spec, "undo", None) is not None and prepared.call.key not in active.inherited:
        active.undoable.append((prepared, value))


def _plain(spec: Spec, frame: Frame | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Outside a run a decorated function is itself; inside a step body only a step is."""
    if frame is not None and frame.active is not None and spec.kind == "effect":
        raise UsageError(
            f"The effect {spec.name} was called inside the body of {frame.body}.",
            safe="nothing was performed.",
            hint=f"call {spec.name} from the agent, so that its intent and receipt can be recorded",
        )
    if frame is None and spec.kind == "effect" and spec.needs_approval(args, kwargs):
        raise NotInRun(
            f"{spec.name} needs an approval, which only a run can wait for.",
            safe="nothing was performed.",
            hint=f"call {spec.name} from an agent: @perdure.agent",
        )
    return spec.function(*args, **kwargs)


def mark_coroutine_function(function: Callable[..., Any]) -> None:
    """Let frameworks see that calling this gives something to await."""
    if hasattr(inspect, "markcoroutinefunction"):
        inspect.markcoroutinefunction(function)
    else:
        function._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # noqa: SLF001


def _one(kind: str) -> str:
    return f"an {kind}" if kind == "effect" else f"a {kind}"
