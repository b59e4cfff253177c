"""How a call that a framework makes becomes a step or an effect of the run around it, and under which key.

A model call is a step. A tool call is an effect, unless somebody who knows the tool declared it to be something else
(`calls`). Outside a run a call is made as it is, and so is one inside an effect, which has an intent and a receipt.
"""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import os
import sys
import threading
import weakref
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from perdure.engine.call import Spec, wrapped
from perdure.engine.effect import EffectSpec, effect_flow
from perdure.engine.failure import class_known_to
from perdure.engine.scope import Frame, Scope, current_frame, enter_frame, leave_frame
from perdure.engine.signature import is_storable_text
from perdure.engine.step import step_flow
from perdure.errors import UsageError
from perdure.policy import DEFAULT_IN_FLIGHT_SECONDS, DEFAULT_KEY_TTL_SECONDS, ONCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from types import ModuleType

    from perdure.adapters.calls import Policy
    from perdure.engine.active import Active

_ASYNCIO: Final = str(Path(asyncio.__file__).parent)
_EFFECT: Final[dict[str, Any]] = {
    "keyed": False,
    "key_from": None,
    "key_ttl": DEFAULT_KEY_TTL_SECONDS,
    "in_flight_seconds": DEFAULT_IN_FLIGHT_SECONDS,
    "ambiguous": (),
    "undo": None,
    "approve": False,
    "retry": ONCE,
    "timeout": None,
}
_IDENTITY_CHARACTERS: Final = 200
_NAME_CHARACTERS: Final = 200

_occurrences: Final[weakref.WeakKeyDictionary[Active, Counter[str]]] = weakref.WeakKeyDictionary()
_counting: Final = threading.Lock()


class Named(Struct, frozen=True):
    """One call of a framework: what it is called, what it is given, and how it is told from others of the run."""

    name: str
    arguments: dict[str, Any]
    identity: str = ""
    """A text that is the same at every replay, such as the id of a tool call; empty where the place in the code is."""
    sources: tuple[Any, ...] = ()
    """Tools, models and functions: the exceptions that their code can name come back as what they were."""


def is_recorded() -> bool:
    """Whether a call that is made here can be a step or an effect of its own."""
    frame = current_frame()
    return frame is not None and not frame.effect_key


def perform(act: Callable[[], Any], named: Named, *, policy: Policy) -> Any:
    """Have a call made, or give what it gave before; `act` gives what can be stored."""

    def body(**_: Any) -> Any:
        return act()

    return _recorded(body, named, policy)(**_given(named))


async def perform_async(act: Callable[[], Awaitable[Any]], named: Named, *, policy: Policy) -> Any:
    """The same for coroutines."""

    async def body(**_: Any) -> Any:
        return await act()

    return await _recorded(body, named, policy)(**_given(named))


@contextmanager
def own_strand() -> Iterator[None]:
    """Stand in the strand of this thread, where a pool brought the context of the one that gave it the work.

    Two threads that count their calls in one scope would get keys by chance, and neither would be seen to wait.
    """
    scope = _scope_of_this_thread()
    if scope is None:
        yield
        return
    frame = current_frame()
    token = enter_frame(Frame(None if frame is None else frame.active, scope))
    try:
        yield
    finally:
        leave_frame(token)


def release_servants(*packages: ModuleType) -> None:
    """Tasks that only serve a library, such as the reader of a connection, are no strands that the run waits for.

    A task is one of a library's own if the code it began with is the library's, looked for behind what starts tasks. So
    is the thread in which asyncio waits for the end of a process that it started.
    """
    frame = current_frame()
    if frame is None or frame.active is None:
        return
    folders = tuple(str(Path(str(package.__file__)).parent) for package in packages)
    for scope in list(frame.active.strands):
        if _first_file(scope.worker).startswith((*folders, _ASYNCIO)):
            frame.active.end_strand(scope)


def identity_of(*parts: Any) -> str:
    """A text that tells these from others."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted", enc_hook=repr)).hexdigest()[:32]


def _scope_of_this_thread() -> Scope | None:
    """The scope that was opened for this thread, where the code here stands in another one."""
    frame, here = current_frame(), threading.current_thread()
    if frame is None or frame.active is None or frame.body or frame.scope.strand.worker is here:
        return None
    return next((scope for scope in list(frame.active.strands) if scope.worker is here), None)


def _first_file(worker: object) -> str:
    """Where the code is that a task or a thread began with; nothing where that cannot be said."""
    if isinstance(worker, threading.Thread):
        target = inspect.unwrap(getattr(worker, "_target", None) or worker.run)
        return getattr(getattr(target, "__code__", None), "co_filename", "")
    coroutine: Any = worker.get_coro() if isinstance(worker, asyncio.Task) else None
    while hasattr(coroutine, "cr_code"):
        file: str = coroutine.cr_code.co_filename
        if f"{os.sep}anyio{os.sep}" not in file:
            return file
        coroutine = coroutine.cr_await
    return ""


def _recorded(body: Callable[..., Any], named: Named, policy: Policy) -> Callable[..., Any]:
    spec = spec_for(body, named, policy)
    return wrapped(spec, effect_flow) if isinstance(spec, EffectSpec) else wrapped(spec, step_flow)


def spec_for(body: Callable[..., Any], named: Named, policy: Policy) -> Spec:
    """What the engine is told of a call that is made here and now."""
    body.__signature__ = _signature(_given(named))  # type: ignore[attr-defined]
    body.__qualname__ = body.__name__ = name = _usable(named.name)
    place = {"name": name, "key": _key(name, named.identity) if named.identity else None}
    options = {**policy.options, **place}
    return _Effect(body, options, named.sources) if policy.kind == "effect" else _Step(body, options, named.sources)


class _Step(Spec):
    def __init__(self, body: Callable[..., Any], options: dict[str, Any], sources: tuple[Any, ...]) -> None:
        super().__init__(
            body,
            name=options["name"],
            retry=options.get("retry", ONCE),
            timeout=options.get("timeout"),
            key=options["key"],
        )
        self._sources = sources

    def known_exception(self, type_name: str) -> type[Exception] | None:
        return super().known_exception(type_name) or _class_named_by(self._sources, type_name)


class _Effect(EffectSpec):
    def __init__(self, body: Callable[..., Any], options: dict[str, Any], sources: tuple[Any, ...]) -> None:
        certain = (*options.get("certain", ()), UsageError)
        super().__init__(body, {**_EFFECT, **options, "certain": certain})
        self.check = options.get("check")
        self._sources = sources

    def known_exception(self, type_name: str) -> type[Exception] | None:
        return super().known_exception(type_name) or _class_named_by(self._sources, type_name)


def _key(name: str, identity: str) -> str | None:
    """The key of this call: the same identity may come again, from another agent or a retry, and is counted."""
    frame = current_frame()
    if frame is None or frame.active is None:
        return None
    short = identity if is_storable_text(identity, _IDENTITY_CHARACTERS) else identity_of(identity)
    with _counting:
        seen = _occurrences.setdefault(frame.active, Counter())
        seen[f"{name}:{short}"] += 1
        return f"{short}#{seen[f'{name}:{short}']}"


def _given(named: Named) -> dict[str, Any]:
    """The arguments by name; those that no function could have are given as one."""
    plain = all(name.isidentifier() for name in named.arguments)
    return named.arguments if plain else {"arguments": named.arguments}


def _signature(arguments: Iterable[str]) -> inspect.Signature:
    try:
        return inspect.Signature([inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in arguments])
    except ValueError:  # a word of Python, such as `from`
        return inspect.Signature([inspect.Parameter("given", inspect.Parameter.VAR_KEYWORD)])


def _usable(name: str) -> str:
    """A name that a person can type, whatever a framework calls its tools."""
    legible = name if name.isprintable() else ascii(name)[1:-1]
    return legible[:_NAME_CHARACTERS] or "(no name)"


def _class_named_by(sources: tuple[Any, ...], type_name: str) -> type[Exception] | None:
    """The exception class of this name that the code behind a call can name; nothing is imported for it."""
    for namespace in _namespaces(sources):
        found = class_known_to(_Naming(namespace), type_name)
        if found is not None:
            return found
    return None


class _Naming:
    """Stands for code that can name these things."""

    def __init__(self, namespace: dict[str, Any]) -> None:
        self.__globals__ = namespace

    def __call__(self) -> None:
        """It is never called."""


def _namespaces(sources: tuple[Any, ...]) -> Iterator[dict[str, Any]]:
    """What the modules of functions and objects name, and what the modules name that these name."""
    names = [getattr(source, "__module__", "") if inspect.isroutine(source) else "" for source in sources]
    names += [kind.__module__ for source in sources for kind in type(source).__mro__]
    modules = [sys.modules[name] for name in dict.fromkeys(names) if name in sys.modules]
    yield from (vars(module) for module in modules)
    yield from (vars(named) for module in modules for named in vars(module).values() if inspect.ismodule(named))
