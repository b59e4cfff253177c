"""The guard in every function of the user's: a call that the model asked for is performed once, any other is plain.

The transform (`userland.source`) puts this at the beginning of every function:

    if guard.any and guard.asked():
        return guard.perform()              # in a coroutine: return await guard.perform_async()

so a call that nobody asked for costs one attribute read, no frame of ours is on its stack, and the function stays what
it was for whoever inspects, pickles or decorates it. Functions of modules and classes are remembered when they are
defined, by an innermost decorator that gives them back as they are; those made inside others, of which there may be
any number, are looked for when they are needed.
"""

from __future__ import annotations

import contextvars
import functools
import gc
import inspect
import sys
import threading
import weakref
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from perdure.adapters.userland.arguments import Fit, fit_of
from perdure.engine.scope import current_frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence
    from types import CodeType, FrameType

    from perdure.adapters.tools.pending import Awaited

    Find = Callable[[str], Sequence[Awaited]]
    Perform = Callable[[Awaited, Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]

F = TypeVar("F", bound="Callable[..., Any]")


class Chosen(NamedTuple):
    """A call that is about to be performed: what the model asked for, and how that is done."""

    awaited: Awaited
    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Guard:
    """What the functions of the user's modules ask before they do anything."""

    __slots__ = ("_chosen", "_find", "_functions", "_perform", "_perform_async", "any")

    def __init__(self) -> None:
        self.any = False
        """Whether models asked for anything that nobody has performed yet: set by whoever knows."""

        self._find: Find = _found_nothing
        self._perform: Perform = _performed_by_nobody
        self._perform_async: Perform = _performed_by_nobody
        self._functions: dict[int, list[weakref.ref[Any]]] = {}
        self._chosen = threading.local()

    def __reduce__(self) -> str:
        """Code that is sent to another process by value finds the guard of that process."""
        return "guard"

    def connect(self, *, find: Find, perform: Perform, perform_async: Perform) -> None:
        """Say where to look for what was asked, by the name of the tool, and who performs it."""
        self._find, self._perform, self._perform_async = find, perform, perform_async

    def defined(self, function: F) -> F:
        """Remember a function, whose running code alone does not tell which one it is."""
        code: CodeType | None = getattr(function, "__code__", None)
        if code is not None:
            self._functions.setdefault(id(code), []).append(weakref.ref(function))
        return function

    def asked(self) -> bool:
        """Whether the call that has just begun in the calling frame is one that a model asked for."""
        frame = current_frame()
        if frame is None or frame.active is None or frame.body:
            return False
        caller = sys._getframe(1)  # noqa: SLF001
        if _plain.get() is caller.f_code:
            _plain.set(None)
            return False
        found = self._find(caller.f_code.co_name)
        chosen = self._choose(caller, found) if found else None
        self._chosen.call = chosen
        return chosen is not None

    def perform(self) -> Any:
        """Perform the call that `asked` has just found."""
        return self._perform(*self._taken())

    def perform_async(self) -> Awaitable[Any]:
        """The same in a coroutine."""
        awaitable: Awaitable[Any] = self._perform_async(*self._taken())
        return awaitable

    def _taken(self) -> Chosen:
        chosen: Chosen = self._chosen.call
        self._chosen.call = None
        return chosen

    def _choose(self, caller: FrameType, found: Sequence[Awaited]) -> Chosen | None:
        function = self._running(caller)
        if function is None:
            return None
        args, kwargs = _arguments(caller)
        awaited = choose(function, args, kwargs, found)
        return None if awaited is None else Chosen(awaited, _passed(function), args, kwargs)

    def _running(self, caller: FrameType) -> FunctionType | None:
        """The function whose call this frame is: of those with the same code, the one with the same free variables."""
        known = [reference() for reference in self._functions.get(id(caller.f_code), ())]
        found = next((each for each in known if _is_called(each, caller)), None)
        if found is None:
            made = [each for each in gc.get_referrers(caller.f_code) if isinstance(each, FunctionType)]
            found = next((each for each in made if _is_called(each, caller)), None)
            self._functions[id(caller.f_code)] = [weakref.ref(each) for each in made]
        return found


def choose(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], found: Sequence[Awaited]
) -> Awaited | None:
    """Which of these calls this is: the first that fits exactly, else the only one there is if it fits loosely."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return None
    is_method = _is_method(function)
    fits = [fit_of(signature, args, kwargs, each.arguments, is_method=is_method) for each in found]
    if Fit.EXACT in fits:
        return found[fits.index(Fit.EXACT)]
    return found[0] if fits == [Fit.LOOSE] else None


_plain: Final[contextvars.ContextVar[CodeType | None]] = contextvars.ContextVar("perdure_plain", default=None)
"""The code whose next call, in this context, has been asked for already."""


def _passed(function: FunctionType) -> Callable[..., Any]:
    """The function as whoever performs it calls it: past the guard, also where that is no body of a step."""
    code = function.__code__

    @functools.wraps(function)
    def passed(*args: Any, **kwargs: Any) -> Any:
        _plain.set(code)
        try:
            return function(*args, **kwargs)
        finally:
            _plain.set(None)

    @functools.wraps(function)
    async def passed_async(*args: Any, **kwargs: Any) -> Any:
        _plain.set(code)
        try:
            return await function(*args, **kwargs)
        finally:
            _plain.set(None)

    return passed_async if code.co_flags & inspect.CO_COROUTINE else passed


def _arguments(caller: FrameType) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What a function was called with, from its frame before it did anything."""
    code, values = caller.f_code, caller.f_locals
    names, rest = code.co_varnames, code.co_argcount + code.co_kwonlyargcount
    args = tuple(values[name] for name in names[: code.co_argcount])
    kwargs = {name: values[name] for name in names[code.co_argcount : rest]}
    if code.co_flags & inspect.CO_VARARGS:
        args += values[names[rest]]
        rest += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs |= values[names[rest]]
    return args, kwargs


def _is_method(function: Callable[..., Any]) -> bool:
    """Whether the first argument is the object or class that the function belongs to."""
    owner = function.__qualname__.rpartition(".")[0]
    return bool(owner) and not owner.endswith("<locals>") and function.__code__.co_varnames[:1] in _OBJECTS


def _is_called(function: FunctionType | None, caller: FrameType) -> bool:
    """Whether this may be the function whose call a frame is."""
    code, values = caller.f_code, caller.f_locals
    if function is None or function.__code__ is not code:
        return False
    cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
    return all(_held(cell) is values.get(name, cell) for name, cell in cells)


def _held(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return cell  # nothing yet


def _found_nothing(_name: str) -> Sequence[Awaited]:
    return ()


def _performed_by_nobody(
    _awaited: Awaited, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return function(*args, **kwargs)


_OBJECTS: Final = (("self",), ("cls",), ("mcs",))
guard: Final = Guard()
