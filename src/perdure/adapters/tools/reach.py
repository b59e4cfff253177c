"""What the code of a tool can change without being handed it: read from what its functions name, and what these call.

Only code of the user's modules is read. A name that is looked up by text, or handed to a library that changes it, is
not seen here.
"""

from __future__ import annotations

import dis
import functools
import inspect
from collections import deque
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence, MutableSet
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from perdure.adapters.tools.shapes import fields_of

CONTAINERS: Final = (MutableSequence, MutableMapping, MutableSet, deque)
_UNCHANGEABLE: Final = (type(None), bool, int, float, complex, str, bytes, tuple, frozenset)
_HOLDERS: Final = (
    "func",
    "coroutine",
    "function",
    "fn",
    "call_func",
    "on_invoke_tool",
    "function_schema",
    "wrapped",
    "_invoke_tool_impl",
    "__wrapped__",
    "__func__",
    "__self__",
)
"""Where the tools of frameworks keep the function that they were made of."""

_DEEP: Final = 7

Owns = Callable[[str], bool]


class Subject:
    """An object whose parts are looked at: all of them, or those of these names."""

    def __init__(self, label: str, held: Any, names: frozenset[str] | None = None) -> None:
        self.label = label
        self.held = held
        self._names = names

    def spot(self, name: str) -> tuple[int, str]:
        """Tells a part from every other, whatever the object is called."""
        return id(self.held), name

    def parts(self) -> dict[str, Any]:
        """What it holds, by name; a container is one part, without a name."""
        if isinstance(self.held, _UNCHANGEABLE):
            return {}
        if type(self.held) is dict and all(type(key) is str for key in self.held):
            held = dict(self.held)
        elif isinstance(self.held, CONTAINERS):
            return {"": self.held}
        else:
            held = dict(fields_of(self.held))
        return {name: value for name, value in held.items() if self._names is None or name in self._names}

    def write(self, name: str, value: Any) -> None:
        """Set a part."""
        if not name:
            return
        if isinstance(self.held, dict):
            self.held[name] = value
            return
        try:
            setattr(self.held, name, value)
        except (AttributeError, TypeError, ValueError):  # frozen, and changed all the same
            object.__setattr__(self.held, name, value)

    def remove(self, name: str) -> None:
        """Take a part away; all of a dict, where that is one part."""
        if isinstance(self.held, dict):
            self.held.pop(name, None) if name else self.held.clear()
        elif hasattr(self.held, name):
            delattr(self.held, name)


class Variables(Subject):
    """Names of a module that code sets to something else, or that hold what it can change."""

    def parts(self) -> dict[str, Any]:
        return {name: self.held[name] for name in sorted(self._names or ()) if name in self.held}


class Attributes(Subject):
    """What a class of the user's holds for all of its instances."""

    def parts(self) -> dict[str, Any]:
        plain = (*CONTAINERS, bool, int, float, str)
        held = {name: value for name, value in vars(self.held).items() if not name.startswith("__")}
        return {name: value for name, value in held.items() if name in (self._names or ()) and isinstance(value, plain)}


class Cells(Subject):
    """The variables that a function closes over."""

    def parts(self) -> dict[str, Any]:
        return {name: cell.cell_contents for name, cell in self.held.items() if _is_filled(cell)}

    def write(self, name: str, value: Any) -> None:
        self.held[name].cell_contents = value

    def remove(self, name: str) -> None:
        del self.held[name].cell_contents

    def spot(self, name: str) -> tuple[int, str]:
        return id(self.held[name]), ""


def functions_in(held: Any, owns: Owns) -> list[FunctionType]:
    """The functions of the user's that a tool of some framework was made of."""
    found: dict[int, FunctionType] = {}
    seen: set[int] = set()
    unread: list[tuple[Any, int]] = [(held, 0)]
    while unread:
        value, depth = unread.pop()
        if id(value) in seen or depth > _DEEP:
            continue
        seen.add(id(value))
        if isinstance(value, FunctionType) and owns(value.__code__.co_filename):
            found[id(value)] = value
            continue
        unread += [(inner, depth + 1) for inner in _inside(value)]
    return list(found.values())


def subjects_of(functions: list[FunctionType], owners: list[Any], owns: Owns) -> list[Subject]:
    """Everything that these functions name and can change, and that the functions that they call do."""
    return _Reading(functions, owners, owns).subjects()


class _Reading:
    def __init__(self, functions: list[FunctionType], owners: list[Any], owns: Owns) -> None:
        self._owns = owns
        self._functions = {id(function): function for function in functions}
        self._objects = {id(owner): (type(owner).__name__, owner) for owner in owners if self._is_users(type(owner))}
        self._classes: dict[int, type] = {}
        self._containers: dict[int, tuple[str, Any]] = {}
        self._names: set[str] = set()
        self._unread = list(self._functions.values())

    def subjects(self) -> list[Subject]:
        while self._unread:
            self._read(self._unread.pop())
            self._follow()
        names = frozenset(self._names)
        found: list[Subject] = [Subject(label, held, names) for label, held in self._objects.values()]
        found += [Subject(label, held) for label, held in self._containers.values()]
        found += [Attributes(kind.__name__, kind, names) for kind in self._classes.values()]
        return [*found, *self._variables()]

    def _read(self, function: FunctionType) -> None:
        module, names = function.__globals__, names_in(function.__code__)
        self._names |= names
        for name in names:
            if name in module:
                self._meet(f"{module.get('__name__', '')}.{name}", module[name])
        for name, cell in _cells(function).items():
            if _is_filled(cell):
                self._meet(f"{function.__name__}.{name}", cell.cell_contents)

    def _meet(self, label: str, value: Any) -> None:
        if isinstance(value, ModuleType):
            if self._owns(getattr(value, "__file__", None) or ""):
                for name in self._names & vars(value).keys():
                    self._meet(f"{value.__name__}.{name}", vars(value)[name])
        elif isinstance(value, (FunctionType, MethodType, functools.partial)) or hasattr(value, "__wrapped__"):
            for function in functions_in(value, self._owns):
                self._call(function)
        elif isinstance(value, type):
            if self._is_users(value):
                self._classes[id(value)] = value
        elif isinstance(value, CONTAINERS):
            self._containers.setdefault(id(value), (label, value))
        elif self._is_users(type(value)):
            self._objects.setdefault(id(value), (label, value))

    def _call(self, function: FunctionType) -> None:
        if id(function) not in self._functions:
            self._functions[id(function)] = function
            self._unread.append(function)

    def _follow(self) -> None:
        """The methods of the objects met so far that are named anywhere; fields may be objects themselves."""
        for label, held in list(self._objects.values()):
            for name, value in fields_of(held):
                if name in self._names and self._is_users(type(value)):
                    self._objects.setdefault(id(value), (f"{label}.{name}", value))
        kinds = [*self._classes.values(), *(type(held) for _, held in self._objects.values())]
        for each in [each for kind in kinds for each in kind.__mro__ if self._is_users(each)]:
            for name in self._names & vars(each).keys():
                for function in functions_in(vars(each)[name], self._owns):
                    self._call(function)

    def _variables(self) -> Iterator[Subject]:
        for function in self._functions.values():
            module = function.__globals__
            if stored := stored_in(function.__code__) & module.keys():
                yield Variables(f"{module.get('__name__', '')}", module, frozenset(stored))
            changed = {name: cell for name, cell in _cells(function).items() if name in stored_in(function.__code__)}
            if changed:
                yield Cells(function.__name__, changed)

    def _is_users(self, kind: type) -> bool:
        module = kind.__module__
        if module in ("builtins", "typing"):
            return False
        return self._owns(_file_of(module))


def _file_of(module: str) -> str:
    import sys

    return getattr(sys.modules.get(module), "__file__", None) or ""


@functools.lru_cache(maxsize=1000)
def names_in(code: CodeType) -> frozenset[str]:
    """Every name that code mentions, those of the functions inside it too."""
    inner = (names_in(each) for each in code.co_consts if isinstance(each, CodeType))
    return frozenset(code.co_names).union(code.co_freevars, *inner)


@functools.lru_cache(maxsize=1000)
def stored_in(code: CodeType) -> frozenset[str]:
    """The variables of its module, or around it, that code sets to something else."""
    stores = ("STORE_GLOBAL", "DELETE_GLOBAL", "STORE_DEREF")
    own = {each.argval for each in dis.get_instructions(code) if each.opname in stores} - {*code.co_cellvars}
    inner = [stored_in(each) for each in code.co_consts if isinstance(each, CodeType)]
    return frozenset(own).union(*inner)


def _cells(function: FunctionType) -> dict[str, CellType]:
    return dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 - it is asked whether it has any
    except ValueError:
        return False
    return True


def _inside(value: Any) -> Iterator[Any]:
    """What a callable of a framework may be made of."""
    if isinstance(value, (str, bytes, int, float, type(None), type, ModuleType, list, dict, set)):
        return
    if isinstance(value, FunctionType):
        yield from (cell.cell_contents for cell in value.__closure__ or () if _is_filled(cell))
    if isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    if isinstance(value, (staticmethod, classmethod)):
        yield value.__func__
    for name in _HOLDERS:
        inner = inspect.getattr_static(value, name, None) if name.startswith("__") else getattr(value, name, None)
        if inner is not None and not isinstance(inner, (staticmethod, classmethod, property)):
            yield inner
    run = [vars(type(value)).get(name) for name in ("_run", "_arun", "run_async", "call_tool")]
    yield from (each for each in run if isinstance(each, FunctionType))
