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
from typing import TYPE_CHECKING, Any, Final, TypeVar

from perdure.adapters.userland.functions import guard
from perdure.adapters.userland.modules import Userland
from perdure.adapters.userland.values import NAMES, SOURCES, stand_ins

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

N = TypeVar("N", bound=ast.AST)

_GUARD: Final = "\0__perdure_tool__"
_VALUES: Final = "\0__perdure_value__"
_CONSTANTS: Final[dict[str, Any]] = {_GUARD: guard, _VALUES: stand_ins}

_UNSEEN: Final = frozenset(
    {"annotation", "returns", "type_params", "pattern"}
    | {"attr", "arg", "asname", "conversion", "ctx", "id", "kind", "level", "module", "name", "names", "op", "ops"}
    | {"simple", "str", "tag", "type_comment", "type_ignores", "vararg", "kwarg"}
)
"""Fields that are left as they are: annotations may be kept as text or read by identity, the others hold no code."""

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
        tree = ast.parse(text, file)
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
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        kind = node.__class__
        if kind in _DEFINITIONS:
            if _is_read_by_compiler(node):  # type: ignore[arg-type]
                continue
            _guard(node)  # type: ignore[arg-type]
        for field in _fields_of(kind):
            value = getattr(node, field, None)
            if value.__class__ is list:
                for index, each in enumerate(value):
                    if _is_known(each, names):
                        value[index] = _stood_in(each, is_called=False)
                    waiting.append(_below_chain(each))
            elif value is not None:
                if _is_known(value, names):
                    setattr(node, field, _stood_in(value, is_called=field == "func"))
                waiting.append(_below_chain(value))


@functools.cache
def _fields_of(kind: type[ast.AST]) -> tuple[str, ...]:
    """The fields of a kind of node below which something is evaluated."""
    if not issubclass(kind, ast.AST) or kind.__name__ in ("Constant", "TypeAlias"):
        return ()
    return tuple(name for name in kind._fields if name not in _UNSEEN)


def _aliases(tree: ast.Module) -> frozenset[str]:
    """The names that the module gives to sources of time and chance where it imports them."""
    return frozenset(
        alias.asname
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in SOURCES
        for alias in node.names
        if alias.asname and alias.name in NAMES
    )


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
    verb = "called" if is_called else "value"
    method = ast.Attribute(ast.Constant(_VALUES), verb, ast.Load())
    return _placed(ast.Call(method, [node], []), node)


def _guard(node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
    """Put the guard around a function that a model could ask for."""
    if _is_dunder(node.name) or _is_generator(node):
        return
    has_docstring = ast.get_docstring(node, clean=False) is not None
    code = [each for each in node.body[has_docstring:] if not isinstance(each, (ast.Global, ast.Nonlocal))]
    asking = _asking(is_async=isinstance(node, ast.AsyncFunctionDef))
    node.body.insert(int(has_docstring), _placed(asking, _start(code[0] if code else node)))
    node.decorator_list.append(_placed(_of_guard("defined"), _start(node, is_below_decorators=True)))


def _asking(*, is_async: bool) -> ast.stmt:
    """`if guard.any and guard.asked(): return guard.perform()`."""
    called = ast.Call(_of_guard("perform_async" if is_async else "perform"), [], [])
    performed = ast.Await(called) if is_async else called
    test = ast.BoolOp(ast.And(), [_of_guard("any"), ast.Call(_of_guard("asked"), [], [])])
    return ast.If(test, [ast.Return(performed)], [])


def _start(statement: ast.stmt, *, is_below_decorators: bool = False) -> ast.AST:
    """The place at which a statement begins: debuggers and coverage see our code as part of that line."""
    decorators = [] if is_below_decorators else getattr(statement, "decorator_list", [])
    place = ast.copy_location(ast.Pass(), decorators[0] if decorators else statement)
    place.end_lineno, place.end_col_offset = place.lineno, place.col_offset
    return place


def _of_guard(verb: str) -> ast.expr:
    return ast.Attribute(ast.Constant(_GUARD), verb, ast.Load())


def _placed(node: N, place: ast.AST) -> N:
    """New nodes, all in the place of another."""
    return ast.fix_missing_locations(ast.copy_location(node, place))


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _is_read_by_compiler(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    marks = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    return any(ast.unparse(mark).rpartition(".")[2] in _READ_BY_COMPILERS for mark in marks)


def _is_generator(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether the function's own code yields; what is inside other functions is theirs, their defaults are not."""
    waiting: list[ast.AST] = list(function.body)
    while waiting:
        node = waiting.pop()
        match node:
            case ast.Yield() | ast.YieldFrom():
                return True
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                waiting += [*node.decorator_list, node.args]
            case ast.Lambda():
                waiting.append(node.args)
            case _:
                waiting += ast.iter_child_nodes(node)
    return False


def _with_constants(code: CodeType) -> CodeType:
    """The code with the guard and the stand-ins where the compiler has put the texts that stand for them."""
    return code.replace(co_consts=tuple(_constant(each) for each in code.co_consts))


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return _with_constants(value)
    return _CONSTANTS.get(value, value) if isinstance(value, str) else value
