"""Streams that a script stopped reading, and dropped without closing them.

That is heard when the object is collected: anywhere, also in the middle of a write of ours. So it is only noted there,
and recorded before the next model call, which is the first that could miss the record. Some libraries hold a stream in
a ring of references, which only the collector undoes: it is called where a strand that has not read its stream to the
end asks for something else.
"""

from __future__ import annotations

import collections
import gc
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from perdure.adapters.http.exchange import ModelCall, Route

_dropped: Final[collections.deque[Callable[[], None]]] = collections.deque()
_open: Final[dict[str, str]] = {}
"""The streams that have begun and are not recorded: the key of the call, and its strand."""


def note_open(call: ModelCall) -> None:
    """A stream has begun."""
    _open[call.call.key] = call.frame.scope.path


def note_closed(call: ModelCall) -> None:
    """It is recorded, or broken."""
    _open.pop(call.call.key, None)


def note_dropped(commit: Callable[[], None]) -> None:
    """A stream was dropped; `commit` records what was read of it."""
    _dropped.append(commit)


def record_dropped(route: Route) -> None:
    """Record what was dropped before the request that goes this way."""
    if _open and route.conduct.frame().scope.path in list(_open.values()):
        gc.collect()
    while _dropped:
        try:
            commit = _dropped.popleft()
        except IndexError:  # another thread took it
            return
        commit()
