"""How a call that a framework makes becomes a step or an effect of the run around it, and under which key.

A model call is a step. A tool call is an effect, unless somebody who knows the tool declared it to be a step. Outside a
run a call is made as it is, and so is one inside an effect: that has an intent and a receipt already.
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
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec
from msgspec import Struct

from perdure.engine.call import Spec, wrapped
from perdure.engine.effect import EffectSpec, effect_flow
from perdure.engine.failure import class_known_to
from perdure.engine.scope import current_frame
from perdure.engine.signature import is_storable_text
from perdure.engine.step import step_flow
from perdure.errors import UsageError
from perdure.policy import DEFAULT_IN_FLIGHT_SECONDS, DEFAULT_KEY_TTL_SECONDS, ONCE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from types import ModuleType

    from perdure.engine.active import Active

Recovery = Literal["effect", "step", "through"]
"""What a crash inside a tool means: ask, run it again, or nothing, because what the tool calls is recorded itself."""

_IDENTITY_CHARACTERS: Final = 200
_NAME_CHARACTERS: Final = 200

_occurrences: Final[weakref.WeakKeyDictionary[Active, Counter[str]]] = weakref.WeakKeyDictionary()
_counting: Final = threading.Lock()


class Declared(Struct, frozen=True):
    """What is known of tools, by name or by pattern; where several of these match, an effect is an effect."""

    effects: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    through: tuple[str, ...] = ()

    def recovery_of(self, tool: str) -> Recovery | None:
        """What was declared of a tool; None where nothing was."""
        declared: tuple[tuple[Recovery, tuple[str, ...]], ...] = (
            ("effect", self.effects),
            ("step", self.steps),
            ("through", self.through),
        )
        return next((kind for kind, names in declared if any(fnmatchcase(tool, name) for name in names)), None)


class Named(Struct, frozen=True):
    """One call of a framework: what it is called, what it is given, and how it is told from others of the run."""

    name: str
    arguments: dict[str, Any]
    identity: str = ""
    """A text that is the same at every replay, such as the id of a tool call; empty where the place in the code is."""
    sources: tuple[Any, ...] = ()
    """Tools, models and functions: the exceptions that their code can name come back as what they were."""


def declared(
    *, effects: Iterable[str] = (), steps: Iterable[str] = (), through: Iterable[str] = (), what: str
) -> Declared:
    """What a user says of tools; raises `UsageError` where that are no names."""
    given = {"effects": effects, "steps": steps, "through": through}
    for word, names in given.items():
        if isinstance(names, str) or not all(isinstance(name, str) for name in names):
            raise UsageError(
                f"{what}({word}={names!r}): these are no names of tools.", hint=f'{what}({word}=["search_*", "read"])'
            )
    return Declared(**{word: tuple(names) for word, names in given.items()})


def is_recorded() -> bool:
    """Whether a call that is made here can be a step or an effect of its own."""
    frame = current_frame()
    return frame is not None and not frame.effect_key


def perform(act: Callable[[], Any], named: Named, *, recovery: Recovery) -> Any:
    """Have a call made, or give what it gave before; `act` gives what can be stored."""
    if recovery == "through" or not is_recorded():
        return act()

    def body(**_: Any) -> Any:
        return act()

    return _recorded(body, named, recovery)(**_given(named))


async def perform_async(act: Callable[[], Awaitable[Any]], named: Named, *, recovery: Recovery) -> Any:
    """The same for coroutines."""
    if recovery == "through" or not is_recorded():
        return await act()

    async def body(**_: Any) -> Any:
        return await act()

    return await _recorded(body, named, recovery)(**_given(named))


def release_servants(*packages: ModuleType) -> None:
    """Tasks that only serve a library, such as the reader of a connection, are no strands that the run waits for.

    A task is one of a library's own if the code it began with is the library's, looked for behind what starts tasks.
    """
    frame = current_frame()
    if frame is None or frame.active is None:
        return
    folders = tuple(str(Path(str(package.__file__)).parent) for package in packages)
    for scope in list(frame.active.strands):
        if isinstance(scope.worker, asyncio.Task) and _first_file(scope.worker).startswith(folders):
            frame.active.end_strand(scope)


def identity_of(*parts: Any) -> str:
    """A text that tells these from others."""
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted", enc_hook=repr)).hexdigest()[:32]


def _first_file(task: asyncio.Task[Any]) -> str:
    coroutine: Any = task.get_coro()
    while hasattr(coroutine, "cr_code"):
        file: str = coroutine.cr_code.co_filename
        if f"{os.sep}anyio{os.sep}" not in file:
            return file
        coroutine = coroutine.cr_await
    return ""


def _recorded(body: Callable[..., Any], named: Named, recovery: Recovery) -> Callable[..., Any]:
    body.__signature__ = _signature(_given(named))  # type: ignore[attr-defined]
    body.__qualname__ = body.__name__ = name = _usable(named.name)
    key = _key(name, named.identity) if named.identity else None
    if recovery == "effect":
        effect: EffectSpec = _Effect(body, name=name, key=key, sources=named.sources)
        return wrapped(effect, effect_flow)
    step: Spec = _Step(body, name=name, key=key, sources=named.sources)
    return wrapped(step, step_flow)


class _Step(Spec):
    def __init__(self, body: Callable[..., Any], *, name: str, key: str | None, sources: tuple[Any, ...]) -> None:
        super().__init__(body, name=name, retry=ONCE, timeout=None, key=key)
        self._sources = sources

    def known_exception(self, type_name: str) -> type[Exception] | None:
        return super().known_exception(type_name) or _class_named_by(self._sources, type_name)


class _Effect(EffectSpec):
    def __init__(self, body: Callable[..., Any], *, name: str, key: str | None, sources: tuple[Any, ...]) -> None:
        options = {
            "keyed": False,
            "key_from": None,
            "key_ttl": DEFAULT_KEY_TTL_SECONDS,
            "in_flight_seconds": DEFAULT_IN_FLIGHT_SECONDS,
            "certain": (UsageError,),
            "ambiguous": (),
            "undo": None,
            "approve": False,
            "retry": ONCE,
            "timeout": None,
            "key": key,
            "name": name,
        }
        super().__init__(body, options)
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
