"""The user's modules as they are compiled for a run: functions that ask the guard, loads of time and chance.

Names in the text, lines, signatures, docstrings and what `dir()` shows stay as they are. The guard and the stand-ins
are no names at all: they are constants of the compiled code, put there after the compiler made it. A name in builtins
would be missing where a function is sent to another process by value, and one in the module's globals would be seen by
whoever lists them; a constant is found by neither, is quicker, and pickles as a reference.

Compiled code is never read from `__pycache__` nor written to it: what is there belongs to the plain module.
"""

from __future__ import annotations

import ast
import functools
import gc
import os
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from perdure.adapters.userland.functions import guard
from perdure.adapters.userland.modules import Userland
from perdure.adapters.userland.stand_ins import NAMES, SOURCES, stand_ins

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import ModuleType

_GUARD: Final = "\0__perdure_tool__"
_VALUES: Final = "\0__perdure_value__"
_CONSTANTS: Final[dict[str, Any]] = {_GUARD: guard, _VALUES: stand_ins}

_UNSEEN: Final = frozenset(
    {"annotation", "returns", "type_params", "pattern"}
    | {"attr", "arg", "asname", "conversion", "ctx", "id", "kind", "level", "module", "name", "names", "op", "ops"}
    | {"simple", "str", "tag", "type_comment", "type_ignores", "vararg", "kwarg"}
)
"""Fields that are left as they are: annotations may be kept as text or read by identity, the others hold no code."""

_BLOCKS: Final = ("body", "orelse", "finalbody", "handlers", "cases")
"""Where statements hold others."""

_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)

_READ_BY_COMPILERS: Final = frozenset({"jit", "njit", "vectorize", "guvectorize", "cfunc", "stencil", "kernel"})
"""Decorators that compile the bytecode of a function themselves and know no constants of ours."""


def compiled_script(path: str | Path) -> CodeType:
    """The script as it is executed for a run."""
    file = os.path.abspath(path)  # noqa: PTH100 - Python names the script so, too: without following links
    return compiled(Path(file).read_bytes(), file)


def compiled(text: bytes | str, file: str) -> CodeType:
    """A module of the user's as it is executed for a run."""
    was_collecting = gc.isenabled()
    gc.disable()  # a tree is thousands of objects that are all needed: looking for garbage would take most of the time
    try:
        tree: Any = compile(text, file, "exec", ast.PyCF_ONLY_AST, dont_inherit=True)  # adds no frame to an error
        _rewrite(tree)
        return _with_constants(compile(tree, file, "exec", dont_inherit=True))
    finally:
        if was_collecting:
            gc.enable()


def install(roots: Sequence[Path], *, script: Path | None = None) -> Userland:
    """Have the user's modules that are imported from now on compiled this way; gives back which they are."""
    userland = Userland(roots, script=script)
    sys.meta_path.insert(0, Finder(userland))
    return userland


class Finder:
    """Asks the finders after it, and has a user's module loaded by ours."""

    def __init__(self, userland: Userland) -> None:
        self._userland = userland

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the import would have found, with another loader where it is the user's source."""
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find is not None else None
            if spec is not None:
                if type(spec.loader) is SourceFileLoader and self._userland.owns(spec.loader.path):
                    spec.loader = Loader(spec.loader.name, spec.loader.path)
                return spec
        return None

    def invalidate_caches(self) -> None:
        """Nothing is kept here."""


class Loader(SourceFileLoader):
    """Loads a source file that is the user's."""

    def get_code(self, fullname: str) -> CodeType:
        """Compiled anew every time: the cache beside the source is that of the plain module."""
        path = self.get_filename(fullname)
        return compiled(self.get_data(path), path)


def _rewrite(tree: ast.Module) -> None:
    """Change the tree in place; with a stack of our own, because texts may nest deeper than Python calls."""
    names = NAMES | _aliases(tree)
    outer, inner = [tree], list[Any]()
    for waiting in (outer, inner):
        while waiting:
            node: Any = waiting.pop()
            below = waiting
            if node.__class__ in _DEFINITIONS:
                if _is_read_by_compiler(node):
                    continue
                _guard(node, is_nested=waiting is inner)
                below = inner
            _rewrite_below(node, names, below)


def _rewrite_below(node: Any, names: frozenset[str], below: list[Any]) -> None:
    """Put stand-ins for what a node evaluates, and have what is below that looked at, too."""
    for field in _fields_of(node.__class__):
        value = getattr(node, field, None)
        if value.__class__ is list:
            for index, each in enumerate(value):
                if _is_known(each, names):
                    value[index] = _stood_in(each, is_called=False)
                below.append(_below_chain(each))
        elif value is not None:
            if _is_known(value, names):
                setattr(node, field, _stood_in(value, is_called=field == "func"))
            below.append(_below_chain(value))


@functools.cache
def _fields_of(kind: Any) -> tuple[str, ...]:
    """The fields of a kind of node below which something is evaluated."""
    if not issubclass(kind, ast.AST) or kind.__name__ in ("Constant", "TypeAlias"):
        return ()
    return tuple(name for name in kind._fields if name not in _UNSEEN)


def _aliases(tree: ast.Module) -> frozenset[str]:
    """The names that the module gives to sources of time and chance where it imports them."""
    found = []
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        if node.__class__ is ast.ImportFrom and node.module in SOURCES:
            found += [alias.asname for alias in node.names if alias.asname and alias.name in NAMES]
        for field in _BLOCKS:
            waiting += getattr(node, field, None) or ()
    return frozenset(found)


def _is_known(node: Any, names: frozenset[str]) -> bool:
    """Whether this loads something by the name of a source."""
    kind = node.__class__
    if kind is ast.Name:
        return node.id in names and node.ctx.__class__ is ast.Load
    return kind is ast.Attribute and node.attr in names and node.ctx.__class__ is ast.Load


def _below_chain(node: Any) -> Any:
    """What a dotted name hangs on: of the name itself only the last part can be a source."""
    while node.__class__ is ast.Attribute:
        node = node.value
    return node


def _stood_in(node: Any, *, is_called: bool) -> ast.expr:
    """`stand_ins.value(node)`; a class is stood in for only where it is called."""
    place = _place(node)
    method = ast.Attribute(ast.Constant(_VALUES, **place), "called" if is_called else "value", ast.Load(), **place)
    return ast.Call(method, [node], [], **place)


def _guard(node: ast.FunctionDef | ast.AsyncFunctionDef, *, is_nested: bool) -> None:
    """Have a function that a model could ask for ask the guard first."""
    if _is_dunder(node.name) or _is_generator(node):
        return
    has_docstring = ast.get_docstring(node, clean=False) is not None
    code = [each for each in node.body[has_docstring:] if not isinstance(each, (ast.Global, ast.Nonlocal))]
    first: Any = code[0] if code else node
    place = _start(getattr(first, "decorator_list", None) or [first])
    node.body.insert(int(has_docstring), _asking(place, is_async=isinstance(node, ast.AsyncFunctionDef)))
    if not is_nested:
        node.decorator_list.append(_of_guard("defined", _start([node])))


def _asking(place: dict[str, Any], *, is_async: bool) -> ast.stmt:
    """`if guard.any and guard.asked(): return guard.perform()`."""
    asked = ast.Call(_of_guard("asked", place), [], [], **place)
    test = ast.BoolOp(ast.And(), [_of_guard("any", place), asked], **place)
    performed: ast.expr = ast.Call(_of_guard("perform_async" if is_async else "perform", place), [], [], **place)
    if is_async:
        performed = ast.Await(performed, **place)
    return ast.If(test, [ast.Return(performed, **place)], [], **place)


def _of_guard(verb: str, place: dict[str, Any]) -> ast.expr:
    return ast.Attribute(ast.Constant(_GUARD, **place), verb, ast.Load(), **place)


def _place(node: Any) -> dict[str, Any]:
    return {name: getattr(node, name) for name in ("lineno", "col_offset", "end_lineno", "end_col_offset")}


def _start(nodes: list[Any]) -> dict[str, Any]:
    """The place at which the first of these begins: debuggers and coverage see our code as part of that line."""
    line, column = nodes[0].lineno, nodes[0].col_offset
    return {"lineno": line, "col_offset": column, "end_lineno": line, "end_col_offset": column}


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_read_by_compiler(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    marks = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return any(ast.unparse(mark).rpartition(".")[2] in _READ_BY_COMPILERS for mark in marks)


def _is_generator(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the function's own code yields; what is inside other functions is theirs, their defaults are not."""
    waiting: list[Any] = list(function.body)
    while waiting:
        node = waiting.pop()
        kind = node.__class__
        if kind in (ast.Yield, ast.YieldFrom):
            return True
        if kind in _DEFINITIONS or kind is ast.Lambda:
            waiting += [*getattr(node, "decorator_list", ()), node.args]
            continue
        for field in _fields_of(kind):
            value = getattr(node, field, None)
            if value.__class__ is list:
                waiting += value
            else:
                waiting.append(value)
    return False


def _with_constants(code: CodeType) -> CodeType:
    """The code with the guard and the stand-ins where the compiler has put the texts that stand for them."""
    return code.replace(co_consts=tuple(_constant(each) for each in code.co_consts))


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _with_constants(value)
    return _CONSTANTS.get(value, value) if isinstance(value, str) else value
