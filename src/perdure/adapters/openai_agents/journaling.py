"""What one `run` of an OpenAI agent knows of the run around it: its place, and how its tools are declared."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from perdure.adapters import calls
from perdure.adapters.calls import Declaration
from perdure.errors import NotInRun

if TYPE_CHECKING:
    from perdure.engine.active import Active


class Journaling:
    """The settings of one `run`, and where it stands: its model calls and tools take their keys from its place."""

    def __init__(
        self, place: str, *, tools: Mapping[str, Declaration], fixed: Collection[str], active: Active | None
    ) -> None:
        self.place = place
        self.tools = tools
        self.fixed = fixed
        self.active = active
        self.wrapped: dict[int, tuple[Any, Any]] = {}
        """The tools that were given to the SDK, by the identity of the user's, which is kept alive with them."""

    def inside(self, call_id: str) -> Journaling:
        """The same settings for what a tool that is an agent itself does."""
        return Journaling(f"{self.place}/{call_id}", tools=self.tools, fixed=self.fixed, active=self.active)


_current: Final[ContextVar[Journaling | None]] = ContextVar("perdure_openai_agents", default=None)
_asked: Final[WeakKeyDictionary[Active, set[str]]] = WeakKeyDictionary()


def journaling_here() -> Journaling | None:
    """The `run` that this code is part of; None where nothing is recorded, as inside the body of a tool."""
    found = _current.get()
    return found if found is not None and calls.run_here() is found.active is not None else None


def begin(tools: Mapping[str, Declaration] | None, fixed: Collection[str]) -> Journaling:
    """A `run` begins in this agent code; inside another one it is declared as that one is, unless it says otherwise."""
    active = calls.run_here()
    if active is None:
        raise NotInRun(
            "run() of perdure.adapters.openai_agents was called outside a run.",
            safe="nothing was sent.",
            hint="call it from a function with @perdure.agent, or use Runner.run, which records nothing",
        )
    outer = journaling_here()
    declared = calls.checked_declarations(tools) if tools is not None or outer is None else outer.tools
    kept = frozenset(fixed) if fixed or outer is None else outer.fixed
    return Journaling(calls.new_place("agents.run"), tools=declared, fixed=kept, active=active)


@contextmanager
def entered(journaling: Journaling) -> Iterator[None]:
    """Let what is started here be part of this `run`."""
    token = _current.set(journaling)
    try:
        yield
    finally:
        _current.reset(token)


def note_asked(call_ids: Collection[str]) -> None:
    """Remember the tool calls of an answer that is on record."""
    active = calls.run_here()
    if active is not None:
        _asked.setdefault(active, set()).update(call_ids)


def was_asked(call_id: str) -> bool:
    """Whether an answer on record asked for this call; what asked for another may not ask so again."""
    active = calls.run_here()
    return active is not None and call_id in _asked.get(active, ())
