"""`name=value` on a command line as the arguments of an agent: JSON or text, made into what its annotations say."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin

import msgspec

from perdure.cli.typed import SHOWN_CHARACTERS, strict_json
from perdure.codec.hints import load
from perdure.engine.signature import STARS, called, shown_annotation, shown_signature
from perdure.errors import UsageError
from perdure.telemetry.text import legible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from perdure.engine.agent import AgentSpec


def bound_arguments(spec: AgentSpec, texts: Sequence[str]) -> inspect.BoundArguments:
    """The arguments of one call, from what was typed; an error shows how the agent is called."""
    parameters = inspect.signature(spec.function).parameters
    named = {name for name, parameter in parameters.items() if parameter.kind not in STARS}
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    given: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.isidentifier():
            raise _refused(spec, f"{legible(text, SHOWN_CHARACTERS)!r} is no argument: write name=value.")
        if name in given:
            raise _refused(spec, f"{name} is given twice.")
        if name not in named and not takes_any:
            raise _refused(spec, f"{called(spec.function)} has no argument {legible(name, SHOWN_CHARACTERS)!r}.")
        given[name] = _converted(spec, name, value, spec.signature.parameters.get(name, Any) if name in named else Any)
    return _bound(spec, given)


def _bound(spec: AgentSpec, given: dict[str, Any]) -> inspect.BoundArguments:
    """The call as Python would bind it; what only a position can pass is passed by position."""
    signature = inspect.signature(spec.function)
    positional = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.kind is inspect.Parameter.POSITIONAL_ONLY and name in given
    ]
    rest = {name: value for name, value in given.items() if name not in positional}
    try:
        return signature.bind(*(given[name] for name in positional), **rest)
    except TypeError as error:
        raise _refused(spec, f"{called(spec.function)}: {error}.") from None


def _converted(spec: AgentSpec, name: str, text: str, annotation: object) -> object:
    for attempt in _attempts(text, annotation):
        with contextlib.suppress(ValueError, TypeError, ArithmeticError, RecursionError):
            return attempt()
    wanted = shown_annotation(inspect.signature(spec.function).parameters[name].annotation)
    raise _refused(spec, f"{name}={legible(text, SHOWN_CHARACTERS)} does not fit {wanted}.")


def _attempts(text: str, annotation: Any) -> Iterator[Callable[[], Any]]:  # noqa: ANN401 - an annotation
    """Ways to read a text, the strictest first: as JSON, as it is, and as the form in which JSON writes other types."""
    values: list[Any] = [text]
    with contextlib.suppress(ValueError, RecursionError):
        values.insert(0, strict_json(text))
    is_union = get_origin(annotation) in (Union, types.UnionType)
    kinds = get_args(annotation) if is_union else (annotation,)
    paths = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, PurePath)]
    if paths and values[0] is not None:  # a path is written as a text, and a text is none to the codec
        yield functools.partial(paths[0], values[0] if isinstance(values[0], str) else text)
    for value in values:
        yield functools.partial(load, value, annotation)
    for value in reversed(values):
        yield functools.partial(msgspec.convert, value, annotation, strict=False)


def _refused(spec: AgentSpec, what: str) -> UsageError:
    return UsageError(what, safe="nothing was started.", hint=f"it is called as {shown_signature(spec.function)}")
