"""Inside a process under test: points around bodies and checks; the oracle hears of each before it goes on.

`prepare` is called before the code under test is loaded: it is the decorators that put the points there.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

from perdure import codec
from perdure.engine import effect as effects
from perdure.engine.call import Spec
from perdure.engine.scope import Frame, current_frame
from perdure.errors import PerdureError, UsageError
from perdure.testing.crash.trap import trap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perdure.records import Run

stubs: Final[dict[str, Any]] = {}
"""Values that bodies return instead of being executed, by the name of their step or effect."""

names: Final[set[str]] = set()
"""The steps and effects that were defined so far in this process."""

UNKNOWN_STUB: Final = "unknown_stub"
"""How the oracle is told of a stub that replaces nothing."""

_MOST_NAMES: Final = 8
_begun_in: Final[contextvars.ContextVar[Frame | None]] = contextvars.ContextVar("perdure_crash_body", default=None)
performing: Final[contextvars.ContextVar[int]] = contextvars.ContextVar("perdure_crash_performing", default=-1)
"""The number under which the oracle knows the body that is executed here."""


def prepare() -> None:
    """Put the points on everything that is decorated from here on."""
    _watch_bodies()
    _watch_checks()
    _watch_runs()


def unknown_stub() -> UsageError | None:
    """What is wrong with a stub that has the name of nothing: what it was meant to replace would be performed."""
    for name in stubs:
        if name not in names:
            return UsageError(
                f"--stub {name}=…: there is no step and no effect {name!r}.",
                safe="nothing was started.",
                hint=_known_names(name),
            )
    return None


def tell_unknown_stub() -> UsageError | None:
    """Let the campaign know of it, whatever the code under test makes of the refusal."""
    unknown = unknown_stub()
    orders = trap.orders
    if unknown is not None and orders is not None:
        told = {"code": UNKNOWN_STUB, "message": unknown.message, "hint": unknown.hint, "exit_code": unknown.exit_code}
        trap.tell(verb="error", trial=orders.trial, life=orders.life, error=told)
    return unknown


def _known_names(name: str) -> str:
    import difflib  # slow to load, and only needed here

    alike = difflib.get_close_matches(name, names, n=1)
    if alike:
        return f"did you mean --stub {alike[0]}=…?"
    own = sorted(name for name in names if not name.startswith("perdure."))
    known = [*own[:_MOST_NAMES], *(["…"] if len(own) > _MOST_NAMES else [])]
    return f"its steps and effects are: {', '.join(known)}" if known else "leave it out: it has no steps and no effects"


def _watch_runs() -> None:
    """No run of a script begins, and so none of its bodies, while a stub has the name of nothing."""
    original = trap.see

    def see(run: Run) -> None:
        unknown = tell_unknown_stub() if trap.main is None else None
        if unknown is not None:
            raise unknown
        original(run)

    trap.see = see  # type: ignore[method-assign]


def _watch_bodies() -> None:
    original = Spec.__init__

    def init(self: Spec, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        if self.kind in ("step", "effect"):
            names.add(self.name)
            self.function = _watched_body(self)

    Spec.__init__ = init  # type: ignore[method-assign]


def _watch_checks() -> None:
    original: Callable[..., Any] = vars(effects)["_check_decorator"]

    def decorator(spec: Spec) -> Callable[[Any], Any]:
        register = original(spec)

        def check(function: Any) -> Any:
            registered = register(function)
            vars(spec)["check"] = _watched_check(spec, function)
            return registered

        return check

    vars(effects)["_check_decorator"] = decorator


def _watched_check(spec: Spec, function: Callable[..., Any]) -> Callable[..., Any]:
    """The check, with a point on each side of it."""

    def reach(window: str) -> None:
        frame = current_frame()
        if frame is not None and frame.active is not None:
            trap.reach((spec.name, window, trap.key_of(frame.active.row, frame.step_key)))

    @functools.wraps(function)
    def now(*args: Any, **kwargs: Any) -> Any:
        reach("inside_check")
        verdict = function(*args, **kwargs)
        if not inspect.isawaitable(verdict):
            reach("after_check")
            return verdict
        return _awaited_check(verdict, reach)

    return now


async def _awaited_check(verdict: Any, reach: Callable[[str], None]) -> Any:
    answer = await verdict
    reach("after_check")
    return answer


def _watched_body(spec: Spec) -> Callable[..., Any]:
    """The body, with a point on each side of it; in a call that is no call of a run it is only itself."""
    function = spec.function
    if spec.signature.is_async:

        @functools.wraps(function)
        async def later(*args: Any, **kwargs: Any) -> Any:
            with _performed(spec) as performance:
                value = await stubbed(spec, function)(*args, **kwargs)
                performance.returned(value)
            return value

        return later

    @functools.wraps(function)
    def now(*args: Any, **kwargs: Any) -> Any:
        with _performed(spec) as performance:
            value = stubbed(spec, function)(*args, **kwargs)
            performance.returned(value)
        return value

    return now


def stubbed(spec: Spec, function: Callable[..., Any]) -> Callable[..., Any]:
    """The body itself, or one that only returns what it was told to."""
    if spec.name not in stubs:
        return function
    value = codec.unseal(stubs[spec.name], spec.signature.returns)

    async def later(*_args: Any, **_kwargs: Any) -> Any:
        return value

    return later if spec.signature.is_async else lambda *_args, **_kwargs: value


class Performance:
    """One execution of a body, as the oracle gets to know it."""

    def __init__(self, spec: Spec, frame: Frame) -> None:
        self._spec = spec
        self._frame = frame
        self._is_effect = spec.kind == "effect"
        self._place = (spec.name, trap.key_of(_active(frame).row, frame.step_key))
        self.number = -1

    def begin(self) -> None:
        """The body is about to begin."""
        name, key = self._place
        if not self._is_effect:
            trap.reach((name, "before_step", key))
        self.number = self._tell_begun()
        trap.reach((name, "inside_effect" if self._is_effect else "inside_step", key))

    def returned(self, value: Any) -> None:
        """The body is over, and nothing of that is recorded."""
        self._tell_ended("returned", self._sealed(value))
        name, key = self._place
        trap.reach((name, "after_effect" if self._is_effect else "after_step", key))

    def raised(self) -> None:
        """It ended otherwise."""
        self._tell_ended("raised", None)

    def _tell_begun(self) -> int:
        frame, orders = self._frame, trap.orders
        if orders is None:
            return -1
        body = {
            "life": orders.life,
            "run_id": _active(frame).row.run_id,
            "name": self._place[0],
            "key": self._place[1],
            "step_key": frame.step_key,
            "effect_key": frame.effect_key,
            "attempt": frame.attempt,
            "kind": self._spec.kind,
            "keyed": bool(getattr(self._spec, "keyed", False)),
        }
        return int(trap.tell(verb="begun", trial=orders.trial, body=body))

    def _tell_ended(self, state: str, value: str | None) -> None:
        if trap.orders is not None:
            trap.tell(verb="ended", trial=trap.orders.trial, number=self.number, state=state, value=value)

    def _sealed(self, value: Any) -> str | None:
        try:
            return codec.seal_faithfully(value, self._spec.signature.returns, what="result")[0].decode()
        except (PerdureError, ValueError, TypeError):
            return None


class _Plain:
    """A body that is no call of a run."""

    def returned(self, value: Any) -> None:
        """Of no interest."""


@contextlib.contextmanager
def _performed(spec: Spec) -> Iterator[Performance | _Plain]:
    frame = current_frame()
    is_nested = frame is not None and _begun_in.get() is frame
    if frame is None or frame.active is None or is_nested or not frame.body or trap.orders is None:
        yield _Plain()
        return
    token = _begun_in.set(frame)
    performance = Performance(spec, frame)
    number = performing.set(-1)
    try:
        performance.begin()
        performing.set(performance.number)
        yield performance
    except BaseException:
        performance.raised()
        raise
    finally:
        performing.reset(number)
        _begun_in.reset(token)


def _active(frame: Frame) -> Any:
    return frame.active
