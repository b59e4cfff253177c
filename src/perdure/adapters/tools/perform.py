"""One tool call that a model asked for, under a key of its own: an effect, unless it is declared safe to repeat."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from perdure import codec
from perdure.adapters.script.conduct import conducted
from perdure.adapters.tools.control import Left, left_by, raised_again
from perdure.adapters.tools.policy import Policy
from perdure.adapters.tools.results import Lost, changes_in, given, is_lost, kept, with_changes
from perdure.adapters.words import error_saying, loaded_exception, storable
from perdure.engine.active import Stop
from perdure.engine.call import Prepared, S, Spec
from perdure.engine.drive import drive, drive_async
from perdure.engine.effect import EffectSpec, effect_flow
from perdure.engine.failure import rebuild
from perdure.engine.signature import Signature, shown_call
from perdure.engine.step import step_flow
from perdure.errors import JournalDiverged, PerdureError, StepFailed, saved_steps
from perdure.policy import DEFAULT_IN_FLIGHT_SECONDS, DEFAULT_KEY_TTL_SECONDS, ONCE, proves_nothing_happened
from perdure.records import RunState, WaitReason
from perdure.replay import Replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping

    from perdure.adapters.script.conduct import Conduct
    from perdure.adapters.tools.context import Surroundings
    from perdure.adapters.tools.pending import Awaited
    from perdure.bodies import Done
    from perdure.engine.drive import Operation
    from perdure.engine.scope import Frame

TOOL: Final = "=tool:"
_OPTIONS: Final = {
    "keyed": False,
    "key_from": None,
    "key_ttl": DEFAULT_KEY_TTL_SECONDS,
    "in_flight_seconds": DEFAULT_IN_FLIGHT_SECONDS,
    # What a tool raises is its outcome: the model is told of it, as it would be without a journal.
    "certain": (Exception,),
    "ambiguous": (),
    "undo": None,
    "approve": False,
    "retry": ONCE,
    "timeout": None,
    "key": None,
}


class ToolEffect(EffectSpec):
    """A tool that must not be performed twice."""

    def known_exception(self, type_name: str) -> type[Exception] | None:
        """Any exception of a module that the script has loaded."""
        return loaded_exception(type_name)


class ToolStep(Spec):
    """A tool that is declared to be safe to repeat."""

    def known_exception(self, type_name: str) -> type[Exception] | None:
        """Any exception of a module that the script has loaded."""
        return loaded_exception(type_name)


class Performance(Prepared[S]):
    """One tool call with its place in the journal taken."""

    def __init__(
        self, conduct: Conduct, frame: Frame, awaited: Awaited, spec: S, *, returns: object, around: Surroundings
    ) -> None:
        self.conduct = conduct
        self._around = around
        self.awaited = awaited
        self.live: list[Any] = []
        """What the tool returned, if it was performed just now."""
        self.raised: Exception | None = None
        """What the tool raised, if it was performed just now."""
        self._cause: BaseException | None = None
        self._returns = returns
        call = awaited.call
        arguments = call.raw if call.arguments is None else call.arguments
        super().__init__(spec, frame, (arguments,), {}, key=f"{TOOL}{awaited.place}")

    def shown(self) -> str:
        """The call as a person would write it."""
        call = self.awaited.call
        return self.conduct.redactor.text(shown_call(call.name, call.arguments or {"arguments": call.raw}))

    def failed(self, error: Exception) -> Exception:
        """Only a failure that shows that nothing happened is attempted anew by a resume; any other is the outcome."""
        error = self.raised or error  # what it raised just now leaves with everything that it carries
        if self.spec.kind == "step" or proves_nothing_happened(error, certain=(), ambiguous=()):
            return super().failed(error)
        return error

    def recorded(self, done: Done) -> Any:
        """What a completed call left, or what it raised: of the same class wherever that can be made of words."""
        if done.failure is None:
            return super().recorded(done)
        error = rebuild(done.failure, self.spec.known_exception, name=self.spec.name)
        if type(error) is StepFailed:
            error = error_saying(done.failure.type, done.failure.message) or error
        raise self.failed(error)

    @contextlib.contextmanager
    def performed(self) -> Iterator[None]:
        """Around the call: what the tool itself raised leaves as it was raised."""
        try:
            yield
        except Exception as error:
            if error is self.raised:
                error.__cause__ = self._cause
            raise
        finally:
            self.leave()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Around the tool itself: what it raises is remembered; by leaving it, a framework says that it is not over."""
        self._around.begin()
        try:
            yield
        except Exception as error:
            self.raised, self._cause = error, error.__cause__
            if (left := left_by(error)) is None:
                self._around.failed()
                if (told := storable(error, self.conduct.redactor.text)) is error:
                    raise
                raise told from None
            self.live.append(left)

    def kept(self) -> Any:
        """What is recorded: what the tool returned, and what it changed in memory."""
        return with_changes(kept(self.live[0], self._returns), self._around.end())

    def outcome(self, result: Any) -> Any:
        """What the tool returned, as the script gets it."""
        if self.live and is_lost(result):
            self.conduct.coverage.lost(self.awaited.call.name, codec.describe(self.live[0]))
            return self.live[0]
        try:
            value = given(result, self._returns)
            if (changed := changes_in(result)) is not None:
                self._around.put_back(changed)
            if not isinstance(value, Left):
                return value
            self.conduct.pending.again(self.awaited)
            raise self.raised or raised_again(value)
        except Lost as lost:
            why = str(lost) if str(lost).startswith("raised ") else f"returned {lost}"
        name, row = self.awaited.call.name, self.active.row
        problem = JournalDiverged(
            f"Run {row.name}: the tool {name} was performed, and {why}; the run cannot go past it again.",
            safe=f"{saved_steps(row.steps)}; {name} is not performed again.",
            hint=f"have {name} return plain data, and start over: the same command with --fresh",
        )
        raise self.active.halt(Stop(RunState.WAITING, WaitReason.PARKED, problem))


def perform(
    awaited: Awaited,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    returns: object = None,
    annotations: object = None,
    made_of: object = None,
    handed: Mapping[str, object] | None = None,
) -> Any:
    """Perform a tool call once, and give what it returned, now and at every replay.

    `made_of` is where the user's own function is found, and `handed` is what the framework hands to it, by name: what
    the tool changes in either is put back at a replay.
    """
    conduct = _taken(awaited, annotations)
    if conduct is None:
        return function(*args, **kwargs)
    expected = returns_of(function) if returns is None else returns

    def body(arguments: object) -> Any:
        del arguments  # what the model asked for; the function gets what was made of it
        with performance.watched():
            performance.live.append(function(*args, **kwargs))
        return performance.kept()

    around = conduct.memory.around(awaited.call.name, made_of or function, args, _handed(handed, args, kwargs))
    performance = _prepared(conduct, awaited, body, returns=expected, annotations=annotations, around=around)
    with performance.performed():
        return performance.outcome(drive(_flow(performance)))


async def perform_async(
    awaited: Awaited,
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    returns: object = None,
    annotations: object = None,
    made_of: object = None,
    handed: Mapping[str, object] | None = None,
) -> Any:
    """The same for a tool that is awaited."""
    conduct = _taken(awaited, annotations)
    if conduct is None:
        return await function(*args, **kwargs)
    expected = returns_of(function) if returns is None else returns

    async def body(arguments: object) -> Any:
        del arguments
        with performance.watched():
            performance.live.append(await function(*args, **kwargs))
        return performance.kept()

    around = conduct.memory.around(awaited.call.name, made_of or function, args, _handed(handed, args, kwargs))
    performance = _prepared(conduct, awaited, body, returns=expected, annotations=annotations, around=around)
    with performance.performed():
        return performance.outcome(await drive_async(_flow(performance)))


def _handed(handed: Mapping[str, object] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Mapping[str, object]:
    """What is handed to a tool and may be changed by it; of a plain function, its lists, dicts and sets."""
    if handed is not None:
        return handed
    named = {f"argument {number}": value for number, value in enumerate(args, 1)} | kwargs
    return {name: value for name, value in named.items() if isinstance(value, (list, dict, set))}


def returns_of(function: Callable[..., Any]) -> object:
    """What a function says it returns; Any where it says nothing that can be read."""
    try:
        return Signature(function, word="tool").returns
    except (PerdureError, TypeError, ValueError, NameError):
        return Any


def _taken(awaited: Awaited, annotations: object) -> Conduct | None:
    """Who records this call; None where it is performed as it is: another was quicker, or it is an agent of its own."""
    conduct = conducted()
    if conduct is None or not conduct.pending.take(awaited):
        return None
    return None if conduct.policies.of(awaited.call.name, annotations) is Policy.AGENT else conduct


def _prepared(
    conduct: Conduct,
    awaited: Awaited,
    body: Callable[..., Any],
    *,
    returns: object,
    annotations: object,
    around: Surroundings,
) -> Performance[Any]:
    name = awaited.call.name
    spec: Spec
    if conduct.policies.of(name, annotations) is Policy.EFFECT:
        spec = ToolEffect(body, {**_OPTIONS, "name": name})
    else:
        spec = ToolStep(body, name=name, retry=ONCE, timeout=None, key=None)
    conduct.write_notes()
    return Performance(conduct, conduct.frame(), awaited, spec, returns=returns, around=around)


def _flow(performance: Performance[Any]) -> Generator[Operation, Any, Any]:
    decision = performance.decision
    if isinstance(decision, Replayed):
        return performance.recorded(decision.done)
    if performance.spec.kind == "effect":
        return (yield from effect_flow(performance))
    return (yield from step_flow(performance))
