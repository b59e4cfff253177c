"""Exceptions by which a framework leaves a tool before it has an outcome: to ask a person, or to hand the call on.

Such a call is not over. That it was left is recorded, so that a replay leaves it at the same place; and the tool call
is awaited again, because the framework will come back to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from perdure.adapters.tools.results import Lost
from perdure.adapters.tools.shapes import Shapeless, shaped, unshaped

Again = Callable[[BaseException], BaseException]
_known: Final[dict[tuple[str, str], Again | None]] = {}


class Left(Struct, frozen=True):
    """How a tool was left: by an exception of this class, which held this."""

    type: str
    held: str


def register(module: str, name: str, *, again: Again | None = None) -> None:
    """Exceptions of this class, and of those made of it, leave a tool; `again` makes the one of a replay valid."""
    _known[module, name] = again


def left_by(error: BaseException) -> Left | None:
    """How the tool was left; None where this exception is what became of it."""
    if _registered(type(error)) is None:
        return None
    kind = type(error)
    try:
        held = shaped([list(error.args), dict(vars(error))]).decode()
    except Shapeless:
        held = ""
    return Left(f"{kind.__module__}:{kind.__qualname__}", held)


def raised_again(left: Left) -> BaseException:
    """The exception by which the tool was left; `Lost` where it cannot be made again."""
    module, _, name = left.type.partition(":")
    kind: Any = getattr(sys.modules.get(module), name, None)
    if not left.held or not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise Lost(f"raised {left.type}, which cannot be stored")
    try:
        args, held = unshaped(left.held)
    except Shapeless as error:
        raise Lost(f"raised {left.type}, which cannot be read any more: {error}") from error
    made: BaseException = kind.__new__(kind, *args)
    made.args = tuple(args)
    vars(made).update(held)
    place = _registered(kind)
    again = _known[place] if place else None
    return made if again is None else again(made)


def _registered(kind: type) -> tuple[str, str] | None:
    names = [(each.__module__, each.__qualname__) for each in kind.__mro__]
    return next((name for name in names if name in _known), None)
