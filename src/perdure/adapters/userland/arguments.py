"""Whether a call of a function is one that a model asked for, by what both were given; pure, and never a guess.

What a model asks for is JSON. What a function gets was made of it by whoever dispatches the call: parsed to dates and
numbers, put into models and data classes, given by position or by keyword, with things added that the model knows
nothing of. Each value is compared as what it can have been made of; nothing is compared by likeness.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

from perdure.adapters.userland.likeness import is_json, same

if TYPE_CHECKING:
    from inspect import Signature

_EMPTY: Final = inspect.Parameter.empty


class Fit(IntEnum):
    """How a call fits what was asked for."""

    NO = 0
    LOOSE = 1
    """All that the call was given of what was asked is the same, and something was left out, added or renamed."""
    EXACT = 2


def fits(signature: Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any], asked: Mapping[str, Any]) -> bool:
    """Whether a call with these arguments is one that asks for this."""
    return fit_of(signature, args, kwargs, asked) is not Fit.NO


def fit_of(
    signature: Signature,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    asked: Mapping[str, Any] | None,
    *,
    is_method: bool = False,
) -> Fit:
    """How a call with these arguments fits what was asked for; the object of a method is no argument of the tool."""
    if asked is None:
        return Fit.NO  # what the model wrote was no JSON object
    given = _given(signature, args, kwargs, is_method=is_method)
    if given is None:
        return Fit.NO
    named = _by_name(signature, given, asked)
    return named if named is not Fit.NO else _as_a_whole(signature, given, asked)


def _given(
    signature: Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any], *, is_method: bool
) -> dict[str, Any] | None:
    """What each parameter was given; what a function collects by keyword stands for itself."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    given = dict(bound.arguments)
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            given |= given.pop(name, {})
        elif parameter.kind is parameter.VAR_POSITIONAL and not given.get(name, ()):
            given.pop(name, None)
    if is_method:
        given.pop(next(iter(signature.parameters), ""), None)
    return given


def _by_name(signature: Signature, given: dict[str, Any], asked: Mapping[str, Any]) -> Fit:
    """Every argument that was asked for is found, and what else there is the model need not have known."""
    others = [name for name in given if name not in asked and _matters(signature, name, given[name])]
    missing = []
    found = 0
    for name, value in asked.items():
        if name in given:
            if not same(given[name], value):
                return Fit.NO
            found += 1
        elif value is not None and not _is_default(signature, name, value):
            missing.append(name)
    for name in [name for name in missing if name not in signature.parameters]:
        renamed = next((other for other in others if same(given[other], asked[name])), None)
        if renamed is not None:
            others.remove(renamed)
            missing.remove(name)
            found += 1
            others.append("")  # under another name: no exact fit
    if not missing and not others:
        return Fit.EXACT
    is_left_out = all(name not in signature.parameters for name in missing)
    return Fit.LOOSE if found and is_left_out else Fit.NO


def _as_a_whole(signature: Signature, given: dict[str, Any], asked: Mapping[str, Any]) -> Fit:
    """One parameter that gets all that was asked: a dict, a model made of it, or its text."""
    candidates = [name for name, value in given.items() if not _is_default(signature, name, value)]
    whole = [name for name in candidates if same(given[name], asked, is_whole=True)]
    others = [name for name in candidates if name not in whole and is_json(given[name]) and given[name] is not None]
    if len(whole) != 1:
        return Fit.NO
    return Fit.LOOSE if others else Fit.EXACT


def _matters(signature: Signature, name: str, value: Any) -> bool:
    """Whether what was not asked for tells this call from another: no default, no connection, no context."""
    return value is not None and is_json(value) and not _is_default(signature, name, value)


def _is_default(signature: Signature, name: str, value: Any) -> bool:
    parameter = signature.parameters.get(name)
    if parameter is None or parameter.default is _EMPTY:
        return False
    return parameter.default is value or same(parameter.default, value)
