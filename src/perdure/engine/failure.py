"""Exceptions as records, and back.

Only classes that the step's own code can name are rebuilt: those of `builtins`, those of perdure, and exception classes
found in the globals of the step's module, or in a module that is found there (`json.JSONDecodeError`). A record never
makes anything be imported; an unknown class comes back as `StepFailed`.
"""

from __future__ import annotations

import builtins
import traceback
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from msgspec import Raw

from perdure import codec, errors
from perdure.bodies import NULL, Failure, Passed
from perdure.errors import AttemptsExhausted, PerdureError, StepFailed, UnstorableValue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from perdure.engine.active import Active

_TRACE_CHARACTERS: Final = 2000
_MESSAGE_CHARACTERS: Final = 4000
_MOST_DECORATORS: Final = 20
_ERRNO_AND_TEXT: Final = 2
"""How many arguments an OSError keeps, whatever it was given."""


def describe_failure(error: BaseException) -> Failure:
    """An exception as it is stored."""
    arguments, plain = _plain_arguments(error)
    trace = "".join(traceback.format_exception(error, limit=-6))
    return Failure(
        type=_type_name(type(error)),
        message=message_of(error),
        arguments=arguments,
        plain=plain,
        trace=_storable(trace)[-_TRACE_CHARACTERS:],
        safe=_storable(error.safe) if isinstance(error, PerdureError) else "",
        hint=_storable(error.hint) if isinstance(error, PerdureError) else "",
    )


def exhausted(name: str, attempts: int, error: BaseException) -> Failure:
    """The failure of a call whose retry policy allows no further attempt."""
    message = f"{name} failed {attempts} times; the last error was {type(error).__name__}: {message_of(error)}"
    last = describe_failure(error)
    return Failure(
        type=_type_name(AttemptsExhausted),
        message=_storable(message)[:_MESSAGE_CHARACTERS],
        trace=last.trace,
        safe=last.safe,
        hint=last.hint,
    )


def rebuild(failure: Failure, known: Callable[[str], type[Exception] | None], *, name: str) -> Exception:
    """The exception the agent gets, the same at the first run as at every replay; `known` finds a class by its name."""
    kind = known(failure.type)
    if kind is not None and issubclass(kind, PerdureError):
        return kind(failure.message, safe=failure.safe, hint=failure.hint)
    if kind is not None and failure.plain:
        arguments = codec.unseal(bytes(failure.arguments), tuple[Any, ...])
        for make in (_constructed, _unconstructed):
            error = make(kind, arguments)
            if error is not None and message_of(error) == failure.message:
                return error
    return StepFailed(
        f"{name} failed with {failure.type}: {failure.message}",
        hint=f"to catch {failure.type} by its class, import it, or its module, in the module that defines {name}",
    )


def failed_calls(active: Active, error: BaseException) -> tuple[str, ...]:
    """The calls whose recorded failure is what ended the run, wherever it sits in the chain of causes."""
    pending: list[BaseException | None] = [error]
    recorded = {id(failed.error) for failed in active.failed}
    seen: set[int] = set()
    while pending:
        link = pending.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        if id(link) in recorded:
            continue  # what led to a recorded failure was inside its body, or was caught before
        pending += [link.__cause__, link.__context__]
        if isinstance(link, BaseExceptionGroup):
            pending += link.exceptions
    return tuple(failed.key for failed in active.failed if id(failed.error) in seen)


def passed_scopes(active: Active, reopened: tuple[str, ...]) -> dict[str, Passed]:
    """The scopes that went on after these calls failed, to handle that, and how far."""
    return {
        scope.path: Passed(scope.calls, dict(scope.spawned))
        for failed in active.failed
        if failed.key in reopened
        for scope, reached in failed.reached.items()
        if (scope.calls, scope.spawned) != (reached.calls, reached.spawned)
    }


def class_known_to(function: Callable[..., Any], type_name: str) -> type[Exception] | None:
    """The exception class of this name that a function's own code can name, itself or as part of a module."""
    module, _, name = type_name.rpartition(".")
    written = {"builtins": builtins, errors.__name__: errors}
    candidates = [vars(written[module]).get(name)] if module in written else []
    for namespace in _namespaces(function):
        candidates += [namespace.get(name), *namespace.values()]
        candidates += [vars(found).get(name) for found in namespace.values() if isinstance(found, ModuleType)]
    for found in candidates:
        if isinstance(found, type) and issubclass(found, Exception) and _type_name(found) == type_name:
            return found
    return None


def _namespaces(function: Callable[..., Any]) -> Iterator[dict[str, Any]]:
    """What a function can name, and what the functions can that were decorated to become it."""
    link: Any = function
    for _ in range(_MOST_DECORATORS):
        yield getattr(link, "__globals__", {})
        link = getattr(link, "__wrapped__", None)


def _constructed(kind: type[Exception], arguments: tuple[Any, ...]) -> Exception | None:
    try:
        return kind(*arguments)
    except Exception:  # noqa: BLE001 - a constructor that wants something else than what it handed on
        return None


def _unconstructed(kind: type[Exception], arguments: tuple[Any, ...]) -> Exception | None:
    """An exception whose constructor made its message from other arguments: the class and the message, no more."""
    try:
        error = kind.__new__(kind, *arguments)
    except Exception:  # noqa: BLE001
        return None
    error.args = arguments
    return error


def message_of(error: BaseException) -> str:
    """What an exception says, as it can be stored."""
    try:
        return _storable(str(error))[:_MESSAGE_CHARACTERS]
    except Exception:  # noqa: BLE001 - a broken __str__ must not replace the failure it describes
        return type(error).__name__


def _plain_arguments(error: BaseException) -> tuple[Raw, bool]:
    given = tuple(error.args)
    if isinstance(error, OSError) and error.filename is not None and len(given) == _ERRNO_AND_TEXT:
        given = (*given, error.filename)
    try:
        sealed, _ = codec.seal_faithfully(given, tuple[Any, ...], what="exception arguments")
    except (UnstorableValue, ValueError, TypeError):
        return NULL, False
    return Raw(sealed), True


def _type_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()
