"""Calls of a framework as steps and effects of the run around them: how a tool is declared, and how it is performed."""

from __future__ import annotations

import asyncio
import fnmatch
import hashlib
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, get_args
from weakref import WeakKeyDictionary

import perdure
from perdure.engine.call import spec_of
from perdure.engine.scope import current_frame
from perdure.engine.stillness import Looping
from perdure.errors import UsageError

if TYPE_CHECKING:
    from perdure.engine.active import Active

Kind = Literal["effect", "keyed", "step", "inline"]
Declaration = str | Mapping[str, Any]
"""A kind, or a mapping with `kind` and whatever `perdure.step` or `perdure.effect` take beside it."""

_KINDS: Final = get_args(Kind)
_STEP_OPTIONS: Final = frozenset({"retry", "timeout"})
_EFFECT_OPTIONS: Final = _STEP_OPTIONS | {
    "keyed",
    "key_from",
    "key_ttl",
    "in_flight_seconds",
    "certain",
    "ambiguous",
    "approve",
    "check",
}
_KEY_CHARACTERS: Final = 600
_ASKED_TO_READ: Final = ("readOnlyHint", "idempotentHint")


class Policy:
    """How calls of one tool are performed."""

    def __init__(self, kind: Kind = "effect", options: Mapping[str, Any] | None = None) -> None:
        self.kind = kind
        self.options = dict(options or {})

    @property
    def is_inline(self) -> bool:
        """Whether the tool's body is code of the agent, whose own steps and effects are recorded."""
        return self.kind == "inline"


EFFECT: Final = Policy("effect")
STEP: Final = Policy("step")
INLINE: Final = Policy("inline")


def policy_of(declared: object, *, tool: str) -> Policy:
    """What a tool was declared to be."""
    given: Mapping[str, Any] = declared if isinstance(declared, Mapping) else {"kind": declared}
    kind = given.get("kind", "keyed" if given.get("keyed") or "key_from" in given else "effect")
    options = {name: value for name, value in given.items() if name != "kind"}
    allowed = _EFFECT_OPTIONS if kind in ("effect", "keyed") else _STEP_OPTIONS if kind == "step" else frozenset[str]()
    if kind not in _KINDS or not options.keys() <= allowed:
        raise UsageError(
            f"Tool {tool} is declared as {declared!r}.",
            safe="nothing was performed.",
            hint='"effect", "keyed", "step" or "inline", or a dict with `kind` and options of perdure.effect or step',
        )
    if kind == "keyed":
        return Policy("effect", {**options, "keyed": True})
    return Policy(kind, options)


def declared_policy(
    tool: str,
    *,
    own: object = None,
    by_name: Mapping[str, Declaration],
    function: object = None,
    annotations: Mapping[str, Any] | None = None,
) -> Policy:
    """How a tool is performed: as it says itself, as its name is declared, as its server says, else as an effect.

    A tool whose function is a step or an effect of perdure's brings its own policy: it is called in the agent.
    """
    if own is not None:
        return policy_of(own, tool=tool)
    for pattern, declared in by_name.items():
        if matches(tool, pattern):
            return policy_of(declared, tool=tool)
    if spec_of(function) is not None:
        return INLINE
    if annotations and any(annotations.get(hint) for hint in _ASKED_TO_READ):
        return STEP
    return EFFECT


def matches(tool: str, pattern: str) -> bool:
    """Whether a name or pattern means this tool."""
    return fnmatch.fnmatchcase(tool, pattern)


def checked_declarations(tools: Mapping[str, Declaration] | None) -> dict[str, Declaration]:
    """What was declared by name, refused at once where it makes no sense."""
    given = dict(tools or {})
    for pattern, declared in given.items():
        policy_of(declared, tool=pattern)
    return given


def run_here() -> Active | None:
    """The run whose agent code this is; None outside one, and inside the body of a step."""
    frame = current_frame()
    return None if frame is None or frame.body else frame.active


def new_place(name: str) -> str:
    """Where something of this name begins in the run: the same words whenever the run is replayed.

    Sync code that runs a coroutine to its end waits for it, so what begins there begins in the sync code: whether the
    event loop gave that coroutine a strand of its own depends on what ran on the loop before.
    """
    frame = current_frame()
    if frame is None or frame.active is None:
        raise UsageError(f"{name}: there is no run here.", hint="call it from an agent: @perdure.agent")
    scope = frame.scope
    if isinstance(scope.worker, asyncio.Task) and scope.parent and isinstance(scope.parent.worker, Looping):
        scope = scope.parent
    return scope.child(name, inline=True).path


class Counts:
    """How often something has come up in one execution of a run."""

    def __init__(self) -> None:
        self._of: WeakKeyDictionary[Active, dict[str, int]] = WeakKeyDictionary()

    def next(self, active: Active, what: str) -> int:
        """How often this has come up before."""
        seen = self._of.setdefault(active, {})
        seen[what] = seen.get(what, -1) + 1
        return seen[what]


_counts: Final = Counts()


def numbered(what: str) -> str:
    """A text that tells equal things apart by how often each has come up before in this execution of the run."""
    active = run_here()
    if active is None:
        raise UsageError(f"{what}: there is no run here.", hint="call it from an agent: @perdure.agent")
    if len(what) > _KEY_CHARACTERS:
        what = f"{what[: _KEY_CHARACTERS // 2]}…{hashlib.sha256(what.encode()).hexdigest()}"
    return f"{what}#{_counts.next(active, what)}"


async def perform(
    body: Callable[..., Awaitable[Any]],
    *,
    name: str,
    key: str,
    arguments: Mapping[str, Any],
    policy: Policy,
) -> Any:
    """Call this as a step or an effect of the run, and give what was recorded of it.

    `body` takes any named arguments. It is defined where the exceptions that it raises are known by name, so that
    they come back as what they were.
    """
    named = dict(arguments) if all(map(_is_parameter, arguments)) else {"arguments": dict(arguments)}
    parameters = [inspect.Parameter(each, inspect.Parameter.KEYWORD_ONLY) for each in named]
    body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    options = dict(policy.options)
    check = options.pop("check", None)
    declare: Any = perdure.step if policy.kind == "step" else perdure.effect
    call = declare(name=name, key=key, **options)(body)
    if check is not None:
        call.check(check)
    return await call(**named)


def _is_parameter(name: str) -> bool:
    try:
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
    except ValueError:
        return False
    return True
