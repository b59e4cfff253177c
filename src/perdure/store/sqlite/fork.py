"""Keeping forked children away from a database their parent has open.

SQLite remembers the locks of a process in its memory. A forked child inherits that memory but not the locks, so that
whatever it opens, even anew, it would write without any: its commits could be overwritten and be gone without a trace.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, Self

from perdure import clock
from perdure.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

_open_here: Final[list[Forks]] = []


def is_open_here(path: Path) -> bool:
    """Whether this process has the file open as a database.

    It must not open it as a mere file then: closing that would take away every lock that SQLite holds on it.
    """
    status = path.stat()
    return any(other.is_of(status) for other in tuple(_open_here))


class Forks:
    """Remembers which process opened a database, for as long as it is open."""

    def __init__(self, path: Path) -> None:
        self._status = path.stat()
        self._pid = clock.process_id()

    def is_of(self, status: os.stat_result) -> bool:
        """Whether it is this file that was opened."""
        return os.path.samestat(self._status, status)

    def __enter__(self) -> Self:
        for other in tuple(_open_here):
            if other.is_of(self._status):
                other.refuse()
        _open_here.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        if self in _open_here:
            _open_here.remove(self)

    @property
    def is_child(self) -> bool:
        """Whether this process was forked from the one that opened the database."""
        return clock.process_id() != self._pid

    def refuse(self) -> None:
        """Let only the process that opened the database go on."""
        if clock.process_id() != self._pid:  # asked at every step
            raise UsageError(
                "This process was forked from one that has the store open.",
                safe="the parent's runs are untouched.",
                hint="call steps and agents in the parent, or start a new process instead of forking (spawn)",
            )
