"""What a tool changes in memory beside what it returns: seen around the tool, and put back where it is not performed
again.

Looked at is what a framework hands to its tools, such as `context` or `deps`, in full; and of the tool's own function
what its code names: the fields of the object it is a method of, what it closes over, and what its module holds. What
cannot be stored, and was changed all the same, is reported by name. Where several tools change the same at once, it is
put back as the last of them left it.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from perdure.adapters.tools.reach import CONTAINERS, Subject, functions_in, subjects_of
from perdure.adapters.tools.shapes import Shapeless, shaped, unshaped
from perdure.adapters.tools.sharing import (
    Place,
    fill,
    is_changeable,
    items_of,
    moves,
    objects_in,
    places_of,
    with_holders,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from perdure.adapters.script.coverage import Coverage
    from perdure.adapters.tools.reach import Owns

_LONG: Final = 20_000
"""Of a container with more items only its length and its ends are looked at."""

_OBJECTS: Final = ("self", "cls")

Picture = bytes | tuple[Any, ...]
Spot = tuple[int, str]


class Changes(Struct, frozen=True, omit_defaults=True):
    """What a tool changed: places by name as the JSON of what they hold now, places that are gone; when it ended."""

    order: int = 0
    put: dict[str, str] = {}
    gone: list[str] = []
    base: dict[str, str] = {}
    """What the places held before, where that was more than nothing."""
    moved: dict[str, str] = {}
    """Objects in them that were elsewhere before: by path, that path."""
    made: dict[str, str] = {}
    """Objects in them that replace others, or that are found twice: by path, the first one."""


class Applied(NamedTuple):
    """The last change of an object, or of a place, that was put back."""

    order: int
    holds: str
    """What it held then."""
    kept: Any
    """The object itself: while it is kept, no other has its identity."""


class Memory:
    """What is around the tools of one run, and the order in which they ended; safe from any thread."""

    def __init__(self, owns: Owns, coverage: Coverage) -> None:
        """`owns` says of a file whether its code is the user's."""
        self.coverage = coverage
        self._owns = owns
        self._lock = threading.RLock()
        self._ended = 0
        self._applied: dict[int | Spot, Applied] = {}
        """By the identity of an object, and by place."""

    def around(
        self, tool: str, made_of: Any, args: tuple[Any, ...] = (), handed: Mapping[str, object] | None = None
    ) -> Surroundings:
        """What is around a call of a tool that was made of this, and is handed these things by its framework."""

        def subjects() -> list[Subject]:
            found = [Subject(label, held) for label, held in (handed or {}).items()]
            functions = functions_in(made_of, self._owns)
            owners = [owner for function in functions for owner in _owners(function, made_of, args)]
            return [*found, *(subjects_of(functions, owners, self._owns) if functions else ())]

        return Surroundings(self, tool, subjects)

    def next_order(self) -> int:
        """The number of a tool that ends now."""
        with self._lock:
            self._ended += 1
            return self._ended

    def restore(self, made: Changes, subjects: Sequence[Subject]) -> None:
        """Make everything what it was when that tool had ended, as far as no later one changed the same."""
        with self._lock:
            self._ended = max(self._ended, made.order)
            _Return(self, made, subjects).apply()

    def applied(self, value: Any, place: Place | None = None) -> Applied:
        """The last change of an object, or of the place that holds it."""
        none = Applied(0, "", None)
        of_object = self._applied.get(id(value), none) if is_changeable(value) else none
        return max(
            of_object, none if place is None else self._applied.get(place.spot, none), key=lambda each: each.order
        )

    def note(self, key: int | Spot, applied: Applied) -> None:
        """Something was put back."""
        self._applied[key] = applied


class _Return:
    """What one tool changed, on its way back: every object is found first, and then given its contents once."""

    def __init__(self, memory: Memory, made: Changes, subjects: Sequence[Subject]) -> None:
        self._memory = memory
        self._made = made
        self._subjects = subjects
        self._places = places_of(subjects)
        self._before = with_holders(objects_in(_storable(self._places.values())), subjects) if made.moved else {}
        self._new: dict[str, Any] = {}
        self._named: dict[int, tuple[Any, str]] = {}
        """By the identity of an object that a place is to hold: what it is to hold itself, and its name."""
        self._live: set[int] = set()
        """The identities of objects that a tool that is performed anew has put there: they stay as they are."""

    def apply(self) -> None:
        put, gone = self._late(self._made.put), self._late(self._made.gone)
        ready = [(place, self._value(place)) for place in put]
        for place, value in ready:
            self._named.setdefault(id(self._target(place.value, value, place.name)), (value, place.name))
        for place in gone:
            self._memory.note(place.spot, Applied(self._made.order, "", place.subject.held))
            place.subject.remove(place.part)
        for place, value in sorted(ready, key=lambda each: not is_changeable(each[1])):
            self._put(place, value)

    def _late(self, names: Iterable[str]) -> list[Place]:
        """The places of these names that no later tool changed."""
        places = [place for name in names if (place := self._place(name)) is not None]
        return [each for each in places if self._memory.applied(each.value, each).order < self._made.order]

    def _place(self, name: str) -> Place | None:
        """The place of this name: there already, or a part of the object with the longest name that it begins with."""
        if name in self._places:
            return self._places[name]
        fitting = [each for each in self._subjects if f"{name}.".startswith(f"{each.label}.")]
        if not fitting:
            self._memory.coverage.report(f"memory {name}", f"{name}: what a tool changed in it cannot be put back")
            return None
        subject = max(fitting, key=lambda each: len(each.label))
        part = name.removeprefix(subject.label).removeprefix(".")
        return Place(name, subject, part, None if part else subject.held)

    def _value(self, place: Place) -> Any:
        """What a place is to hold: what is recorded, with what a tool that is performed anew has changed meanwhile."""
        value, base = unshaped(self._made.put[place.name]), self._made.base.get(place.name, "")
        known = self._memory.applied(place.value, place).holds or base
        try:
            return self._merged(known, place.value, value) if known and place.value is not None else value
        except Shapeless:
            self._memory.coverage.report(f"memory {place.name}", f"{place.name}: several tools change it at once")
            return value

    def _merged(self, known: str, present: Any, recorded: Any) -> Any:
        """What is recorded, with what was changed since in what is there, and in the objects that a dict holds."""
        known = self._memory.applied(present).holds or known
        if _pictured(present) == known.encode():
            return recorded
        base = unshaped(known)
        value = merged(base, present, recorded)
        if type(value) is dict:
            for key in [key for key in value if key in base and key in recorded and is_changeable(present.get(key))]:
                value[key] = self._merged(shaped(base[key]).decode(), present[key], recorded[key])
        self._live |= items_of(present) & items_of(value)
        return value

    def _put(self, place: Place, value: Any) -> None:
        fitted = self._fit(place.value, value, place.name)
        if fitted is not place.value:
            place.subject.write(place.part, fitted)
        applied = Applied(self._made.order, self._made.put[place.name], place.subject.held)
        self._memory.note(place.spot, applied)
        if is_changeable(fitted):
            self._memory.note(id(fitted), applied._replace(kept=fitted))

    def _fit(self, present: Any, value: Any, path: str) -> Any:
        """The object that belongs somewhere, with what it holds by then."""
        if not is_changeable(value) or id(value) in self._live:
            return value
        target = self._target(present, value, path)
        if self._memory.applied(target).order < self._made.order:
            value, path = self._named.get(id(target), (value, path))
            self._memory.note(id(target), Applied(self._made.order, shaped(value).decode(), target))
            fill(target, value, path, self._fit)
        return target

    def _target(self, present: Any, value: Any, path: str) -> Any:
        """Which object that is: others may hold the same one."""
        if (source := self._made.moved.get(path)) is not None:
            present = self._before[source].value if source in self._before else None
        elif (first := self._made.made.get(path)) is not None and not self._is_fixed(path):
            return self._new.setdefault(first, value)
        fits = is_changeable(value) and type(present) is type(value) and id(present) not in self._live
        return present if fits else value

    def _is_fixed(self, path: str) -> bool:
        """Whether a container can only be given other contents: nothing is known that holds it."""
        return path in self._places and not self._places[path].part


class Surroundings:
    """What is around one call of a tool."""

    def __init__(self, memory: Memory, tool: str, subjects: Callable[[], list[Subject]]) -> None:
        self._memory = memory
        self._tool = tool
        self._subjects = subjects
        self._before: _Seen | None = None

    def begin(self) -> None:
        """The tool begins here."""
        self._before = _Seen(self._subjects())

    def end(self) -> Changes | None:
        """What the tool changed; None where that is nothing that could be put back."""
        if self._before is None:
            return None
        before, after = self._before, _Seen(self._subjects(), before=self._before)
        found = moves(with_holders(before.objects, before.subjects), after.objects)
        other = {after.objects[path].place for path in (*found.moved, *found.made)}
        put: dict[str, str] = {}
        base: dict[str, str] = {}
        said: set[int] = set()
        for spot, (place, picture) in after.places.items():
            was = before.picture_of(spot, place.name)
            if (was == picture or id(place.value) in said) and place.name not in other:
                continue
            if isinstance(picture, bytes):
                put[place.name] = picture.decode()
                base |= {place.name: was.decode()} if isinstance(was, bytes) else {}
                said |= {id(place.value)} if is_changeable(place.value) else set()
            elif was is not None:
                self._report(place.name, "cannot be stored, and is not put back on a resume")
        gone = [place.name for place, _ in before.places.values() if place.is_gone()]
        if not (put or gone):
            return None
        return Changes(self._memory.next_order(), put, gone, base, found.moved, found.made)

    def failed(self) -> None:
        """The tool raised: what it changed before that is not recorded with its failure."""
        if (made := self.end()) is not None:
            for name in (*made.put, *made.gone):
                self._report(name, "was changed before the tool failed, and is not put back on a resume")

    def put_back(self, made: Changes) -> None:
        """Make the changes that are on record, where the tool was not performed here."""
        if self._before is None:
            self._memory.restore(made, self._subjects())

    def _report(self, name: str, why: str) -> None:
        self._memory.coverage.report(f"memory {name}", f"{name}, which the tool {self._tool} changes: it {why}")


class _Seen:
    """Everything around a tool at one moment, each place once; the objects are held, so that they can be told apart."""

    def __init__(self, subjects: Sequence[Subject], before: _Seen | None = None) -> None:
        """A place that was there before keeps its name; inside an object that is new it is none of its own."""
        self.subjects = subjects
        places: dict[Spot, Place] = {}
        for place in places_of(subjects).values():
            known = None if before is None else before.places.get(place.spot)
            places.setdefault(place.spot, place if known is None else place._replace(name=known[0].name))
        pictured = {spot: (place, _pictured(place.value)) for spot, place in places.items()}
        storable = [place for place, picture in pictured.values() if isinstance(picture, bytes)]
        self.objects = objects_in((place.name, place.value) for place in storable)
        self.holders = {holder for holder, _ in places}
        new = {id(value) for value, _ in self.objects.values()} - (before.holders if before else set())
        own = pictured if before is None else {spot: pictured[spot] for spot in places if _is_own(places[spot], new)}
        self.places: dict[Spot, tuple[Place, Picture]] = own
        self._spots = {place.name: spot for spot, place in places.items()}

    def picture_of(self, spot: Spot, name: str) -> Picture | None:
        """What a place was, or else the one of its name; None where there was none."""
        found = self.places.get(spot) or self.places.get(self._spots.get(name, spot))
        return None if found is None else found[1]


def _is_own(place: Place, new: set[int]) -> bool:
    return not (place.part and place.spot[0] in new)


def _storable(places: Iterable[Place]) -> Iterator[tuple[str, Any]]:
    return ((place.name, place.value) for place in places if isinstance(_pictured(place.value), bytes))


def _pictured(value: Any) -> Picture:
    """What something is now: in full where it can be stored, else as much as tells that it was changed."""
    if not (isinstance(value, CONTAINERS) and len(value) > _LONG):
        try:
            return shaped(value)
        except Shapeless:
            pass
    if isinstance(value, Mapping):
        return (id(value), len(value), *_ends([(id(key), id(item)) for key, item in list(value.items())]))
    if isinstance(value, CONTAINERS):
        return (id(value), len(value), *_ends([id(item) for item in list(value)]))
    return (id(value),)


def _ends(items: list[Any]) -> Sequence[Any]:
    return items if len(items) <= _LONG else (items[0], items[-1])


def merged(base: Any, present: Any, recorded: Any) -> Any:
    """What is recorded, with what was changed since the base in what is there; `Shapeless` where both cannot be."""
    kinds = {type(base), type(present), type(recorded)}
    if kinds == {list} and present[: len(base)] == base:
        return recorded + present[len(base) :]
    if kinds == {dict}:
        gone = base.keys() - present.keys()
        since = {key: value for key, value in present.items() if key not in base or base[key] != value}
        return {key: value for key, value in recorded.items() if key not in gone} | since
    if kinds == {set}:
        return (recorded | (present - base)) - (base - present)
    if kinds <= {int, float}:
        return recorded + (present - base)
    raise Shapeless("it was changed in two ways")


def _owners(function: Any, made_of: Any, args: tuple[Any, ...]) -> list[Any]:
    """The object that a function is a method of: the one it is bound to, or its first argument."""
    if function.__code__.co_varnames[:1] not in [(name,) for name in _OBJECTS]:
        return []
    unwrapped = inspect.unwrap(made_of) if callable(made_of) else made_of
    bound = [getattr(held, "__self__", None) for held in (made_of, unwrapped, getattr(made_of, "func", None))]
    owners = [owner for owner in (*bound, *args[:1], made_of) if owner is not None and not inspect.isroutine(owner)]
    return owners[:1]
