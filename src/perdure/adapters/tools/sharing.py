"""Which objects are the same: what tools change is found by name, and one object may be found by several.

A place is a part of an object by its name; its path goes on into what it holds: `__main__.state['pages'][0]`. An object
is taken to be the one that was at its path before the tool, unless that is recorded otherwise.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, MutableSequence
from enum import Enum
from typing import Any, Final, NamedTuple

from perdure.adapters.tools.reach import Subject
from perdure.adapters.tools.shapes import fields_of

_UNCHANGEABLE: Final = (type(None), bool, int, float, complex, str, bytes, tuple, frozenset)

Fit = Callable[[Any, Any, str], Any]


class Place(NamedTuple):
    """A part of an object, and what it holds."""

    name: str
    subject: Subject
    part: str
    value: Any

    @property
    def spot(self) -> tuple[int, str]:
        """The same for all names of one place."""
        return self.subject.spot(self.part)

    def is_gone(self) -> bool:
        """Whether its object is there without it; a dict that is one part now is recorded in full."""
        parts = self.subject.parts()
        return self.part not in parts and "" not in parts


class Found(NamedTuple):
    """An object, and the place that it was found in."""

    value: Any
    place: str


class Moves(NamedTuple):
    """Objects that are not the ones that were at their path before."""

    moved: dict[str, str]
    """By path: the path at which the object was before."""
    made: dict[str, str]
    """By path of an object that is new: the first path at which it is now."""


def places_of(subjects: Iterable[Subject]) -> dict[str, Place]:
    """All places by name; a variable goes before the container that it holds, which has the same name."""
    found: dict[str, Place] = {}
    for subject in subjects:
        for part, value in subject.parts().items():
            name = f"{subject.label}.{part}" if part else subject.label
            if name not in found or (part and not found[name].part):
                found[name] = Place(name, subject, part, value)
    return found


def objects_in(places: Iterable[tuple[str, Any]]) -> dict[str, Found]:
    """Every object that can be changed by each path that leads to it; what is inside, by the first one only."""
    found: dict[str, Found] = {}
    seen: set[int] = set()
    unread = [(name, value, name) for name, value in places][::-1]
    while unread:
        path, value, place = unread.pop()
        if not is_changeable(value):
            continue
        found.setdefault(path, Found(value, place))
        if id(value) not in seen:
            seen.add(id(value))
            unread += [(path + step, inner, place) for step, inner in _inner(value)][::-1]
    return found


def with_holders(found: dict[str, Found], subjects: Iterable[Subject]) -> dict[str, Found]:
    """The same with the objects whose parts the places are."""
    return {each.label: Found(each.held, each.label) for each in subjects if type(each) is Subject} | found


def moves(before: Mapping[str, Found], after: Mapping[str, Found]) -> Moves:
    """What is to be said of the objects after a tool, so that each can be found among those before it."""
    known = {id(value): path for path, (value, _) in [*before.items()][::-1]}
    times = Counter(id(value) for value, _ in after.values())
    first: dict[int, str] = {}
    found = Moves({}, {})
    for path, (value, _) in after.items():
        there = before[path].value if path in before else None
        if there is value:
            continue
        if id(value) in known:
            found.moved[path] = known[id(value)]
        elif times[id(value)] > 1 or type(there) is type(value):
            found.made[path] = first.setdefault(id(value), path)
    return found


def is_changeable(value: Any) -> bool:
    """Whether an object can be given other contents in place."""
    if isinstance(value, (MutableSequence, MutableMapping, set, deque)):
        return True
    return not isinstance(value, (Enum, type, *_UNCHANGEABLE)) and hasattr(value, "__dict__")


def fill(target: Any, value: Any, path: str, fit: Fit) -> None:
    """Give an object the contents of another of its class; `fit` says which object each of them is to be."""
    if isinstance(target, (set, bytearray)):
        held = value.copy()
        target.clear()
        target.update(held) if isinstance(target, set) else target.extend(held)
    elif isinstance(target, (MutableSequence, deque)):
        present = list(target)
        items = [fit(_at(present, index), item, f"{path}[{index}]") for index, item in enumerate(value)]
        target.clear()
        target.extend(items)
    elif isinstance(target, MutableMapping):
        pairs = {key: fit(target.get(key), item, f"{path}[{key!r}]") for key, item in value.items()}
        target.clear()
        target.update(pairs)
    else:
        there = vars(target)
        fields = {name: fit(there.get(name), item, f"{path}.{name}") for name, item in vars(value).items()}
        there.clear()
        there.update(fields)


def items_of(value: Any) -> set[int]:
    """The identities of the objects that a container holds and that can be changed."""
    return {id(item) for _, item in _inner(value) if is_changeable(item)} if is_changeable(value) else set()


def _at(items: list[Any], index: int) -> Any:
    return items[index] if index < len(items) else None


def _inner(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (set, bytearray)):
        return
    if isinstance(value, MutableMapping):
        yield from ((f"[{key!r}]", item) for key, item in list(value.items()))
    elif isinstance(value, (MutableSequence, deque)):
        yield from ((f"[{index}]", item) for index, item in enumerate(list(value)))
    else:
        yield from ((f".{name}", item) for name, item in fields_of(value))
