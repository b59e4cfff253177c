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
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from perdure.adapters.tools.reach import CONTAINERS, Subject, functions_in, subjects_of
from perdure.adapters.tools.shapes import Shapeless, shaped, unshaped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from perdure.adapters.script.coverage import Coverage
    from perdure.adapters.tools.reach import Owns

_LONG: Final = 20_000
"""Of a container with more items only its length and its ends are looked at."""

_OBJECTS: Final = ("self", "cls")
_UNCHANGEABLE: Final = (type(None), bool, int, float, complex, str, bytes, tuple, frozenset)

Picture = bytes | tuple[Any, ...]


class Changes(Struct, frozen=True, omit_defaults=True):
    """What a tool changed: places by name as the JSON of what they hold now, places that are gone; when it ended."""

    order: int = 0
    put: dict[str, str] = {}
    gone: list[str] = []
    base: dict[str, str] = {}
    """What the places held before, where that was more than nothing."""


class Memory:
    """What is around the tools of one run, and the order in which they ended; safe from any thread."""

    def __init__(self, owns: Owns, coverage: Coverage) -> None:
        """`owns` says of a file whether its code is the user's."""
        self.coverage = coverage
        self._owns = owns
        self._lock = threading.RLock()
        self._ended = 0
        self._applied: dict[tuple[int, str], tuple[int, str]] = {}
        """By place: the order of the last change that was put back, and what it held then."""

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
            for name in (*made.put, *made.gone):
                subject = _subject_of(name, subjects)
                if subject is None:
                    self.coverage.report(f"memory {name}", f"{name}: what a tool changed in it cannot be put back")
                else:
                    self._restore_one(made, name, subject)

    def _restore_one(self, made: Changes, name: str, subject: Subject) -> None:
        order, known = self._applied.get((subject.identity, name), (0, made.base.get(name, "")))
        if order >= made.order:
            return
        self._applied[subject.identity, name] = (made.order, made.put.get(name, ""))
        part = name.removeprefix(subject.label).removeprefix(".")
        if name not in made.put:
            subject.remove(part)
            return
        value, present = unshaped(made.put[name]), subject.parts().get(part)
        if known and present is not None and _pictured(present) != known.encode():
            try:  # a tool that is performed anew has changed it meanwhile
                value = merged(unshaped(known), present, value)
            except Shapeless:
                self.coverage.report(f"memory {name}", f"{name}: several tools change it at once")
        if not _refill(present, value):
            subject.write(part, value)


class Surroundings:
    """What is around one call of a tool."""

    def __init__(self, memory: Memory, tool: str, subjects: Callable[[], list[Subject]]) -> None:
        self._memory = memory
        self._tool = tool
        self._subjects = subjects
        self._before: dict[str, Picture] | None = None

    def begin(self) -> None:
        """The tool begins here."""
        self._before = _pictures(self._subjects())

    def end(self) -> Changes | None:
        """What the tool changed; None where that is nothing that could be put back."""
        if self._before is None:
            return None
        before, after = self._before, _pictures(self._subjects())
        put: dict[str, str] = {}
        for name, picture in after.items():
            if before.get(name) == picture:
                continue
            if isinstance(picture, bytes):
                put[name] = picture.decode()
            elif name in before:
                self._report(name, "cannot be stored, and is not put back on a resume")
        gone = [name for name in before if name not in after]
        base = {name: held.decode() for name in put if isinstance(held := before.get(name), bytes)}
        return Changes(self._memory.next_order(), put, gone, base) if put or gone else None

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


def _pictures(subjects: Sequence[Subject]) -> dict[str, Picture]:
    found: dict[str, Picture] = {}
    for subject in subjects:
        for part, value in subject.parts().items():
            found.setdefault(_named(subject.label, part), _pictured(value))
    return found


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


def _named(label: str, part: str) -> str:
    return f"{label}.{part}" if part else label


def _subject_of(name: str, subjects: Sequence[Subject]) -> Subject | None:
    """Whose part this is: the object with the longest name that the part's begins with."""
    fitting = [each for each in subjects if name == each.label or name.startswith(f"{each.label}.")]
    exact = [each for each in fitting if name in (_named(each.label, part) for part in each.parts())]
    return max(exact or fitting, key=lambda each: len(each.label), default=None)


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


def _refill(present: Any, value: Any) -> bool:
    """Give an object new contents in place: others may hold the same one."""
    if type(present) is not type(value):
        return False
    if isinstance(present, deque):
        present.clear()
        present.extend(value)
    elif isinstance(present, MutableSequence):
        present[:] = value
    elif isinstance(present, (MutableMapping, set)):
        present.clear()
        present.update(value)
    elif isinstance(present, (Enum, type, *_UNCHANGEABLE)) or not hasattr(present, "__dict__"):
        return False
    else:
        present.__dict__.clear()
        present.__dict__.update(value.__dict__)
    return True


def _owners(function: Any, made_of: Any, args: tuple[Any, ...]) -> list[Any]:
    """The object that a function is a method of: the one it is bound to, or its first argument."""
    if function.__code__.co_varnames[:1] not in [(name,) for name in _OBJECTS]:
        return []
    unwrapped = inspect.unwrap(made_of) if callable(made_of) else made_of
    bound = [getattr(held, "__self__", None) for held in (made_of, unwrapped, getattr(made_of, "func", None))]
    owners = [owner for owner in (*bound, *args[:1], made_of) if owner is not None and not inspect.isroutine(owner)]
    return owners[:1]
