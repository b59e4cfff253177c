"""How a decorated function is called: its parameters, bound quickly, and its annotations, resolved once."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any, Final

from perdure import codec
from perdure.errors import UsageError
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Callable

_NAME_CHARACTERS: Final = 200
_SHOWN_CHARACTERS: Final = 200
_SHOWN_VALUE_CHARACTERS: Final = 40
_SHOWN_DEFAULT_CHARACTERS: Final = 60
_ELSEWHERE: Final = ("__signature__", "__wrapped__")
"""Where a function may have another signature from than its own."""

STARS: Final[dict[object, str]] = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
"""What a def writes before a parameter that takes any number of arguments, by the kind of the parameter."""


class Signature:
    """The parameters of a function, so that every way of writing one call is the same call."""

    def __init__(self, function: Callable[..., Any], *, word: str) -> None:
        if not callable(function) or not hasattr(function, "__qualname__"):
            raise UsageError(
                f"@perdure.{word} needs a function, not {function!r}.", hint=f"@perdure.{word} above a def"
            )
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise UsageError(
                f"{function.__qualname__} is a generator; {word} must return its value at once.",
                hint="collect the items and return a list, or yield from the agent around it",
            )
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self._signature = inspect.signature(function)
        self._names = tuple(self._signature.parameters)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by parameter name, defaults filled in; raises TypeError like the call itself would."""
        if self._named is not None:
            try:
                return self._named(*args, **kwargs)
            except TypeError:
                pass  # bound again below, where the misfit is put into words
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{self.function.__qualname__}(): {error}") from None
        bound.apply_defaults()
        return bound.arguments

    @functools.cached_property
    def _named(self) -> Callable[..., dict[str, Any]] | None:
        """A function of the same parameters that answers with its arguments by name; None where there are stars.

        Python binds arguments at every call of it, in a fraction of the time that a signature needs. It is made only
        of names that are those of a `def`: others may come from anybody, such as a model that calls a tool.
        """
        parameters = self._signature.parameters
        is_def = inspect.isfunction(self.function) and vars(self.function).keys().isdisjoint(_ELSEWHERE)
        if not is_def or any(parameter.kind in STARS for parameter in parameters.values()):
            return None
        listed = str(inspect.Signature([_written(parameter) for parameter in parameters.values()])).strip("()")
        named = ", ".join(f"{name!r}: {name}" for name in parameters)
        defaults = {name: parameter.default for name, parameter in parameters.items()}
        function: Callable[..., dict[str, Any]] = eval(  # noqa: S307 - of names that were compiled before
            f"lambda {listed}: {{{named}}}", {"defaults": defaults}
        )
        return function

    def takes(self, name: str) -> bool:
        """Whether there is a parameter of this name."""
        return name in self._names

    def left(self, args: tuple[Any, ...]) -> tuple[str, ...]:
        """The parameters that these positions do not fill."""
        return self._names[len(args) :]

    def call(self, arguments: dict[str, Any]) -> inspect.BoundArguments:
        """Arguments by parameter name, ready to be passed."""
        bound = inspect.BoundArguments(self._signature, arguments)
        self._signature.bind(*bound.args, **bound.kwargs)
        return bound

    @functools.cached_property
    def returns(self) -> object:
        """The return annotation, resolved; Any where there is none."""
        return self._annotations[0]

    @functools.cached_property
    def unseal(self) -> Callable[[bytes], Any]:
        """Reads a sealed result back to the return annotation; raises ValueError where it does not fit."""
        return codec.unsealer(self.returns)

    @property
    def parameters(self) -> dict[str, object]:
        """The parameter annotations, resolved."""
        return self._annotations[1]

    @functools.cached_property
    def _annotations(self) -> tuple[object, dict[str, object]]:
        return codec.resolve_annotations(self.function)


def _written(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter as source: without its annotation, and with its default looked up by its name."""
    default = parameter.default if parameter.default is parameter.empty else _Default(parameter.name)
    return parameter.replace(annotation=parameter.empty, default=default)


class _Default:
    """Is written as the place where the default of a parameter is found."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __repr__(self) -> str:
        return f"defaults[{self._name!r}]"


def is_storable_text(text: object, characters: int) -> bool:
    """Whether this is a text that a record can hold, and not an endless one."""
    if not isinstance(text, str) or not 0 < len(text) <= characters:
        return False
    return text.encode("utf-8", "replace").decode() == text


def checked_name(name: object) -> str:
    """The name a decorator was given; raises `UsageError` where a person could not use it."""
    if not isinstance(name, str) or not is_storable_text(name, _NAME_CHARACTERS) or not name.isprintable():
        raise UsageError(
            f"name={codec.describe(name)} is not usable.",
            hint=f"a printable text of 1 to {_NAME_CHARACTERS} characters",
        )
    return name


def shown_call(name: str, arguments: dict[str, Any]) -> str:
    """A call as a person would write it, bounded."""
    inside = ", ".join([f"{key}={shown_value(value)}" for key, value in arguments.items()])
    if len(inside) > _SHOWN_CHARACTERS:
        inside = inside[: _SHOWN_CHARACTERS - 1] + "…"
    return f"{name}({inside})"


def shown_value(value: Any) -> str:
    """Short plain values as they are; everything else with care."""
    kind = type(value)
    if kind is int or kind is bool or (kind is str and len(value) <= _SHOWN_VALUE_CHARACTERS and value.isprintable()):
        return repr(value)
    if kind is list and len(value) > 1:
        first = codec.describe(value[:1], _SHOWN_VALUE_CHARACTERS)
        if first[-1] == "…":  # the first item fills all the room there is
            return first
    return codec.describe(value, _SHOWN_VALUE_CHARACTERS)


def called(function: Callable[..., Any]) -> str:
    """What a function is called by whoever reads its def."""
    return function.__qualname__.rpartition(".<locals>.")[2]


def shown_signature(function: Callable[..., Any]) -> str:
    """How a function is called, as its def says it; on one line."""
    parts = [_shown_parameter(parameter) for parameter in inspect.signature(function).parameters.values()]
    return legible(f"{called(function)}({', '.join(parts)})")


def shown_annotation(annotation: object) -> str:
    """An annotation as the def writes it; empty where there is none."""
    if annotation is inspect.Parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _shown_parameter(parameter: inspect.Parameter) -> str:
    annotation = shown_annotation(parameter.annotation)
    shown = f"{STARS.get(parameter.kind, '')}{parameter.name}" + (f": {annotation}" if annotation else "")
    if parameter.default is inspect.Parameter.empty:
        return shown
    default = legible(repr(parameter.default), _SHOWN_DEFAULT_CHARACTERS)
    return f"{shown} = {default}" if annotation else f"{shown}={default}"
