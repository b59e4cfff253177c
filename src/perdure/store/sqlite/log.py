"""Room in the write-ahead log, made before it is needed.

To sync a file that has just grown takes two or three times as long as to sync one that was written over: where it ends
has to reach the disk as well. SQLite makes the log longer page by page, so every commit of a new process would pay for
that until the log has its full length. Here it is made longer by many pages at once. What stands behind the last commit
of a log is nothing to SQLite, so that a log with room is as good as any, before a crash and after it.

Nobody asks for the state of the file, which would tell its length too: a kernel that keeps exact times once somebody
has asked for them has something new to say of the file at every commit, and some file systems then sync that as well.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from perdure.store.sqlite.connect import LOG_BYTES

if TYPE_CHECKING:
    from pathlib import Path

PIECE_BYTES: Final = 64 * 4096
"""A log with room ends at a multiple of this; one that SQLite has made longer does not."""

_NOT_OPEN: Final = -1

REST_COMMITS: Final = 64
"""A log of its full length is looked at again after so many: only who tidies a store up makes one shorter."""


class LogRoom:
    """Makes a log longer, for whoever holds the lock of all that write to it."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._descriptor = _NOT_OPEN
        self._is_there = True
        self._rest = 0

    def make(self) -> None:
        """Give the log more room, if it has outgrown what it had; where there is none to give, it grows by itself."""
        if self._rest:
            self._rest -= 1
            return
        if not self._is_there:
            return
        try:
            if self._descriptor == _NOT_OPEN:
                self._descriptor = os.open(self._log, os.O_WRONLY | os.O_CLOEXEC)
            size = os.lseek(self._descriptor, 0, os.SEEK_END)
            if size >= LOG_BYTES:
                self._rest = REST_COMMITS
            elif size % PIECE_BYTES:
                self._extend(size)
        except OSError:
            self._is_there = False

    def close(self) -> None:
        """Let go of the log."""
        self._is_there = False
        if self._descriptor != _NOT_OPEN:
            os.close(self._descriptor)

    def _extend(self, size: int) -> None:
        end = ((size + PIECE_BYTES // 2) // PIECE_BYTES + 1) * PIECE_BYTES
        try:
            written = os.pwrite(self._descriptor, bytes(end - size), size)
        except OSError:
            written = 0
        if written < end - size:  # the disk is full: what is left of it is not for us to take
            self._is_there = False
            os.ftruncate(self._descriptor, size)
