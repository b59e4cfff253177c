"""Exceptions that are rebuilt from the name of their class and what they said."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def loaded_exception(type_name: str) -> type[Exception] | None:
    """The exception class of this name, if its module is loaded: nothing stored makes anything be imported."""
    module, _, name = type_name.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None


def error_saying(type_name: str, words: str) -> Exception | None:
    """An exception of this class, or of the closest above it that can be made of words; None where it is unknown."""
    kind = loaded_exception(type_name)
    for candidate in kind.__mro__ if kind is not None else ():
        with contextlib.suppress(Exception):  # a constructor that wants more than words: the class above may not
            made: Exception = candidate(words)
            if isinstance(made, Exception) and str(made) == words:
                return made
    return None


def storable(error: Exception, clean: Callable[[str], str]) -> Exception:
    """What is recorded of an exception: itself, unless it says a secret."""
    words = str(error)
    said = clean(words)
    if said == words:
        return error
    kind = type(error)
    return error_saying(f"{kind.__module__}.{kind.__qualname__}", said) or RuntimeError(said)
