"""An object that tools are handed and may change, such as `deps` or `context`: what one changed in it, and how that is
put back where the tool is not executed again.

Fields are looked at one by one, so that a connection beside a counter does not hide the counter. What cannot be stored
is said once, by name: a change inside it would be lost on a resume.
"""

from __future__ import annotations

import threading
import typing
import warnings
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Struct

from perdure import codec, typed
from perdure.errors import UnstorableValue

if TYPE_CHECKING:
    from perdure.engine.active import Active

_UNCHANGEABLE: Final = (type(None), bool, int, float, complex, str, bytes, type, tuple, frozenset)
_WHOLE: Final = ""
"""The field that stands for all of an object that has none."""


class NotCaptured(UserWarning):
    """Something that tools are handed cannot be stored, so a change that one makes in it does not survive a crash."""


class Changes(Struct, frozen=True, omit_defaults=True):
    """What a tool changed: fields by name as the JSON of their new value, fields that are gone, and when it ended."""

    order: int = 0
    put: dict[str, str] = {}
    gone: list[str] = []


class Picture(Struct, frozen=True):
    """An object at one moment, each field as it would be stored."""

    fields: dict[str, bytes]
    hidden: dict[str, int]
    """Fields that cannot be stored, by the identity of what they hold."""


def picture(subject: object, *, fixed: Collection[str] = ()) -> Picture:
    """The object as it is now, without the fields that are declared not to change."""
    kept: dict[str, bytes] = {}
    hidden: dict[str, int] = {}
    for name, value in fields_of(subject):
        if name in fixed:
            continue
        try:
            kept[name] = codec.seal_faithfully(value, _annotation(subject, name, value))[0]
        except (UnstorableValue, ValueError, TypeError, AttributeError):
            hidden[name] = id(value)
            _say(subject, name, value)
    return Picture(kept, hidden)


def changes(before: Picture, after: Picture, *, order: int) -> Changes | None:
    """What differs; None where nothing does."""
    put = {name: data.decode() for name, data in after.fields.items() if before.fields.get(name) != data}
    gone = [name for name in before.fields if name not in after.fields and name not in after.hidden]
    return Changes(order, put, gone) if put or gone else None


class Restorer:
    """Puts back what tools changed, in the order in which they ended, whatever order they are replayed in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ended: WeakKeyDictionary[Active, int] = WeakKeyDictionary()
        self._applied: WeakKeyDictionary[Active, dict[tuple[int, str], int]] = WeakKeyDictionary()

    def next_order(self, active: Active) -> int:
        """The number of a tool that ends now."""
        with self._lock:
            self._ended[active] = self._ended.get(active, 0) + 1
            return self._ended[active]

    def restore(self, active: Active, subject: object, made: Changes) -> None:
        """Make the object what it was when that tool had ended, as far as no later one changed the same."""
        with self._lock:
            self._ended[active] = max(self._ended.get(active, 0), made.order)
            applied = self._applied.setdefault(active, {})
            for name, data in [*made.put.items(), *((name, None) for name in made.gone)]:
                if applied.get((id(subject), name), 0) < made.order:
                    applied[id(subject), name] = made.order
                    _put(subject, name, data)


class Watch:
    """One object around one call of a tool."""

    def __init__(self, subject: object, *, active: Active | None, fixed: Collection[str] = ()) -> None:
        self._subject = subject
        self._active = active
        self._fixed = fixed
        self._before: Picture | None = None

    def begin(self) -> None:
        """The tool begins; what an attempt before this one changed counts as changed."""
        if self._before is None:
            self._before = picture(self._subject, fixed=self._fixed)

    def end(self) -> Any:
        """What the tool changed, as plain data; None where that is nothing."""
        if self._before is None or self._active is None:
            return None
        after = picture(self._subject, fixed=self._fixed)
        made = changes(self._before, after, order=_restorer.next_order(self._active))
        return None if made is None else msgspec.to_builtins(made)

    def put_back(self, recorded: Any) -> None:
        """Make the changes that are on record, where the tool was not executed here."""
        if recorded is not None and self._before is None and self._active is not None:
            _restorer.restore(self._active, self._subject, typed.convert(recorded, Changes))


_restorer: Final = Restorer()


def fields_of(subject: object) -> Iterator[tuple[str, Any]]:
    """The parts of an object that code which holds it can change."""
    if isinstance(subject, _UNCHANGEABLE):
        return
    if isinstance(subject, dict):
        if all(isinstance(name, str) and name for name in subject):
            yield from list(subject.items())
        else:
            yield _WHOLE, subject
    elif isinstance(subject, (list, set, bytearray)):
        yield _WHOLE, subject
    else:
        yield from list(getattr(subject, "__dict__", {}).items())
        for name in _slots(type(subject)):
            if hasattr(subject, name):
                yield name, getattr(subject, name)


def _slots(kind: type) -> Iterator[str]:
    for each in kind.__mro__:
        slots = each.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__"):
                yield name


def _annotation(subject: object, name: str, value: object) -> object:
    """What a field comes back as: what its class says it holds, else what it holds."""
    hints: Mapping[str, object] = {}
    if name and not isinstance(subject, dict):
        try:
            hints = typing.get_type_hints(type(subject))
        except Exception:  # noqa: BLE001 - annotations that cannot be read say nothing
            hints = {}
    hint = hints.get(name, Any)
    return type(value) if hint is Any and not isinstance(value, (list, dict, set, tuple, frozenset)) else hint


def _put(subject: Any, name: str, data: str | None) -> None:
    if data is None:
        _remove(subject, name)
        return
    present = subject if name == _WHOLE else _get(subject, name)
    value = codec.unseal(data, _annotation(subject, name, present))
    if _refill(present, value):
        return
    if isinstance(subject, dict):
        subject[name] = value
        return
    try:
        setattr(subject, name, value)
    except (AttributeError, TypeError, ValueError):  # frozen, and changed all the same
        object.__setattr__(subject, name, value)


def _refill(present: Any, value: Any) -> bool:
    """Give a container new contents: others may hold the same one."""
    if type(present) is not type(value):
        return False
    if isinstance(present, (list, bytearray)):
        present[:] = value
    elif isinstance(present, (dict, set)):
        present.clear()
        present.update(value)
    else:
        return False
    return True


def _get(subject: Any, name: str) -> Any:
    return subject.get(name) if isinstance(subject, dict) else getattr(subject, name, None)


def _remove(subject: Any, name: str) -> None:
    if isinstance(subject, dict):
        subject.pop(name, None)
    elif hasattr(subject, name):
        delattr(subject, name)


_said: Final[set[tuple[type, str]]] = set()


def _say(subject: object, name: str, value: object) -> None:
    place = (type(subject), name)
    if place in _said:
        return
    _said.add(place)
    what = f"{type(subject).__name__}.{name}" if name else type(subject).__name__
    warnings.warn(
        f"{what} holds a {type(value).__name__}, which cannot be stored: what a tool changes in it is lost when the "
        f"run is resumed. If tools only use it, say so: fixed={{{name!r}}}.",
        NotCaptured,
        stacklevel=2,
    )
