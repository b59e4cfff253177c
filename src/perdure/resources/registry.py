"""Resources that only the user's own code can look at, found again by name.

A function cannot be stored. What `custom` was given last under a name, in this process, is what a resumed run looks
with; a name nobody has given yet is looked at when the code does.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from perdure import codec
from perdure.errors import UsageError
from perdure.resources.kinds import Fingerprint, Resource, is_text

_WORDS_CHARACTERS: Final = 60


class Custom(Struct, frozen=True):
    """The functions behind a name."""

    fingerprint: Callable[[], Any]
    describe: Callable[[Any], str] | None = None
    recreate: Callable[[], object] | None = None


_known: dict[str, Custom] = {}


def custom(
    name: str,
    fingerprint: Callable[[], Any],
    *,
    describe: Callable[[Any], str] | None = None,
    recreate: Callable[[], object] | None = None,
) -> Resource:
    """Anything a function can fingerprint: it returns None where the thing is gone, else data that changes with it.

    `describe` puts what the function returned into words. `recreate` makes the thing anew, for `on_change="recreate"`.
    The functions are called in threads of their own, at the same time as others.
    """
    if not is_text(name) or not name.isprintable():
        raise UsageError(f"resources.custom: {codec.describe(name)} is no name.", hint="a short printable text")
    for word, function in (("fingerprint", fingerprint), ("describe", describe), ("recreate", recreate)):
        if function is None and word != "fingerprint":
            continue
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise UsageError(
                f"resources.custom({name!r}): {word}={codec.describe(function)} is not a plain function.",
                safe="nothing was recorded.",
                hint=f"{word} must be callable without await",
            )
    _known[name] = Custom(fingerprint, describe, recreate)
    return Resource("custom", name)


def known(name: str) -> Custom | None:
    """What this process was last given under this name."""
    return _known.get(name)


def look_custom(resource: Resource) -> Fingerprint:
    """Ask the user's function."""
    behind = _known[resource.identity]
    value = behind.fingerprint()
    if isinstance(value, Fingerprint):
        return value
    if inspect.iscoroutine(value):
        value.close()
        raise UsageError("its fingerprint function returned a coroutine", hint="return plain data")
    if value is None:
        return Fingerprint("absent")
    sealed = codec.seal(value, what="fingerprint")
    words = codec.describe(value, _WORDS_CHARACTERS) if behind.describe is None else str(behind.describe(value))
    return Fingerprint("present", hashlib.sha256(sealed).hexdigest(), words)
