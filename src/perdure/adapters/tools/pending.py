"""What models asked for and nobody has performed yet: by this a call of a plain function is known to be a tool call."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from perdure.adapters.http.wire import ToolCall


class Awaited(Struct, frozen=True):
    """One tool call that a model asked for."""

    call: ToolCall
    place: str
    """Which of this run's tool calls it is: the answer that asked for it, and its id there."""

    @property
    def arguments(self) -> dict[str, Any] | None:
        """What it is to be performed with."""
        return self.call.arguments


class Pending:
    """The tool calls of a run from when they were asked for until they are performed; safe from any thread."""

    def __init__(self, hear: Callable[[bool], object]) -> None:
        """`hear` is told whether there are any: all that a call of a plain function has to look at."""
        self._lock = threading.Lock()
        self._awaited: dict[str, Awaited] = {}
        self._performed: set[str] = set()
        self._hear = hear

    def note(self, model_key: str, calls: Sequence[ToolCall]) -> None:
        """A model asked for these; two calls of one answer may have the same id, or none."""
        answer, _, scope = model_key.removeprefix("=model:").partition("@")
        with self._lock:
            seen: dict[str, int] = {}
            for number, call in enumerate(calls):
                name = call.id or f"{number}"
                seen[name] = seen.get(name, 0) + 1
                place = f"{answer}:{name}{f'+{seen[name]}' if seen[name] > 1 else ''}@{scope}"
                if place not in self._performed:
                    self._awaited[place] = Awaited(call, place)
            self._hear(bool(self._awaited))

    def of_name(self, name: str) -> list[Awaited]:
        """Those that ask for this tool, the oldest first."""
        with self._lock:
            return [awaited for awaited in self._awaited.values() if awaited.call.name == name]

    def with_id(self, call_id: str) -> list[Awaited]:
        """Those with this id, the oldest first: agents that run at once may have been given the same ones."""
        with self._lock:
            return [awaited for awaited in self._awaited.values() if awaited.call.id == call_id]

    def everything(self) -> list[Awaited]:
        """All of them, the oldest first."""
        with self._lock:
            return list(self._awaited.values())

    def again(self, awaited: Awaited) -> None:
        """It was begun, and left before it had an outcome: it will be performed once more, under a place of its own."""
        place, _, scope = awaited.place.rpartition("@")
        name, _, times = place.partition("~")
        with self._lock:
            left = Awaited(awaited.call, f"{name}~{int(times or 1) + 1}@{scope}")
            if left.place not in self._performed:
                self._awaited[left.place] = left
            self._hear(bool(self._awaited))

    def take(self, awaited: Awaited) -> bool:
        """Take it to perform it; whether nobody else has."""
        with self._lock:
            self._performed.add(awaited.place)
            found = self._awaited.pop(awaited.place, None) is not None
            self._hear(bool(self._awaited))
            return found

    def answered(self, call_id: str, name: str) -> Awaited | None:
        """The one whose result is on its way to a model though nobody was seen to perform it; it is awaited no more."""
        with self._lock:
            for place, awaited in reversed(self._awaited.items()):
                # A framework makes an id of its own where the model gave none.
                is_named = (not call_id or not awaited.call.id) and awaited.call.name == name
                if is_named or (call_id and awaited.call.id == call_id):
                    del self._awaited[place]
                    self._hear(bool(self._awaited))
                    return awaited
            return None
