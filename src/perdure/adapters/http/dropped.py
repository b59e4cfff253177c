"""Streams that a script stopped reading, and dropped without closing them.

That is heard when the object is collected: anywhere, also in the middle of a write of ours. So it is only noted there,
and recorded before the next model call, which is the first that could miss the record.
"""

from __future__ import annotations

import collections
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_dropped: Final[collections.deque[Callable[[], None]]] = collections.deque()


def note_dropped(commit: Callable[[], None]) -> None:
    """A stream was dropped; `commit` records what was read of it."""
    _dropped.append(commit)


def record_dropped() -> None:
    """Record what was dropped until now."""
    while _dropped:
        try:
            commit = _dropped.popleft()
        except IndexError:  # another thread took it
            return
        commit()
