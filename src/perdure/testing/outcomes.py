"""Scripted outcomes of steps and effects: what the outside would do, told by a test.

Only the body is replaced. Intent, receipt, retries, timeouts, doubts and verdicts are the engine's own, and so is the
module of the agent: nothing in it is patched.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, Final, NoReturn, Self

from msgspec import Struct

from perdure.engine.call import Spec, spec_of
from perdure.engine.effect import EffectSpec
from perdure.engine.scope import current_frame
from perdure.engine.settle import Intent, Verdict, did_not_happen, happened
from perdure.errors import DeadlineExceeded, UsageError
from perdure.testing.unheard import has_reached_test

_MISSING: Final = object()


class Unscripted(BaseException):
    """A body was to be executed for which a test has no outcome; no agent can take it for a failure of its own."""


class AnswerLost(Exception):
    """The connection ended before the answer came: whether anything happened is not known to the sender."""


class Called(Struct, frozen=True):
    """One attempt of a scripted step or effect."""

    arguments: dict[str, Any]
    key: str
    """The idempotency key of an effect; empty outside a run, and for a step."""
    attempt: int
    run_id: str


class Outcomes:
    """`outcomes(function)` scripts a step or an effect until the test is over."""

    def __init__(self) -> None:
        self._scripts: dict[Spec, Script] = {}

    def __call__(self, function: Callable[..., Any]) -> Script:
        """The script of this step or effect, begun where there is none."""
        spec = spec_of(getattr(function, "__func__", function))
        if spec is None:
            raise UsageError(
                f"{getattr(function, '__qualname__', function)!s} is neither a step nor an effect.",
                safe="nothing was scripted.",
                hint="put @perdure.step or @perdure.effect above its def",
            )
        if spec not in self._scripts:
            self._scripts[spec] = Script(spec)
        return self._scripts[spec]

    def unheard(self) -> list[str]:
        """What must not have been performed, and was, in runs of which nobody asked what became of them."""
        return [
            str(error) for script in self._scripts.values() for error in script.refused if not has_reached_test(error)
        ]

    def restore(self) -> None:
        """Let every function be itself again."""
        for script in self._scripts.values():
            script.restore()
        self._scripts.clear()


class Script:
    """What one step or effect does, attempt by attempt; the last outcome stays for all that follow."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._outcomes: list[Callable[[Called], Any]] = []
        self._next = 0
        self.calls: list[Called] = []
        """Every attempt, in order."""
        self.performed: list[Called] = []
        """What took place outside, whether the agent heard of it or not; once for each key."""
        self.refused: list[Unscripted] = []
        """The attempts that were not to be made."""
        self._values: dict[str, Any] = {}
        self._before: dict[str, Any] = {"function": spec.function}
        spec.function = _in_place_of(spec.function, self, is_async=spec.signature.is_async)
        if isinstance(spec, EffectSpec):
            self._before |= {"in_flight_seconds": spec.in_flight_seconds, "check": spec.check}
            spec.in_flight_seconds = 0.0  # nothing of a script lingers on the way
            spec.check = self._check if spec.check is not None else None

    def returns(self, *values: Any) -> Self:
        """It takes place and gives this value; several are given one after the other."""
        self._outcomes += [functools.partial(self._perform, value=value) for value in values]
        return self

    def raises(self, error: BaseException | type[BaseException]) -> Self:
        """It fails with this exception, and nothing took place."""
        return self._then(lambda _: _raise(error))

    def calls_through(self, function: Callable[..., Any] | None = None) -> Self:
        """It does what this plain function does with the arguments, or what its own body does."""
        body = function or self._before["function"]
        return self._then(lambda called: self._perform(called, body(**called.arguments)))

    def lost(self, value: Any = None) -> Self:
        """It takes place and its answer is lost on the way: an effect is in doubt, and its check finds this value."""
        return self._then(lambda called: (self._perform(called, value), _raise(AnswerLost("its answer was lost"))))

    def never(self) -> Self:
        """It never reaches the outside, and nobody is told: an effect is in doubt, and its check does not find it."""
        return self._then(lambda _: _raise(AnswerLost("it was sent, and no answer came")))

    def hangs(self) -> Self:
        """It takes longer than its timeout; one without a timeout is given up all the same, and says so."""
        name, seconds = self._spec.name, self._spec.timeout
        words = f"{name} hangs, and has no timeout: only a test ends it."
        if seconds is not None:
            words = f"{name} took longer than its timeout of {seconds:g} s."
        return self._then(lambda _: _raise(DeadlineExceeded(words)))

    def forbidden(self) -> Self:
        """It must not be performed: the test fails where it is."""
        return self._then(
            lambda called: self._refuse(f"{self._spec.name}({_shown(called)}) was performed, and must not be.")
        )

    @property
    def then(self) -> Self:
        """The next attempt, read as a sentence: `.raises(OSError).then.returns("ok")`."""
        return self

    def restore(self) -> None:
        """Let the function be itself again."""
        for name, value in self._before.items():
            setattr(self._spec, name, value)

    def perform(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """What happens instead of the body."""
        called = self._called(args, kwargs)
        self.calls.append(called)
        if not self._outcomes:
            self._refuse(
                f"{self._spec.name}({_shown(called)}) was performed, and no outcome of it is scripted: "
                f"outcomes({self._spec.name}).returns(…)"
            )
        outcome = self._outcomes[min(self._next, len(self._outcomes) - 1)]
        self._next += 1
        return outcome(called)

    async def perform_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The same for a coroutine function; its own body may have to be awaited."""
        value = self.perform(args, kwargs)
        if isinstance(value, types.CoroutineType):
            return await value
        return value

    def _then(self, outcome: Callable[[Called], Any]) -> Self:
        self._outcomes.append(outcome)
        return self

    def _refuse(self, words: str) -> NoReturn:
        self.refused.append(Unscripted(words))
        raise self.refused[-1]

    def _perform(self, called: Called, value: Any) -> Any:
        """It takes place; the outside knows an effect by its key, and does not do it twice."""
        key = called.key or f"call {len(self.performed)}"
        if key not in self._values:
            self.performed.append(called)
        return self._values.setdefault(key, value)

    def _check(self, intent: Intent) -> Verdict:
        value = self._values.get(intent.key, _MISSING)
        return did_not_happen() if value is _MISSING else happened(value)

    def _called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Called:
        frame = current_frame()
        active = None if frame is None else frame.active
        arguments = dict(self._spec.signature.bind(args, kwargs))
        if frame is None or active is None:
            return Called(arguments, "", 1, "")
        return Called(arguments, frame.effect_key, frame.attempt, active.row.run_id)


def _in_place_of(function: Callable[..., Any], script: Script, *, is_async: bool) -> Callable[..., Any]:
    """A function that asks the script; exceptions are known by the globals of the one it stands for."""

    def body(*args: Any, **kwargs: Any) -> Any:
        return script.perform(args, kwargs)

    async def body_async(*args: Any, **kwargs: Any) -> Any:
        return await script.perform_async(args, kwargs)

    chosen = body_async if is_async else body
    known = getattr(function, "__globals__", chosen.__globals__)
    scripted = types.FunctionType(chosen.__code__, known, function.__name__, None, chosen.__closure__)
    scripted.__qualname__, scripted.__module__ = function.__qualname__, function.__module__
    return scripted


def _shown(called: Called) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in called.arguments.items())


def _raise(error: BaseException | type[BaseException]) -> Any:
    raise error
